"""Bytes from others, made to do harm: an answer or an error of ours, and no endless wait."""

from __future__ import annotations

import atexit
import json
import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from libcni import (
    ALL_VERSIONS,
    CNIConfig,
    CNIError,
    ConfigError,
    InvalidOutputError,
    Invocation,
    NetworkConfigList,
    Outcome,
    PluginError,
    RecordError,
    Result,
    RuntimeConf,
    VersionError,
)
from libcni.cli import inputs
from libcni.config.jsontext import MAX_DEPTH
from libcni.config.network import parse_plugin
from libcni.config.runtime_conf import as_mapping
from libcni.engines.netavark.podman_request import read_attachment, read_document, read_request
from libcni.engines.oci.annotations import read_wanted
from libcni.engines.oci.container_state import read_state
from libcni.executor import CallOptions
from libcni.kernel.life import Life
from libcni.kernel.namespace_holders import Walk
from libcni.testing import RecordingExecutor

NET = NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "a"}]})
_CAPABILITIES = ("portMappings", "ips", "mac", "bandwidth", "aliases", "dns", "infinibandGUID", "deviceID")
CAPABLE = NET.with_plugins(
    [parse_plugin(json.dumps({"type": "a", "capabilities": dict.fromkeys(_CAPABILITIES, True)}))]
)
RT = RuntimeConf("c1", None, "eth0")


def strict(text: bytes) -> Any:
    """Decode what goes to a plugin as a plugin would: it must be JSON, whatever came in."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} goes to a plugin")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # a plugin in another language reads deeper than Python does
    try:
        return json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    finally:
        sys.setrecursionlimit(limit)


def is_short(error: CNIError, length: int) -> None:
    assert len(str(error)) < length


class Strict(RecordingExecutor):
    """A recording executor that refuses what no plugin could be given."""

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        strict(invocation.stdin)
        assert all("\0" not in text for text in invocation.env.values())
        assert all(text.encode(errors="surrogateescape") is not None for text in invocation.env.values())
        return super().execute(invocation, options)


@cache
def directory() -> Path:
    """Return a directory for records, in memory where possible."""
    path = tempfile.mkdtemp(prefix="libcni-hostile-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def client(**answers: bytes) -> tuple[CNIConfig, Strict]:
    """Return a client without records, and its executor: each verb is answered with exit status 0 and these bytes."""
    for left in (directory() / "results", directory() / "corrupt"):
        shutil.rmtree(left, ignore_errors=True)
    executor = Strict({("*", verb): Outcome(stdout=stdout) for verb, stdout in {"ADD": b"{}", **answers}.items()})
    return CNIConfig(["/"], directory(), executor=executor, durable=False), executor


def configuration(data: bytes) -> bool:
    try:
        net = NetworkConfigList.from_bytes(data)
    except ConfigError:
        return False
    if net.plugins:
        cni, executor = client()
        cni.add_network_list(net, RT)
        assert len(executor.calls) == len(net.plugins)
        assert [one.state for one in cni.get_cached_attachments()] == ["ready"]
        assert cni.del_network_list(net, RT).record == "found"
    return True


def result(data: bytes) -> bool:
    good = False
    small = len(data) < 50_000  # each of the many conversions below takes its time, and none is more than linear
    for version in ("0.2.0", "0.4.0", "1.1.0") if small else ("1.1.0",):
        try:
            found = Result.from_bytes(data, version)
        except InvalidOutputError as error:
            is_short(error, 10_000)
            continue
        good = True
        strict(found.text.encode(errors="surrogatepass"))
        for target in ALL_VERSIONS if small else ("0.4.0",):
            try:
                assert found.as_version(target).cni_version == target
            except VersionError:
                continue
    return good


def record(data: bytes) -> bool:
    cni, executor = client()
    path = directory() / "results" / "net-c1-eth0"
    path.parent.mkdir()
    path.write_bytes(data)
    (one,) = cni.get_cached_attachments()
    with suppress(RecordError):
        assert one.result is None or one.result.text
    cni.del_network_list(NET, RuntimeConf(RT.container_id, "", RT.ifname))
    assert executor.calls, "a record never stops a DEL"
    path.write_bytes(data)
    with suppress(CNIError):  # it may be corrupt, or hold no usable configuration
        cni.del_attachment(one)
    if one.state == "corrupt":
        assert one.problem
        assert len(one.problem) < 1000
    return one.state != "corrupt"


def version(data: bytes) -> bool:
    cni, _ = client(VERSION=data)
    try:
        info = cni.get_version_info("a")
    except InvalidOutputError as error:
        is_short(error, 10_000)
        return False
    assert info.supported_versions
    return True


def error_document(data: bytes) -> bool:
    cni, executor = client()
    executor.answers["*", "STATUS"] = Outcome(exit_status=1, stdout=data, stderr=data[:100])
    with pytest.raises(PluginError) as caught:
        cni.status_network_list(NET)
    error = caught.value
    assert isinstance(error.retryable, bool)
    assert isinstance(error.retryable, bool)
    assert isinstance(error.msg + error.details, str)
    assert len(str(error)) < 20_000
    return error.code is not None


def attach(container_id: str, ifname: str, args: Any, capability_args: Mapping[str, Any], network_args: Any) -> None:
    """Attach and detach what an engine's request asks for; an error is the library's."""
    cni, _ = client()
    rt = RuntimeConf(container_id, "", ifname, args, capability_args, network_args)
    with suppress(CNIError):
        cni.add_network_list(CAPABLE, rt)
        assert cni.del_network_list(CAPABLE, rt).record == "found"


def state(data: bytes) -> bool:
    """Read the state that an OCI runtime gives its hook, and the annotations in it."""
    try:
        found = read_state(data)
        wanted = read_wanted(found.annotations)
    except CNIError as error:
        is_short(error, 3000)
        return False
    for request in wanted.requests or ():
        capabilities = {**wanted.capabilities, **as_mapping(request.capability_args)}
        attach(found.container_id, request.ifname or "eth0", request.args or wanted.args, capabilities, None)
    return True


def annotation(data: bytes) -> bool:
    """Read the value of each annotation that holds JSON."""
    good, text = False, data.decode(errors="replace")
    for key in ("networks", "bandwidth", "capabilities", "ports", "ips", "args"):
        encoded = json.dumps({"id": "c1", "status": "creating", "annotations": {f"libcni.{key}": text}})
        good |= state(encoded.encode())
    return good


def podman(data: bytes) -> bool:
    """Read the request that netavark gives podman's driver."""
    good = False
    for read in (read_attachment, read_request):
        try:
            request = read(read_document(data))
        except CNIError as error:
            is_short(error, 3000)
            continue
        good = read is read_request
        capabilities = {**request.options.capabilities, "portMappings": request.ports, "ips": list(request.ips)}
        attach(request.container_id, request.ifname, request.options.args, capabilities, {"cni": request.aliases})
    return good


def arguments(data: bytes) -> bool:
    """Read the arguments of the command: capability arguments and a configuration in JSON or YAML, CNI_ARGS."""
    text = data.decode(errors="surrogateescape")
    path = directory() / "given.yaml"
    path.write_bytes(data)
    words = [] if text.startswith("@") else [text]
    reads = [(cli_arguments, word) for word in words] + [(inputs._cni_args, text), (inputs.network_of, str(path))]
    good = False
    for read, word in reads:
        try:
            read(word)
            good = True
        except CNIError as error:
            is_short(error, 30_000)
    return good


def cli_arguments(text: str) -> None:
    attach("c1", "eth0", None, inputs.capability_args(text), None)


TARGETS: dict[str, Callable[[bytes], bool]] = {
    "configuration": configuration,
    "result": result,
    "record": record,
    "version": version,
    "error_document": error_document,
    "state": state,
    "podman": podman,
}
ALL_TARGETS: dict[str, Callable[[bytes], bool]] = TARGETS | {"annotation": annotation, "arguments": arguments}
"""Also those that read the bytes several times, or YAML, which takes milliseconds."""

_RESULT = (
    b'{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"00:11:22:33:44:55","sandbox":"/run/netns/x"}],'
    b'"ips":[{"address":"10.1.0.5/16","gateway":"10.1.0.1","interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1"}],'
    b'"dns":{"nameservers":["10.1.0.1"],"domain":"a","search":["b"],"options":["c"]},"vendor":1e400}'
)
_OLD_RESULT = (
    b'{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.5/16","gateway":"10.1.0.1","routes":[{"dst":"0.0.0.0/0"}]},'
    b'"ip6":{"ip":"2001:db8::5/64"},"dns":{}}'
)
_OWN = (
    b'{"created":1700000000.5,"uptime":1.5,"bootId":"b","netnsId":[4,4026531840],"netnsCookie":7,"pidNamespace":8,'
    b'"cniVersion":"1.0.0","owner":"","plugins":[{"type":"a","ipam":{"type":"host-local"}}],"networkArgs":{"cni":{"labels":[]}}}'
)
_RECORD = (
    b'{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoibmV0IiwiY25pVmVyc2lvbiI6IjEuMC4wIiwicGx1Z2lucyI6'
    b'W3sidHlwZSI6ImEifV19","ifName":"eth0","networkName":"net","netns":"/run/netns/x","cniArgs":[["K","V"]],'
    b'"capabilityArgs":{"mac":"x"},"result":' + _RESULT + b',"libcni":' + _OWN + b"}"
)
_EVENTS = (
    b',"libcni.1":{"event":"started","at":1},"libcni.2":{"event":"step","at":1.5,"plugin":0,"interface":{"number":2,'
    b'"mac":"x"}},"libcni.3":{"event":"complete","at":2},"result":' + _RESULT
)
_LIST = (
    b'{"cniVersion":"1.0.0","cniVersions":["0.4.0","1.1.0"],"name":"net","disableCheck":"true","disableGC":false,'
    b'"loadOnlyInlinedPlugins":false,"plugins":[{"type":"bridge","capabilities":{"mac":true},"ipam":{"type":"x"},'
    b'"dns":{"nameservers":["1.1.1.1"]},"args":{"cni":{}},"runtimeConfig":{},"prevResult":{},"cni.dev/x":1,"n":1e400}]}'
)
SEEDS: dict[str, list[bytes]] = {
    "configuration": [_LIST, b'{"cniVersion":"0.3.1","name":"net","type":"bridge","n":12345678901234567890}'],
    "result": [_RESULT, _OLD_RESULT, _RESULT.replace(b"1.0.0", b"0.4.0"), b"{}", b"null"],
    "record": [
        _RECORD,
        b'{"kind":"cniCacheV1","containerId":"c1","config":"e30=","ifName":"eth0","networkName":"net"}',
        _RECORD.replace(b',"result"', b',"r00001"')[:-1] + _EVENTS + b"}",
    ],
    "version": [b'{"cniVersion":"1.0.0","supportedVersions":["0.1.0","1.0.0"]}', b'{"cniVersion":"0.2.0"}'],
    "error_document": [b'{"cniVersion":"1.0.0","code":11,"msg":"later","details":"x"}', b'{"code":-3}', b"text"],
    "state": [
        (
            b"{"  # the strings are one
            b'"ociVersion":"1.0.2","id":"c1","status":"creating","pid":4711,"bundle":"/b","annotations":{"libcni.networks":'
            b'"front, back@net1","libcni.ports":"127.0.0.1:8080:80/udp, [::1]:81:82","libcni.ips":"10.61.0.7, fd00::7",'
            b'"libcni.args":"IgnoreUnknown=1;K=V","libcni.mac":"c2:11:22:33:44:55","other":"x"}}'
        ),
        b'{"id":"c1","status":"stopped"}',
    ],
    "annotation": [
        b'[{"network":"front","ifname":"eth0","args":{"K":"V"},"capabilities":{"mac":"c2:11:22:33:44:55"}},"b@e1"]',
        b'{"ingressRate":1000000,"ingressBurst":100000,"egressRate":8,"egressBurst":8}',
        b'{"aliases":["db"],"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}',
    ],
    "podman": [
        (
            b"{"
            b'"container_id":"c1","container_name":"web","port_mappings":[{"container_port":80,"host_ip":"127.0.0.1",'
            b'"host_port":8080,"protocol":"tcp,udp","range":3}],"network_options":{"aliases":["a"],"interface_name":"eth0",'
            b'"static_ips":["10.1.0.7"],"static_mac":"c2:11:22:33:44:55","options":{"args":"K=V"}},"network":{"name":"n",'
            b'"options":{"conf":"front","bandwidth":"ingressRate=8;ingressBurst=8","capabilities":"{\\"aliases\\":[\\"db\\"]}",'
            b'"ports":"ignore"}}}'
        ),
    ],
    "arguments": [
        _LIST,
        b'{"mac":"c2:11:22:33:44:55","bandwidth":{"ingressRate":8,"ingressBurst":8}}',
        b"cniVersion: 1.0.0\nname: net\nplugins:\n- type: bridge\n  mtu: 1e3\n- {type: portmap}\n",
        b"IgnoreUnknown=1;K=V",
    ],
}

TOKENS = [
    b"null", b"true", b"NaN", b"Infinity", b"-0", b"1e400", b"1" * 5000, b"[]", b"{}", b'""', b'"\\ud800"',
    b'"\\u0000"', b"\xef\xbb\xbf", b"\xff\xfe", b'"', b",", b":", b"[", b"]", b"{", b"}", b"\\", b"\x00", b"\n",
    b"\xed\xa0\x80", b"/*", b"..", b"[" * 2000, b'{"a":' * 2000, b"1.0.0", b"9.9.9", b"0.2.0", b'"cniVersion"',
    b'"name"', b'"type"', b'"plugins"', b'"kind"', b'"libcni"', b'"result"', b'"ips"', b'"code"', b"-1", b"1.5",
    b"0x1", b"1_0", b"\xc2\xa0", b"10.1.0.5/33", b"::ffff:1.2.3.4/128",
]  # fmt: skip

_PART = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}\[\],:]')


def mutations(name: str, seed: int, cases: int) -> Iterator[bytes]:
    """Yield inputs near to good ones: parts replaced, doubled, dropped or moved, and bytes changed."""
    chance = random.Random(f"{name} {seed}")
    for number in range(cases):
        data = chance.choice(SEEDS[name])
        for _ in range(1 + number % 4):
            data = _mutated(data, chance)
        yield data


def _mutated(data: bytes, chance: random.Random) -> bytes:  # noqa: PLR0911 - one for each kind of change
    parts = [(found.start(), found.end()) for found in _PART.finditer(data)] or [(0, len(data))]
    start, end = chance.choice(parts)
    first, last = chance.choice(parts)
    kind = chance.randrange(7)
    if kind == 0:
        return data[:start] + chance.choice(TOKENS) + data[end:]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:end] + data[start:]
    if kind == 3:
        return data[:start] + data[first:last] + data[end:]
    if kind == 4:
        return data[: chance.randrange(len(data) + 1)]
    if kind == 5:
        return data[:start] + chance.choice(TOKENS) + data[start:]
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


@cache
def walk() -> Walk:
    return Walk()


@pytest.fixture(autouse=True)
def _quick_and_quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "libcni")  # what is captured goes to pytest's other processes as UTF-8
    monkeypatch.setattr(Life, "walk", walk())  # each one takes milliseconds
    monkeypatch.setattr(Life, "spaces", {})  # and so does each namespace of the machine


pytestmark = pytest.mark.unmeasured
SEED = int(os.environ.get("LIBCNI_SEED", "1"))
CASES = int(os.environ.get("LIBCNI_FUZZ_CASES", "500"))
MEGABYTES = 2 << 20


def corners() -> Iterator[tuple[str, bytes]]:
    """Yield JSON's dark corners: as the whole document, and as the value of a key that nobody knows."""
    values = {
        "lone surrogate": b'"\\ud800"',
        "lone surrogate in a key": b'{"\\udc00": 1}',
        "surrogate encoded": b'"\xed\xa0\x80"',
        "NUL": b'"\\u0000"',
        "NaN": b"NaN",
        "Infinity": b"[-Infinity]",
        "1e400": b"1e400",
        "minus zero": b"-0",
        "5,000 digits": b"1" * 5000,
        "100,000 digits": b"9" * 100_000,
        "5,000 digits and a point": b"1" * 5000 + b".5",
        "duplicate keys": b'{"a": 1, "a": 2}',
        "100,000 arrays deep": b"[" * 100_000,
        "100,000 arrays deep, closed": b"[" * 100_000 + b"]" * 100_000,
        "100,000 objects deep": b'{"a":' * 100_000,
        "2 MB string": b'"' + b"x" * MEGABYTES + b'"',
        "2 MB of escapes": b'"' + b"\\n" * (MEGABYTES // 2) + b'"',
        "2 MB of spaces": b" " * MEGABYTES + b"1",
        "60,000 elements": b"[" + b"1," * 60_000 + b"1]",
        "20,000 members": b"{" + b",".join(b'"k%d":1' % number for number in range(20_000)) + b"}",
        "20,000 times one member": b"{" + b",".join([b'"k":1'] * 20_000) + b"}",
        "control character": b'"\x01"',
        "empty": b"",
    }
    yield from values.items()
    yield "BOM", b"\xef\xbb\xbf{}"
    for encoding in ("utf-16", "utf-32"):
        yield encoding, "{}".encode(encoding)
    yield "latin-1", '{"ä": 1}'.encode("latin-1")
    yield "two documents", b"{}{}"
    yield "NULs", b"\0" * 100


CORNERS = dict(corners())


def peak_megabytes() -> float:
    """Return the most memory that this process has had resident."""
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) / 1024


def within(seconds: float, megabytes: float, target: Callable[[bytes], bool], data: bytes) -> None:
    """Run a target, and assert that it is done in bounded processor time and memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is resident now
    before = peak_megabytes()
    started = time.process_time()
    target(data)
    assert time.process_time() - started < seconds
    assert peak_megabytes() - before < megabytes


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", TARGETS)
def test_dark_corners(name: str, corner: str) -> None:
    value = CORNERS[corner]
    target = TARGETS[name]
    within(5, 150, target, value)
    for seed in SEEDS[name][:2]:
        if seed.startswith(b"{"):
            within(5, 150, target, b'{"unknown":' + value + b"," + seed[1:])
            head, _, tail = seed.partition(b":")
            within(5, 150, target, head + b":" + value + b"," + tail.partition(b",")[2])


@pytest.mark.parametrize("name", TARGETS)
def test_every_depth_of_nesting(name: str) -> None:
    """Near the library's limit and Python's: what one function can still read the next may not."""
    target = TARGETS[name]
    for depth in [1, 60, *range(MAX_DEPTH - 2, MAX_DEPTH + 2), 900, 3000]:
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            value = opening * depth + b"1" + closing * depth
            target(value)
            for seed in SEEDS[name][:1]:
                target(b'{"unknown":' + value + b"," + seed[1:])
                for key in ("name", "args", "ips", "code", "result", "libcni"):
                    target(seed[:-1] + f',"{key}":'.encode() + value + b"}")


@pytest.mark.parametrize("name", ALL_TARGETS)
def test_the_seeds_are_good(name: str) -> None:
    """Otherwise all that follows would test the first line of a parser only."""
    assert all(ALL_TARGETS[name](seed) for seed in SEEDS[name] if seed != b"text")


@pytest.mark.parametrize("name", ALL_TARGETS)
def test_inputs_near_to_good_ones(name: str) -> None:
    good, target = 0, ALL_TARGETS[name]
    for data in mutations(name, SEED, max(CASES // 10, 250) if name == "arguments" else CASES):
        try:
            good += target(data)
        except BaseException as error:
            raise AssertionError(f"LIBCNI_SEED={SEED}: {data!r}") from error
    assert good > (CASES / 1000 if name in TARGETS else 0), "too few inputs are accepted: the mutations change too much"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(data: bytes) -> None:
    for name, target in TARGETS.items():  # to make the bytes takes longer than to read them
        note(name)
        target(data)
