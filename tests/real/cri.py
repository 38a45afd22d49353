"""A client of the container runtime interface: the few messages that the tests need, encoded by hand."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

Value = int | str | bytes
Fields = dict[int, list[Value]]


def message(**fields: Value | list[Any] | None) -> bytes:
    """Encode a message of protobuf: ``f1="text"`` is its field 1. A list is a repeated field, None is left out."""
    encoded = bytearray()
    for name, given in fields.items():
        for value in given if isinstance(given, list) else [given]:
            if value is None:
                continue
            number = int(name[1:])
            if isinstance(value, int):
                encoded += _number(number << 3) + _number(value)
            else:
                data = value.encode() if isinstance(value, str) else value
                encoded += _number(number << 3 | 2) + _number(len(data)) + data
    return bytes(encoded)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def fields(data: bytes) -> Fields:
    """Decode a message: each field's values, numbers as int and everything else as bytes."""
    found: Fields = {}
    rest = iter(data)
    for tag in rest:
        key = _read(tag, rest)
        value: Value = _read(next(rest), rest)
        if key & 7 == 2:
            value = bytes(next(rest) for _ in range(int(value)))
        found.setdefault(key >> 3, []).append(value)
    return found


def _read(first: int, rest: Iterator[int]) -> int:
    value, shift = first & 127, 7
    while first > 127:
        first = next(rest)
        value |= (first & 127) << shift
        shift += 7
    return value


def _message(found: Fields, number: int) -> Fields:
    return fields(_bytes(found, number))


def _bytes(found: Fields, number: int) -> bytes:
    value = found.get(number, [b""])[0]
    assert isinstance(value, bytes)
    return value


def _text(found: Fields, number: int) -> str:
    return _bytes(found, number).decode()


class CRIError(Exception):
    """The runtime has answered with an error."""


@dataclass(frozen=True)
class Pod:
    """A pod sandbox: its first address, the process in its namespaces, and the path of its network namespace."""

    id: str
    name: str
    ip: str
    pid: int
    netns: str
    ready: bool


class CRI:
    """The runtime that listens on a socket. Raises ``CRIError``."""

    def __init__(self, socket: str) -> None:
        self._grpc: Any = importlib.import_module("grpc")
        self._channel = self._grpc.insecure_channel(f"unix://{socket}")

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: bytes = b"", *, service: str = "RuntimeService") -> Fields:
        try:
            return fields(self._channel.unary_unary(f"/runtime.v1.{service}/{method}")(request, timeout=60.0))
        except self._grpc.RpcError as error:
            raise CRIError(error.details()) from None

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until the runtime answers and its network is ready."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                not_ready = self.not_ready()
            except CRIError as error:
                not_ready = [str(error)]
            if not not_ready:
                return
            if time.monotonic() > deadline:
                raise CRIError(f"not ready after {seconds} s: {not_ready}")
            time.sleep(0.05)

    def has_image(self, name: str) -> bool:
        """Return whether the runtime knows an image. It learns of an imported one a little later."""
        return bool(self._call("ImageStatus", message(f1=message(f1=name)), service="ImageService").get(1))

    def not_ready(self) -> list[str]:
        """Return the conditions that are not met."""
        status = _message(self._call("Status"), 1)
        conditions = [fields(one) for one in status.get(1, []) if isinstance(one, bytes)]
        return [f"{_text(one, 1)}: {_text(one, 4)}" for one in conditions if not one.get(2)]

    def run(self, name: str, *ports: int, handler: str = "", namespace: str = "default") -> str:
        """Run a pod that publishes these ports of the host at its port 8080, and return its ID."""
        config = message(
            f1=message(f1=name, f2=str(uuid4()), f3=namespace),
            f2=name[:63],
            f5=[message(f2=8080, f3=port) for port in ports],
            f6=message(f1="app", f2=name),
            f7=message(f1="note", f2=f"of {name}"),
            f8=message(),
        )
        return _text(self._call("RunPodSandbox", message(f1=config, f2=handler or None)), 1)

    def remove(self, pod_id: str) -> None:
        """Stop and remove a pod."""
        self._call("StopPodSandbox", message(f1=pod_id))
        self._call("RemovePodSandbox", message(f1=pod_id))

    def pods(self) -> list[Pod]:
        """Return all pods, in the order of their names."""
        listed = [fields(one) for one in self._call("ListPodSandbox").get(1, []) if isinstance(one, bytes)]
        return sorted((self.pod(_text(one, 1)) for one in listed), key=lambda pod: pod.name)

    def pod(self, pod_id: str) -> Pod:
        """Return what the runtime tells of a pod."""
        answer = self._call("PodSandboxStatus", message(f1=pod_id, f2=1))
        status = _message(answer, 1)
        entries = [fields(one) for one in answer.get(2, []) if isinstance(one, bytes)]
        info = {_text(one, 1): _text(one, 2) for one in entries}
        told = json.loads(info["info"])
        spaces = {one["type"]: one.get("path", "") for one in told["runtimeSpec"]["linux"]["namespaces"]}
        name, ip = _text(_message(status, 2), 1), _text(_message(status, 5), 1)
        return Pod(pod_id, name, ip, told.get("pid", 0), spaces["network"], status.get(3, [0])[0] == 0)
