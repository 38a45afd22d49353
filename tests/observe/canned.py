"""A client for the tests of observers, and an observer that keeps every call."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libcni import CNIConfig, CNIError, Invocation, NetworkConfigList, Outcome, RuntimeConf
from libcni.observe import Observer, Operation
from libcni.testing import RecordingExecutor

NET = NetworkConfigList.from_dict({
    "cniVersion": "1.1.0",
    "name": "dbnet",
    "plugins": [
        {"type": "bridge", "capabilities": {"mac": True}},
        {"type": "tuning", "capabilities": {"portMappings": True}},
    ],
})  # fmt: skip
RT = RuntimeConf("c1", "/run/netns/blue", "eth0", capability_args={"mac": "c2:11:22:33:44:55"})


def environments(executor: RecordingExecutor) -> list[dict[str, str]]:
    return [dict(call.options.env or {}) for call in executor.calls]


class Notes(Observer):
    """Write down what comes, in order."""

    def __init__(self, env: Mapping[str, str | None] | None = None) -> None:
        self.env = env
        self.seen: list[tuple[Any, ...]] = []
        self.operations: list[Operation] = []
        self.waited: dict[Operation, float] = {}

    def begin(self, operation: Operation) -> Mapping[str, str | None] | None:
        self.operations.append(operation)
        self.seen.append(("begin", operation.verb, operation.network, operation.container_id, operation.ifname))
        return self.env

    def after_wait(self, operation: Operation, seconds: float) -> None:
        assert any(operation is one for one in self.operations)
        self.waited[operation] = self.waited.get(operation, 0.0) + seconds

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        assert any(operation is one for one in self.operations)
        self.seen.append(("before", invocation.plugin, invocation.verb))

    def after_call(
        self, operation: Operation, invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        assert any(operation is one for one in self.operations)
        said = outcome.exit_status if outcome is not None else None
        self.seen.append(("after", invocation.plugin, invocation.verb, said, type(error).__name__ if error else None))

    def end(self, operation: Operation, error: BaseException | None) -> None:
        assert any(operation is one for one in self.operations)
        self.seen.append(("end", operation.verb, type(error).__name__ if error else None))


def client(tmp_path: Path, executor: RecordingExecutor, observer: Observer | None) -> CNIConfig:
    return CNIConfig(["/opt/cni/bin"], tmp_path, executor=executor, observer=observer, durable=False)


def refusal(code: int = 11, msg: str = "busy") -> Outcome:
    return Outcome(1, json.dumps({"code": code, "msg": msg}).encode(), b"on stderr", seconds=0.25)


def failure_of(cni: CNIConfig) -> CNIError:
    try:
        cni.add_network_list(NET, RT)
    except CNIError as error:
        return error
    raise AssertionError("it was expected to fail")


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name.removeprefix("cni_"): value for name, value in vars(record).items() if name.startswith("cni_")}
