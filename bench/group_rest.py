"""3. What else a program pays: start-up, records, and each safeguard of an ADD."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from common import (
    EXT4,
    ROOT,
    TMPFS,
    Row,
    Setup,
    can_use_namespaces,
    chain_conf,
    fresh_cache,
    interpreter,
    median,
    milliseconds,
    p99,
    rows_to_go,
    running,
)  # fmt: skip

import libcni
from libcni import CNIConfig, NetworkConfigList, RuntimeConf
from libcni.kernel.namespace import namespace_identity
from libcni.store.attachments import new_record
from libcni.store.locks import LockRequest, LockSet
from libcni.store.place import UNKNOWN
from libcni.store.present_interfaces import EnteredNamespace
from libcni.store.records import RecordStore
from libcni.testing import wait_until

NAME = "3 start-up, records, prices"
PYDANTIC = "from pydantic import BaseModel"
RESULT = '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/bench"}]}'
PLUGIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from libcni.plugin import Plugin
plugin = Plugin("noop")

@plugin.add
@plugin.delete
def nothing(request):
    pass

plugin.run()
"""


def run(*, quick: bool) -> list[Row]:
    return (
        _start_up(2 if quick else 25)
        + _records(100 if quick else 10_000, 2 if quick else 6)
        + _prices(20 if quick else 500)
        + _calls()
        + ([] if quick else _podman())
    )


def _start_up(rounds: int) -> list[Row]:
    """Measure the processor time of whole commands, each against a bare Python."""
    directory = TMPFS / "start"
    env = _prepare(directory)
    run = [one for one in interpreter() if not one.startswith("PYTHONPATH=")]
    env["PYTHONPATH"] = next(one for one in interpreter() if one.startswith("PYTHONPATH=")).partition("=")[2]
    libcni = [*run, "-m", "libcni"]
    add = [*libcni, "add", "n", "/run/netns/none", "--on-existing", "allow"]
    commands: dict[str, tuple[list[str], str, float | None]] = {  # what it is compared with, the bar
        PYDANTIC: ([*run, "-c", PYDANTIC], PYDANTIC, None),
        "import libcni; libcni.CNIConfig": ([*run, "-c", "import libcni; libcni.CNIConfig"], PYDANTIC, 1.0),
        "libcni attachments": ([*libcni, "attachments"], PYDANTIC, 1.0),
        "libcni add": (add, PYDANTIC, 1.0),
        "libcni --help": ([*libcni, "--help"], PYDANTIC, 1.2),
        'python -I -c "import _json"': ([*run, "-I", "-c", "import _json"], 'python -I -c "import _json"', None),
        "VERSION of a plugin of this library": (
            [*run, "-I", str(directory / "plugin.py")], 'python -I -c "import _json"', 1.25,
        ),
    }  # fmt: skip
    each: dict[str, list[float]] = {what: [] for what in commands}
    hook: list[float] = []
    for number in range(rounds + 1):
        for what, (command, *_) in commands.items():
            taken = _processor_ms(command, env, directory)
            if number:  # the first one writes the bytecode
                each[what].append(taken)
        if can_use_namespaces():
            hook.append(_hook([*libcni, "oci-hook"], env, directory))
    rows = [
        Row(NAME, f"{what}: processor time", "", "ms", median(taken), p99(taken),
            median(taken) / median(each[commands[what][1]]), commands[what][1], commands[what][2])
        for what, taken in each.items()
    ]  # fmt: skip
    if hook[1:]:
        what = "the hook at both ends of a container: processor time"
        rows.append(Row(NAME, what, "", "ms", median(hook[1:]), p99(hook[1:]), median(hook[1:]) / 150, "150 ms", 1.0))
    return rows


def _processor_ms(command: list[str], env: dict[str, str], directory: Path, stdin: bytes = b"") -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, input=stdin, check=True, capture_output=True, cwd=directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _hook(command: list[str], env: dict[str, str], directory: Path) -> float:
    """Attach and detach a container with the hook of an OCI runtime."""
    words = [*command, f"--conf-dir={directory}", f"--path={directory}", f"--cache-dir={directory}/hook"]
    taken, own = 0.0, namespace_identity("/proc/self/ns/net")
    with subprocess.Popen(["unshare", "--net", "sleep", "60"]) as container:
        wait_until(lambda: namespace_identity(f"/proc/{container.pid}/ns/net") != own)
        state = {"ociVersion": "1.0.2", "id": "c", "bundle": "/", "pid": container.pid, "status": "creating"}
        taken += _processor_ms(words, env, directory, json.dumps(state).encode())
        container.kill()
    return taken + _processor_ms(words, env, directory, json.dumps({**state, "pid": 0, "status": "stopped"}).encode())


def _prepare(directory: Path) -> dict[str, str]:
    """Write a network with a plugin that does nothing, a plugin of this library, and return the environment."""
    directory.mkdir()
    noop = directory / "noop"
    noop.write_text("""#!/bin/sh\necho '{"cniVersion":"1.1.0"}'\n""", encoding="utf-8")
    noop.chmod(0o755)
    (directory / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    net = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "noop"}]}
    (directory / "n.conflist").write_text(json.dumps(net), encoding="utf-8")
    ours = {"NETCONFPATH": directory, "CNI_PATH": directory, "LIBCNI_CACHE_DIR": directory / "cache"}
    # An installed package has its bytecode; this checkout's goes to a directory of its own.
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    more = {"PYTHONPYCACHEPREFIX": directory / "bytecode", "CNI_COMMAND": "VERSION", "CNI_CONTAINERID": "c1", **ours}
    return {**inherited, "CNI_IFNAME": "eth0", **{name: str(value) for name, value in more.items()}}


def _records(number: int, rounds: int) -> list[Row]:
    """List records, and attach among them."""
    template, publishing = fresh_cache(EXT4), chain_conf(publishes=True)
    with running(Setup(publishing, EXT4, cache=template).subject("template")) as [worker]:
        worker.ask("add", 0, 1, 1)
    (first,) = (template / "results").iterdir()
    data = first.read_text(encoding="utf-8")
    for index in range(1, number):
        name = first.name.replace("-c0-", f"-c{index}-")
        its = data.replace('"c0"', f'"c{index}"').replace("10.1.0.5", f"10.2.{index // 250}.{index % 250}")
        (template / "results" / name).write_text(its, encoding="utf-8")
    rows = _among(template, chain_conf(), number, rounds, publishes=False)
    rows += _among(template, publishing, number, rounds, publishes=True)
    shutil.rmtree(template)
    return rows


def _among(template: Path, conf: Path, number: int, rounds: int, *, publishes: bool) -> list[Row]:
    """Attach and detach a container among ``number`` records that are all of one port, and list them."""
    what = "ADD + DEL, with a port" if publishes else "ADD + DEL"
    caches = [fresh_cache(EXT4), fresh_cache(EXT4)]
    for cache in caches:
        shutil.copytree(template / "results", cache / "results", dirs_exist_ok=True)
    each: dict[str, dict[str, list[float]]] = {"list one container's": {}, "list all": {}, what: {}}
    ours = Setup(conf, EXT4, cache=caches[1]).subject("threads", "--ahead", "always")
    with running(Setup(conf, EXT4, cache=caches[0]).peer(), ours) as workers:
        for turn in range(rounds + 1):
            for worker in workers if turn % 2 else workers[::-1]:
                one = worker.ask("list", f"c{number // 2}")
                everything = worker.ask("list", "-")
                assert (one["found"], everything["found"]) == (1, number)
                pair = [worker.ask(verb, 1_000_001, 1, 1)["each"][0] for verb in ("add", "del")]
                for label, taken in zip(each, (one["each"], everything["each"], [sum(pair)]), strict=True):
                    each[label].setdefault(worker.name, []).extend(milliseconds(taken) if turn else [])
    for cache in caches:
        shutil.rmtree(cache)
    bars = {"list one container's": 0.7, "list all": 1.3}
    return [
        row
        for label, found in each.items()
        if label == what or not publishes  # listings are the same
        for row in rows_to_go(
            NAME, f"{number:,} records: {label}", found, {"threads": bars[label]} if label in bars else {}
        )
    ]


def _prices(rounds: int) -> list[Row]:
    """Measure the processor time of safeguards within this program."""
    net, rt = NetworkConfigList.from_file(chain_conf()), RuntimeConf("c1", Setup.netns, "eth0")
    fast, slow = fresh_cache(TMPFS), fresh_cache(EXT4)
    prices: dict[str, tuple[Callable[[], object], Callable[[], int]]] = {
        "the first look of a verb at the interface: processor time": (
            lambda: _look(Setup.netns), time.process_time_ns,
        ),
        "each further look: processor time": (lambda: _look(Setup.netns, entered), time.process_time_ns),
        "locks of the network and the container": (lambda: _lock(str(fast), net.name), time.perf_counter_ns),
        "a record from ADD to DEL, tmpfs": (
            lambda: _write(RecordStore(str(fast), durable=False), net, rt), time.perf_counter_ns,
        ),
        "a record from ADD to DEL, ext4, durable": (
            lambda: _write(RecordStore(str(slow), durable=True), net, rt), time.perf_counter_ns,
        ),
    }  # fmt: skip
    rows = []
    entered = EnteredNamespace.enter(Setup.netns)
    for what, (work, clock) in prices.items():
        taken = []
        for _ in range(rounds):
            began = clock()
            work()
            taken.append((clock() - began) / 1e3)
        rows.append(Row(NAME, what, "", "µs", median(taken), p99(taken)))
    return rows


def _look(netns: str, entered: EnteredNamespace | None = None) -> None:
    known = entered or EnteredNamespace.enter(netns)
    if known is None:
        raise SystemExit(f"{netns} cannot be entered")
    known.look("eth0")
    if entered is None:
        known.close()


def _lock(cache: str, network: str) -> None:
    locks = LockSet(cache, LockRequest((network,), "c1"))
    assert locks.try_acquire()
    locks.close()


def _write(store: RecordStore, net: NetworkConfigList, rt: RuntimeConf) -> None:
    with store.begin(new_record(net, rt)) as journal:
        journal.write("started", interface=UNKNOWN)
        for plugin in range(2):
            journal.write("step", plugin=plugin, interface=UNKNOWN, partial=RESULT)
        journal.write("complete", interface=UNKNOWN, result=RESULT)
        journal.write("detach")
    store.forget(journal.record)


def _calls() -> list[Row]:
    """Count the calls of the library's own functions, which a reader of a verb would have to follow."""
    directory = TMPFS / "calls"
    _prepare(directory)
    plugins = [{"type": "noop"}] * 3
    net = NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "n", "plugins": plugins})
    cni = CNIConfig([directory], directory / "cache", start_ahead="never")
    each: dict[str, list[float]] = {"ADD": [], "DEL": []}
    for number in range(4):
        rt = RuntimeConf(f"c{number}", None, "eth0")
        each["ADD"].append(_own_calls(lambda rt=rt: cni.add_network_list(net, rt)))
        each["DEL"].append(_own_calls(lambda rt=rt: cni.del_network_list(net, rt)))
    # The first verbs import modules. The others differ by the calls that wait for a plugin's end.
    return [Row(NAME, f"3 plugins: own functions called by {verb}", "", "", min(found)) for verb, found in each.items()]


def _own_calls(verb: Callable[[], object]) -> float:
    called = 0
    own = str(Path(libcni.__file__).parent)

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal called
        called += event == "call" and frame.f_code.co_filename.startswith(own)

    sys.setprofile(count)
    try:
        verb()
    finally:
        sys.setprofile(None)
    return called


def _podman() -> list[Row]:
    """Measure the driver's own processor time in ``podman run --rm`` of four plugins, without what plugins take."""
    words = [
        ROOT / "scripts/peers",
        "podman@experimental",
        "--",
        "python3",
        "/repository/tests/engines/netavark/inside.py",
        "cost",
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    # The first one writes the bytecode.
    costs = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("cost ")][1:]
    own, of_all = [float(one) for one, _ in costs], [float(one) for _, one in costs]
    if not costs:
        return []
    what, ratio = "podman run --rm, four plugins: processor time", median(own) / median(of_all)
    return [
        Row(NAME, what, "podman and all that it starts", "ms", median(of_all), p99(of_all), 1.0, "all"),
        Row(NAME, what, "the driver alone, two runs", "ms", median(own), p99(own), ratio, "all"),
    ]
