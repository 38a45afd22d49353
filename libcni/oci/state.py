"""The container's state, as an OCI runtime writes it to the stdin of a hook (OCI runtime specification, State)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from libcni.config.identifiers import check_container_id
from libcni.engine.request import read_json, read_member
from libcni.errors import ConfigError

_WHERE = "container state on stdin"
_member = partial(read_member, file=_WHERE)


class ContainerState(NamedTuple):
    """The state of one container.

    Attributes:
        status: ``creating``, ``created``, ``running`` or ``stopped``.
        pid: the container's first process; 0 if the runtime gives none, as for a stopped container.
        bundle: the absolute path of the container's bundle.
    """

    container_id: str
    status: str
    pid: int = 0
    bundle: str = ""
    annotations: Mapping[str, str] = {}


def read_state(data: bytes) -> ContainerState:
    """Read a container's state.

    Raises:
        ConfigError: ``data`` is not the JSON document that the OCI runtime specification describes.
        InvalidIdentifierError: CNI does not allow the container's ID.
    """
    if not data.strip():
        raise ConfigError("it is empty", file=_WHERE, hint="an OCI runtime runs this command as a hook")
    document = read_json(data, dict, file=_WHERE)
    state = ContainerState(
        check_container_id(_member(document, "id", str, None)),
        _member(document, "status", str, None),
        _member(document, "pid", int, 0),
        _member(document, "bundle", str, ""),
        _member(document, "annotations", dict, {}),
    )
    if state.pid < 0:
        raise ConfigError(f"pid: no process has the number {state.pid}", file=_WHERE)
    for key, value in state.annotations.items():
        if not isinstance(value, str):
            raise ConfigError(f"annotations: the value of {key} is not a string", file=_WHERE)
    return state
