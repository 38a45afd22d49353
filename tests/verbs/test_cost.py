"""How much of the library runs for one ADD or DEL: calls of its own functions, frames, and suspended generators."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import RT, network

import libcni
from libcni import CNIConfig, Invocation, Outcome, RuntimeConf
from libcni.executor import CallOptions, ProcessExecutor
from libcni.testing import FakePlugins

POLLING = {"has_ended", "_waitid", "_milliseconds", "read"}
ROOT = str(Path(libcni.__file__).parent)
RESULT = b'{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}'


class Watching(ProcessExecutor):
    """An executor that counts the frames of the library above a call, and what of it is suspended."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[int] = []
        self.suspended: list[Any] = []

    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        frame: types.FrameType | None = sys._getframe()
        count = 0
        while frame is not None:
            count += frame.f_code.co_filename.startswith(ROOT)
            frame = frame.f_back
        self.frames.append(count + 1)
        for one in gc.get_objects():
            if isinstance(one, types.GeneratorType | types.CoroutineType):
                code = one.gi_code if isinstance(one, types.GeneratorType) else one.cr_code
                is_suspended = one.gi_suspended if isinstance(one, types.GeneratorType) else one.cr_suspended
                if is_suspended and code.co_filename.startswith(ROOT):
                    self.suspended.append(code.co_qualname)
        return Outcome(stdout=RESULT)


def test_the_stack_is_short_and_nothing_is_suspended(tmp_path: Path) -> None:
    executor = Watching()
    cni = CNIConfig(["/bin"], tmp_path, executor=executor, start_ahead="never")
    cni.add_network_list(network("a", "b", "c"), RT)
    assert len(executor.frames) == 3
    assert max(executor.frames) <= 12
    assert executor.suspended == []


@pytest.mark.parametrize(
    ("mode", "adds", "dels"), [("never", 326, 756), ("always", 346, 777)], ids=["never ahead", "always ahead"]
)
def test_calls_of_own_functions_for_three_plugins(tmp_path: Path, mode: Any, adds: int, dels: int) -> None:
    """A number, not a time, without the calls that poll: how many there are depends on the machine."""
    fakes = FakePlugins(tmp_path)
    for name in "abc":
        fakes.shell(name, result={"cniVersion": "1.0.0"})
    cni = CNIConfig([tmp_path], tmp_path / "cache", start_ahead=mode)
    net = network("a", "b", "c")
    cni.add_network_list(net, RuntimeConf("first", None, "eth0"))
    calls = 0

    def count(frame: types.FrameType, event: str, _: Any) -> None:
        nonlocal calls
        is_own = event == "call" and frame.f_code.co_filename.startswith(ROOT)
        calls += is_own and frame.f_code.co_name not in POLLING

    def counted(verb: Callable[..., object], number: int) -> int:
        nonlocal calls
        calls = 0
        sys.setprofile(count)
        try:
            verb(net, RuntimeConf(f"c{number}", None, "eth0"))
        finally:
            sys.setprofile(None)
        return calls

    # The first calls may import something.
    assert 100 < min(counted(cni.add_network_list, number) for number in range(3)) <= adds
    assert 100 < min(counted(cni.del_network_list, number) for number in range(3)) <= dels
