"""Read what a plugin gets on stdin, and check it (spec 1.1.0, section 3, execution configuration)."""

from __future__ import annotations

import json

from libcni.config.identifiers import check_network_name
from libcni.config.versions import DEFAULT_VERSION, SINCE, parse_version, supports
from libcni.errors import ErrorCode, InvalidIdentifierError, VersionError
from libcni.plugin.failure import VerbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO, NoReturn

__all__ = ["check_version", "decode", "read", "version_of"]


def read(stdin: BinaryIO) -> bytes:
    """Return all of ``stdin``, or raise VerbError (code 5)."""
    try:
        return stdin.read()
    except (OSError, ValueError) as error:
        raise VerbError(f"error reading from stdin: {error}", code=ErrorCode.IO_FAILURE) from error


def decode(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in ``raw``, or raise VerbError (code 6)."""
    try:
        document = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _undecodable(str(error)) from error
    if not isinstance(document, dict):
        raise _undecodable(f"it must be an object, not {type(document).__name__}")
    if not isinstance(document.get("cniVersion", ""), str):
        raise _undecodable("cniVersion must be a string")
    return document


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _undecodable(problem: str) -> VerbError:
    return VerbError(
        "the network configuration on stdin cannot be read", code=ErrorCode.DECODING_FAILURE, details=problem
    )


def check_name(config: dict[str, Any]) -> None:
    """Raise VerbError (code 7) where the network has no name, or an invalid one."""
    if not config.get("name"):
        raise VerbError("missing network name", code=ErrorCode.INVALID_NETWORK_CONFIG)
    try:
        check_network_name(config["name"])
    except InvalidIdentifierError as error:
        raise VerbError(str(error), code=ErrorCode.INVALID_NETWORK_CONFIG) from error


def version_of(config: dict[str, Any]) -> str:
    """Return the spec version of ``config``: what it says, or 0.1.0."""
    return str(config.get("cniVersion") or DEFAULT_VERSION)


def check_version(verb: str, version: str, supported: Sequence[str]) -> None:
    """Raise VerbError (code 1) where ``verb`` cannot be answered in ``version``, and code 6 for no version at all."""
    if verb in SINCE:
        _check_since(verb, version, supported)
    if version not in supported:
        shown = " ".join(f'"{known}"' for known in supported)
        raise VerbError(
            "incompatible CNI versions",
            code=ErrorCode.INCOMPATIBLE_CNI_VERSION,
            details=f'config is "{version}", plugin supports [{shown}]',
        )


def _check_since(verb: str, version: str, supported: Sequence[str]) -> None:
    try:
        allowed = supports(version, verb)
    except VersionError as error:
        raise VerbError(str(error), code=ErrorCode.DECODING_FAILURE) from error
    if not allowed:
        raise VerbError(f"config version does not allow {verb}", code=ErrorCode.INCOMPATIBLE_CNI_VERSION)
    if max(map(parse_version, supported)) < parse_version(version):
        raise VerbError(f"plugin version does not allow {verb}", code=ErrorCode.INCOMPATIBLE_CNI_VERSION)
