"""The container's state, as an OCI runtime writes it to the stdin of a hook (OCI runtime specification, State)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from libcni.config.identifiers import validate_container_id
from libcni.engines.json_request import Field, read_json, read_object
from libcni.errors import ConfigError

_WHERE = "container state on stdin"
_FIELDS = {
    "id": Field(str),
    "status": Field(str),
    "pid": Field(int, 0, most=(1 << 31) - 1),
    "bundle": Field(str, ""),
    "annotations": Field(dict, {}, items=str),
}


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
    container_id, *others = read_object(read_json(data, dict, file=_WHERE), _FIELDS, _WHERE)
    return ContainerState(validate_container_id(container_id), *others)
