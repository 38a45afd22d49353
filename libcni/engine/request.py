"""Read an engine's JSON request, and the arguments for plugins in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from libcni.errors import ConfigError, short_repr, shorten

_T = TypeVar("_T")

_JSON_TYPES = {str: "a string", int: "an integer", bool: "true or false", list: "an array", dict: "an object"}


def read_json(text: str | bytes, kind: type[_T], name: str = "object", *, file: str | None = None) -> _T:
    """Return the JSON value of a text.

    Raises ConfigError if the text is not JSON, or the value has another type than ``kind``.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {shorten(str(error), 200)}", file=file) from error
    if not isinstance(value, kind):
        raise ConfigError(f"{short_repr(value)} is not a JSON {name}", file=file)
    return value


def read_member(document: Mapping[str, Any], key: str, kind: type[Any], default: Any, *, file: str) -> Any:
    """Return a member of a request, or ``default`` if it is missing or null.

    Raises:
        ConfigError: the member has another type; or it is missing, and ``default`` is None.
    """
    value = document.get(key)
    if value is None and default is not None:
        return default
    # bool is a subclass of int, and no process has the number true
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        shown = "it is missing" if value is None else f"{short_repr(value)} is not {_JSON_TYPES[kind]}"
        raise ConfigError(f"{key}: {shown}", file=file)
    return value


def known_capabilities(capabilities: Any) -> dict[str, Any]:
    """Check capability arguments against the conventions. Arguments that the conventions do not have stay unchanged."""
    from libcni.config.capabilities import CapabilityArgs  # a dozen models that few containers need

    if not isinstance(capabilities, dict):
        raise ConfigError(f"capabilities: {short_repr(capabilities)} is not an object")
    return CapabilityArgs.from_json(capabilities).to_json()
