"""The container's state, as an OCI runtime writes it to the stdin of a hook (OCI runtime specification, State)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from libcni.config.identifiers import check_container_id
from libcni.errors import ConfigError, short_repr, shorten

_T = TypeVar("_T")
_WHERE = "container state on stdin"


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


def read_json(text: str | bytes, kind: type[_T], name: str = "object", *, file: str | None = None) -> _T:
    """Return the JSON value of a text; raises ConfigError if it is none, or of another type than ``kind``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {shorten(str(error), 200)}", file=file) from error
    if not isinstance(value, kind):
        raise ConfigError(f"{short_repr(value)} is not a JSON {name}", file=file)
    return value


def _member(document: Mapping[str, Any], key: str, kind: type[Any], default: Any) -> Any:
    value = document.get(key)
    if value is None and default is not None:
        return default
    # bool is a subclass of int, and no process has the number true
    if not isinstance(value, kind) or isinstance(value, bool):
        shown = "it is missing" if value is None else f"{short_repr(value)} is not of type {kind.__name__}"
        raise ConfigError(f"{key}: {shown}", file=_WHERE)
    return value
