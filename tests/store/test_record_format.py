"""The format of a record: Go libcni's, byte for byte, and one key more."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from config.test_jsontext import objects
from hypothesis import given
from hypothesis import strategies as st

from libcni.errors import RecordError
from libcni.kernel import system
from libcni.store import record_format
from libcni.store.boot import boot_id
from libcni.store.model import BEGUN, CORRUPT, DETACHING, PENDING, READY, REFUSED, STALE_BOOT, MadeByGo, Ours, Record
from libcni.store.place import ABSENT, NOT_OURS, UNKNOWN
from libcni.store.record_format import decode, encode
from libcni.store.records import RecordStore
from store.canned import FULL, GO_BARE, GO_FULL, RESULT, bare, written


def test_the_bytes_are_gos_and_more_keys() -> None:
    data = encode(FULL)
    result = b',"result":' + RESULT.encode() + b"}"
    assert data.startswith(GO_FULL.removesuffix(result) + b',"libcni":{"created"')
    assert data.endswith(result)
    assert list(json.loads(data)) == [
        *("kind", "containerId", "config", "ifName", "networkName", "netns", "cniArgs", "capabilityArgs"),
        *("libcni", "libcni.1", "result"),
    ]
    assert list(json.loads(data)["libcni"]) == [
        *("created", "uptime", "bootId", "netnsId", "netnsCookie", "pidNamespace", "cniVersion", "owner"),
        *("plugins", "networkArgs"),
    ]


def test_what_is_empty_is_left_out_as_in_go() -> None:
    assert list(json.loads(encode(bare()))) == ["kind", "containerId", "config", "ifName", "networkName", "libcni"]
    assert b"\n" not in encode(FULL)


STATES_OF_RECORDS = [
    FULL,
    bare(),
    bare(state=PENDING),
    bare(state=PENDING, partial=RESULT, interface=ABSENT),
    bare(state=REFUSED),
    bare(state=DETACHING, partial=RESULT, interface=NOT_OURS),
    bare(state=DETACHING, result=RESULT),
]


@pytest.mark.parametrize("record", STATES_OF_RECORDS, ids=lambda record: record.state)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(encode(record), "/p") == replace(record, path="/p")


def test_a_changed_text_stays_when_the_others_are_decoded() -> None:
    found = decode(GO_FULL, "/p").with_fields(partial="{}")
    assert found.result is not None
    assert found.partial == "{}"


def test_a_pending_record_of_an_earlier_version_is_read() -> None:
    """1.0.0rc1 wrote the result of a plugin into its event."""
    step = f',"libcni.1":{{"event":"started","at":1}},"libcni.2":{{"event":"step","at":1,"result":{RESULT}}}}}'
    found = decode(encode(bare())[:-1] + step.encode(), "")
    assert (found.state, found.result, found.partial) == (PENDING, None, RESULT)
    done = step[:-1] + f',"libcni.3":{{"event":"complete","at":1}},"result":{RESULT}}}'
    found = decode(encode(bare())[:-1] + done.encode(), "")
    assert (found.state, found.result, found.partial) == (READY, RESULT, None)


def test_gos_files_are_read() -> None:
    go = decode(GO_FULL, "/p")
    assert isinstance(go, MadeByGo)
    assert (go.state, go.identity, go.netns, go.config) == (READY, FULL.identity, FULL.netns, FULL.config)
    assert (go.args, go.capability_args, go.result) == (FULL.args, FULL.capability_args, FULL.result)
    assert (go.version, go.plugins, go.created, go.owner, go.netns_id, go.interface) == (
        "",
        (),
        None,
        "",
        None,
        UNKNOWN,
    )
    assert decode(GO_BARE, "/p") == MadeByGo("net", "c1", "eth0", PENDING, path="/p")


@pytest.mark.parametrize(
    ("interfaces", "netns"),
    [
        ([{"name": "br0"}, {"name": "eth0", "sandbox": "/run/netns/a"}], "/run/netns/a"),
        ([{"name": "other", "sandbox": "/run/netns/a"}], "/run/netns/a"),
        ([{"name": one, "sandbox": f"/run/netns/{one}"} for one in ("eth0", "eth1")], "/run/netns/eth0"),
        ([{"name": one, "sandbox": f"/run/netns/{one}"} for one in ("eth1", "eth2")], ""),
        ([5], ""),
        (5, ""),
    ],
)
def test_go_1_1_records_the_namespace_in_the_result_alone(interfaces: object, netns: str) -> None:
    document = json.loads(GO_FULL)
    del document["netns"]
    document["result"]["interfaces"] = interfaces
    assert decode(json.dumps(document).encode(), "").netns == netns


@given(objects, objects, st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda t: "\0" not in t))
def test_results_and_plugins_keep_their_text(plugin: str, result: str, netns: str) -> None:
    record = bare(state=READY, plugins=(plugin,), result=result, netns=netns)
    assert decode(encode(record), "") == record


@pytest.mark.parametrize(("boot", "state"), [(boot_id(), READY), ("another", STALE_BOOT), ("", READY)])
def test_a_record_of_another_boot_is_stale(boot: str, state: str) -> None:
    assert decode(encode(replace(FULL, boot=boot)), "").state == state


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (bare(), BEGUN),
        (bare().with_fields(boot="another"), STALE_BOOT),
        (bare().with_fields(boot=""), PENDING),
        (bare(state=REFUSED).with_fields(boot="another"), REFUSED),
    ],
)
def test_after_a_power_cut_nobody_knows_whether_a_plugin_has_run(record: Record, state: str) -> None:
    """What was written after the head may be lost. Without boot IDs a power cut looks like a kill."""
    assert decode(encode(record), "").state == state


def test_without_a_boot_id_nothing_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_format, "boot_id", lambda: "")
    assert decode(encode(replace(FULL, boot="another")), "").state == READY


def test_the_boot_id_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def unreadable(*_args: object, **_more: object) -> str:
        raise PermissionError

    monkeypatch.setattr(system, "open", unreadable)
    with pytest.raises(RecordError, match="boot ID cannot be read"):
        boot_id.__wrapped__()


def _changed(**more: Any) -> bytes:
    return json.dumps({**json.loads(GO_FULL), **more}).encode()


def _own(**more: Any) -> bytes:
    document = json.loads(encode(replace(FULL, plugins=())))
    return json.dumps({**document, "libcni": {**document["libcni"], **more}}).encode()


def _event(**told: Any) -> bytes:
    return _changed(**{"libcni.1": told})


BAD: list[tuple[bytes, str]] = [
    (b"", "it is empty"),
    (b"\0" * 100, "it contains only NUL bytes"),
    (b" \n", "it is empty"),
    (GO_FULL[:50], "not a record"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[]", "not an object"),
    (b"[" * 100_000, "not a"),
    (b"{}", "its kind is None"),
    (_changed(kind="cniCacheV2"), "cniCacheV2"),
    (_changed(containerId=5), "string"),
    (_changed(containerId=""), "container ID"),
    (_changed(containerId="../x"), "container ID"),
    (_changed(networkName="a/b"), "network name"),
    (_changed(ifName="a" * 16), "interface name"),
    (json.dumps({k: v for k, v in json.loads(GO_FULL).items() if k != "networkName"}).encode(), "networkName"),
    (_changed(config=5), "string"),
    (_changed(config="a"), "base64"),
    (_changed(cniArgs=5), "not a record"),
    (_changed(cniArgs=[["K"]]), "not a record"),
    (_changed(cniArgs=[["K", 5]]), "string"),
    (_changed(capabilityArgs=[1]), "capabilityArgs is not an object"),
    (_changed(netns=5), "string"),
    (_changed(netns="/a\0b"), "NUL"),
    (_changed(libcni=5), "libcni is not an object"),
    (_changed(libcni=None), "libcni is not an object"),
    (_changed(libcni=[]), "libcni is not an object"),
    (_changed(libcni={"bootId": "x"}), "not a record"),
    (_event(event="started"), "not a record"),
    (_event(event="done"), "not a record"),
    (_event(event="copy", state="done"), "its state is 'done'"),
    (_event(event="detach", interface="mine"), "not a valid NoInterface"),
    (_event(event="detach", interface={"number": 2}), "not a record"),
    (_event(event=[]), "not a record"),
    (_changed(**{"libcni.1": 5}), "not a record"),
    (_own(netnsId=[1]), "not a record"),
    (_own(netnsId="ab"), "is not a number"),
    (_own(created="now"), "is not a number"),
    (_own(created=True), "is not a number"),
    (_own(pidNamespace="here"), "is not a number"),
    (_own(plugins={}), "plugins is not an array"),
    (_own(plugins="ab"), "plugins is not an array"),
    (_own(networkArgs=[1]), "networkArgs is not an object"),
    (_own(netnsId=[1, -7]), "the number -7 is out of range"),
    (_own(netnsCookie=1 << 64), "is out of range"),
    (_own(pidNamespace=-1), "is out of range"),
    (_event(event="detach", interface={"number": -2, "mac": ""}), "the number -2 is out of range"),
    (_own(netnsId=[1, 1.5]).replace(b"1.5", b"1e400"), "is too large"),
    (_own(created=1.5).replace(b"1.5", b"1e400"), "the number inf is too large"),
]


def test_a_record_with_other_fields() -> None:
    record = Ours(network="a", created=1.5)
    assert record.with_fields(state=PENDING, path="/a") == replace(record, state=PENDING, path="/a")
    with pytest.raises(TypeError, match="sate"):
        record.with_fields(sate=PENDING)


@pytest.mark.parametrize(("data", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_cannot_be_read_is_corrupt_and_says_why(data: bytes, problem: str) -> None:
    record = decode(data, "/p")
    assert (record.state, record.path, record.identity) == (CORRUPT, "/p", ("", "", ""))
    assert problem in record.problem
    assert len(record.problem) < 400


@given(st.binary(max_size=40) | objects.map(str.encode))
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert decode(data, "/p").path == "/p"


def test_what_is_cut_off_did_not_happen() -> None:
    """Wherever a file ends, it is a record of all that was written whole before, or none."""
    head = encode(bare())
    states = {end: decode(head[:end], "").state for end in range(len(head))}
    assert {state for end, state in states.items() if end < len(head) - 1} == {CORRUPT}
    data = encode(FULL)
    start, result = data.index(b',"libcni.1"'), data.index(b',"result"')
    assert {decode(data[:end], "").state for end in range(start, result)} == {BEGUN}
    assert {decode(data[:end], "").state for end in range(result, len(data) - 1)} == {PENDING}


@pytest.mark.parametrize("noise", [b"\0" * 50, b"\xff", b',"libcni.2":{"event":"det', b"}" + b"\0" * 50, b'"}' * 9])
def test_what_is_torn_did_not_happen(noise: bytes) -> None:
    data = encode(FULL)
    found = decode(data[:-1] + noise, "")
    assert (found, found.end) == (FULL, len(data) - 1)


def test_an_unwritten_page_in_the_middle_ends_the_record() -> None:
    data = encode(FULL)
    at = data.index(b'"libcni.1"') + 30
    found = decode(data[:at] + b"\0" * 20 + data[at + 20 :], "")
    assert (found.state, found.result) == (BEGUN, None)


def test_a_result_without_the_events_before_it_is_not_of_an_add_that_has_not_begun() -> None:
    """A DEL of a begun record runs no plugin."""
    found = decode(encode(FULL).replace(b'"libcni.1"', b'"libcnj.1"'), "")
    assert (found.state, found.result) == (PENDING, FULL.result)


def test_an_unknown_boot_is_an_error_and_not_remembered(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = written(store, FULL)
    boot_id.cache_clear()
    real = os.open

    def none_left(path: Any, *args: Any, **more: Any) -> int:
        if "boot_id" in str(path):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(system, "open", none_left)
        with pytest.raises(RecordError, match="boot ID cannot be read: Too many open files"):
            store.find(FULL.identity)
        with pytest.raises(RecordError, match="boot ID cannot be read"):
            store.records()
    assert store.records() == [begun]


def test_a_copy_with_other_names_does_not_fit_its_seal() -> None:
    data = encode(FULL.with_fields(is_original=True, is_own_netns=True))
    assert (decode(data, "").is_original, decode(data, "").is_own_netns) == (True, True)
    for old, new in ((b'"containerId":"c1"', b'"containerId":"c2"'), (b'"ifName":"eth0"', b'"ifName":"eth1"')):
        assert old in data
        assert not decode(data.replace(old, new), "").is_original
    assert not decode(encode(FULL), "").is_original, "a record of an earlier version has no seal"
