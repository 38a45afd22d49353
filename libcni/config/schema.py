"""What the protocol reads of a configuration document (pydantic), and errors that say where in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError, Member
from libcni.errors import ConfigError, shorten

__all__ = ["ListDocument", "PluginDocument", "decode", "describe", "format_location", "split", "validate"]


def _flag(value: Any) -> Any:
    """Read a boolean that 0.4.0's text writes as a string."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"it must be true or false, not {shorten(repr(value), 80)}")  # noqa: TRY004 - pydantic's protocol
    return value


def _not_null(value: Any) -> Any:
    """Refuse null where a key may be absent: only plugin objects may have null for nothing."""
    if value is None:
        raise ValueError("it must not be null")
    return value


_Flag = Annotated[bool, BeforeValidator(_flag)]


class _Document(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Ipam(_Document):
    type: str | None = None


class _Dns(_Document):
    nameservers: list[str] | None = None
    domain: str | None = None
    search: list[str] | None = None
    options: list[str] | None = None


class PluginDocument(_Document):
    """What the protocol reads of a plugin object (spec 1.1.0, section 1, Plugin configuration objects)."""

    type: str
    name: str | None = None
    cniVersion: str | None = None  # noqa: N815 - the document's own key
    capabilities: dict[str, bool] | None = None
    ipam: _Ipam | None = None
    dns: _Dns | None = None
    args: dict[str, Any] | None = None


class ListDocument(_Document):
    """What the protocol reads of a configuration list (spec 1.1.0, section 1, Configuration format)."""

    name: str
    cniVersion: str = ""  # noqa: N815 - the document's own key
    cniVersions: Annotated[list[str] | None, BeforeValidator(_not_null)] = None  # noqa: N815 - likewise
    disableCheck: _Flag = False  # noqa: N815 - the document's own key
    disableGC: _Flag = False  # noqa: N815 - the document's own key
    loadOnlyInlinedPlugins: _Flag = False  # noqa: N815 - the document's own key
    plugins: list[Any] = []


_Model = TypeVar("_Model", bound=_Document)


def decode(data: bytes | str, file: str | None, *, lenient: bool = False) -> str:
    """Return a document's bytes as text; raises ConfigError, unless ``lenient`` also where it is nested too deeply."""
    try:
        text = jsontext.decode(data)
        return text if lenient else jsontext.bounded(text)
    except JSONTextError as error:
        raise ConfigError(error.problem, file=file, location=error.location, hint=error.hint) from error


def split(text: str, file: str | None, where: str) -> list[Member]:
    """Return the members of the object ``text``, which stands at ``where`` in ``file``; raises ConfigError."""
    try:
        return jsontext.members(text)
    except JSONTextError as error:
        location = ": ".join(part for part in (where, error.location) if part)
        problem = "it is empty" if not text.strip() else error.problem
        raise ConfigError(problem, file=file, location=location or None, hint=error.hint) from error


def validate(model: type[_Model], by_key: Mapping[str, Member], file: str | None, where: str) -> _Model:
    """Return the typed view of an object's members; raises ConfigError for the first that is wrong."""
    try:
        return model.model_validate({key: member.value for key, member in by_key.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location, problem = describe(first, where)
        hint = _case_hint(first["loc"], by_key) if first["type"] == "missing" else None
        raise ConfigError(problem, file=file, location=location, hint=hint) from error


def describe(found: Any, where: str = "") -> tuple[str, str]:
    """Return the place and the problem, in words, of one of pydantic's errors in the object at ``where``."""
    location = format_location(where, found["loc"])
    if found["type"] == "missing":
        return location, f'missing "{found["loc"][-1]}"'
    message = str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "value_error":
        return location, message
    return location, f"{message[0].lower()}{message[1:]}, not {shorten(repr(found['input']), 80)}"


def format_location(where: str, path: tuple[int | str, ...]) -> str:
    """Return a location in a document in words: ``plugins[1].capabilities.mac``."""
    location = where
    for part in path:
        location += f"[{part}]" if isinstance(part, int) else f".{part}" if location else str(part)
    return location


def _case_hint(location: tuple[int | str, ...], by_key: Mapping[str, Member]) -> str | None:
    wanted = str(location[-1])
    near = next((key for key in by_key if key.lower() == wanted.lower()), None)
    return f'there is "{near}", but keys are case-sensitive' if near else None
