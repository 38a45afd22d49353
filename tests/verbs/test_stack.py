"""What of the library is on the stack, or suspended, while a plugin runs."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers import RT, network

import libcni
from libcni import CNIConfig, Invocation, Outcome
from libcni.executor import CallOptions, ProcessExecutor

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
