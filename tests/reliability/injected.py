"""Fail or kill a verb at each call of libc that it makes: ``python -m reliability.injected [VERB ...]``.

Every verb runs once for each of its calls and each fault, in a forked child of this process. Afterwards a problem is:
an exception that is no CNIError, a descriptor or a process that the verb left, an address that a plugin holds without a
record, or a next ADD or DEL that does not work. One case alone: ``ADD --at 17 --fault EIO``.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from processes import children, fork, wait

from libcni import CNIConfig, CNIError, NetworkConfigList, PluginError, RuntimeConf
from libcni.options import StartAhead
from libcni.verbs import node as verbs_node
from reliability.c_node import CNode, build_plugins

__all__ = ["VERBS", "Tally", "inject"]

FAULTS = {**{name: getattr(errno, name) for name in ("EIO", "ENOSPC", "EMFILE", "EACCES")}, "SIGKILL": -1}
CONTAINER = RuntimeConf("c1", None, "eth0")
NEVER = 1 << 30


def _network(c_node: CNode, **more: int) -> NetworkConfigList:
    return c_node.chain("net", "alloc-a", "alloc-b", **more)


def _add(cni: CNIConfig, c_node: CNode) -> None:
    cni.add_network_list(_network(c_node), CONTAINER)


def _check(cni: CNIConfig, c_node: CNode) -> None:
    cni.check_network_list(_network(c_node), CONTAINER)


def _delete(cni: CNIConfig, c_node: CNode) -> None:
    cni.del_network_list(_network(c_node), CONTAINER)


def _gc(cni: CNIConfig, c_node: CNode) -> None:
    cni.gc_network_list(_network(c_node), [])


def _disturb(_cni: CNIConfig, c_node: CNode) -> None:
    (c_node.state / "calm").unlink()


def _fail(cni: CNIConfig, c_node: CNode) -> None:
    """Run an ADD whose plugins fail in the roll-back, too: the record stays pending."""
    with suppress(PluginError):
        cni.add_network_list(_network(c_node, fail=100), CONTAINER)


def _leave(cni: CNIConfig, c_node: CNode) -> None:
    _disturb(cni, c_node)
    _fail(cni, c_node)
    c_node.calm()


VERBS: dict[str, tuple[Callable[[CNIConfig, CNode], None] | None, Callable[[CNIConfig, CNode], None]]] = {
    "ADD": (None, _add),
    "ADD-fails": (_disturb, _fail),
    "ADD-again": (_leave, _add),  # it detaches first what the failed one left
    "CHECK": (_add, _check),
    "DEL": (_add, _delete),
    "GC": (_add, _gc),
}
"""What is done before a case, without faults, and what is done with one."""


@dataclass
class Tally:
    """How many cases ran, and what was wrong in which."""

    calls: dict[str, int] = field(default_factory=dict)
    cases: int = 0
    problems: list[str] = field(default_factory=list)


def inject(root: Path, arguments: Sequence[str] = ()) -> Tally:
    """Run cases in a process with the shim, and return what came of them."""
    shim = root / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    plugins = root / "plugins"
    plugins.mkdir()
    build_plugins(plugins)
    command = [sys.executable, "-m", "reliability.injected", "--plugins", str(plugins), *arguments]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
    environment |= {"LD_PRELOAD": str(shim), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False, timeout=900)
    if done.returncode < 0 or not done.stdout:
        raise AssertionError(f"the injecting process ended with {done.returncode}")
    return Tally(**json.loads(done.stdout))


class Cases:
    """The cases of one verb, each in a directory of its own."""

    def __init__(self, verb: str, plugins: str, directory: Path) -> None:
        self.verb = verb
        self.start_ahead: StartAhead = "never"
        self._plugins = plugins
        self._directory = directory
        self._shim = ctypes.CDLL(None)
        self._name = (ctypes.c_char * 32).in_dll(self._shim, "shim_name")

    def count(self) -> int:
        """Return how many calls the verb makes where nothing fails; the verb runs in this process, to load all."""
        self.start_ahead = "always"  # then it makes the most
        c_node = self._new_node()
        self._run(c_node, NEVER, 0)
        calls = self._run(self._new_node(), NEVER, 0)[0]
        shutil.rmtree(self._directory)
        return calls

    def problems(self, at: int, fault: str) -> Iterator[str]:
        """Yield what is wrong after one case."""
        c_node = self._new_node()
        report = c_node.root / "report"

        def work() -> None:
            # an exception in __del__ reaches nobody but the terminal
            lost: list[str] = []
            sys.unraisablehook = lambda one: lost.append(f"lost in a finalizer: {one.exc_value!r}")
            before = sorted(os.listdir("/proc/self/fd"))
            _, problem = self._run(c_node, at, FAULTS[fault])
            gc.collect()
            # a thread may still reap a plugin whose status could not be read, and closes its descriptor then
            deadline = time.monotonic() + 3
            while len(os.listdir("/proc/self/fd")) > len(before) and time.monotonic() < deadline:
                time.sleep(0.02)
            left = set(os.listdir("/proc/self/fd")) - set(before)
            found = [problem, *lost]
            found += (
                [f"descriptors left: {[os.readlink(f'/proc/self/fd/{one}') for one in left]}"] if left - {""} else []
            )
            found += [f"processes left: {len(children())}"] if children() else []
            report.write_text("\n".join(filter(None, found)))

        status = wait(fork(work))
        if fault == "SIGKILL":
            assert status in {-signal.SIGKILL, 0}
        elif status != 0:
            yield f"the child ended with {status}"
        if report.exists():
            yield from report.read_text().splitlines()
        c_node.wait_for_plugins()
        yield from self._afterwards(c_node)
        shutil.rmtree(c_node.root)

    def _new_node(self) -> CNode:
        c_node = CNode(Path(tempfile.mkdtemp(dir=_made(self._directory))), self._plugins)
        c_node.calm()
        if (before := VERBS[self.verb][0]) is not None:
            before(c_node.client(), c_node)
        return c_node

    def _run(self, c_node: CNode, at: int, error: int) -> tuple[int, str]:
        cni = c_node.client(durable=True, timeout=5, cleanup_timeout=5, start_ahead=self.start_ahead)
        problem = ""
        self._shim.shim_arm(at, error)
        try:
            VERBS[self.verb][1](cni, c_node)
        except CNIError:
            pass
        except BaseException as raised:  # noqa: BLE001 - this is what is looked for
            problem = f"raised {raised!r}"
        calls = self._shim.shim_disarm()
        return calls, f"{self._name.value.decode()}: {problem}" if problem else ""

    def _afterwards(self, c_node: CNode) -> Iterator[str]:
        c_node.calm()
        cni = c_node.client(timeout=5)
        step = "listing"
        try:
            states = [one.state for one in cni.get_cached_attachments()]
            if c_node.owners() and not states:
                yield f"held without a record: {c_node.owners()}"
            if states == ["ready"]:
                step = "the next DEL"
                _delete(cni, c_node)
            step = "the next ADD"
            _add(cni, c_node)
            if len(c_node.owners()) != 2:
                yield f"after the next ADD: {c_node.owners()}"
            step = "the last DEL"
            _delete(cni, c_node)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield f"{step}: {error!r}"
        if c_node.owners() or cni.get_cached_attachments():
            yield f"at the end: {c_node.owners()}, {cni.get_cached_attachments()}"


def _made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def main() -> int:
    """Run cases and print their tally as JSON; return 1 if there are problems."""
    parser = argparse.ArgumentParser(description="Fail or kill verbs at each call of libc.")
    parser.add_argument("verbs", nargs="*", default=list(VERBS), help=f"of {', '.join(VERBS)}; all by default")
    parser.add_argument("--plugins", default="", help="the directory of the built plugins")
    parser.add_argument("--at", type=int, help="only this call")
    parser.add_argument("--step", type=int, default=1, help="only each such call")
    parser.add_argument("--fault", choices=FAULTS, help="only this fault")
    modes = ["never", "always", "by turns"]
    parser.add_argument("--start-ahead", choices=modes, default=modes[2], help="which plugins start ahead")
    options = parser.parse_args()
    if not os.environ.pop("LD_PRELOAD", ""):  # the plugins do not get it either
        with tempfile.TemporaryDirectory() as made:
            tally = inject(Path(made), sys.argv[1:])
        sys.stdout.write("".join(f"{one}\n" for one in [*tally.problems, f"{tally.cases} cases, {tally.calls}"]))
        return 1 if tally.problems else 0
    verbs_node.can_start_ahead = lambda: True  # type: ignore[attr-defined] # however busy this machine is
    tally = Tally()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        for verb in options.verbs:
            cases = Cases(verb, options.plugins, Path(directory, verb))
            tally.calls[verb] = cases.count()
            for at in range(0, tally.calls[verb] + 2, options.step) if options.at is None else [options.at]:
                is_ahead = at % 2 if options.start_ahead == "by turns" else options.start_ahead == "always"
                cases.start_ahead = "always" if is_ahead else "never"
                for fault in [options.fault] if options.fault else FAULTS:
                    tally.cases += 1
                    case = f"{verb} --at {at} --fault {fault} --start-ahead {cases.start_ahead}"
                    tally.problems += [f"{case}: {one}" for one in cases.problems(at, fault)]
    sys.stdout.write(json.dumps(vars(tally)))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
