"""Read a plugin's stdin and check the configuration there (spec 1.1.0, section 3, execution configuration)."""

from __future__ import annotations

from libcni.config.identifiers import check_network_name
from libcni.config.versions import DEFAULT_VERSION, SINCE, parse_version, supports
from libcni.errors import InvalidIdentifierError, VersionError
from libcni.plugin.failure import (
    DECODING_FAILURE,
    INCOMPATIBLE_CNI_VERSION,
    INVALID_NETWORK_CONFIG,
    IO_FAILURE,
    VerbError,
)
from libcni.plugin.fastjson import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, BinaryIO

_VERSION_WAIT = 1.0


def read(stdin: BinaryIO) -> bytes:
    """Return all bytes of ``stdin``; raises VerbError with code 5."""
    try:
        return stdin.read()
    except (OSError, ValueError) as error:
        raise VerbError(f"error reading from stdin: {error}", code=IO_FAILURE) from error


def read_version_request(stdin: BinaryIO) -> bytes:
    """Return the configuration on ``stdin`` for a VERSION, or no bytes if nothing comes within a second.

    VERSION needs no configuration, and a person at a terminal or a runtime's open pipe may send none. Raises VerbError
    with code 5.
    """
    try:
        descriptor = stdin.fileno()
    except (OSError, ValueError):  # not a file: a buffer in memory
        return read(stdin)
    # Wait only for the first byte or for the end of stdin: a runtime that starts to write also closes stdin.
    from select import POLLHUP, POLLIN, poll

    waiter = poll()
    waiter.register(descriptor, POLLIN | POLLHUP)
    return read(stdin) if waiter.poll(_VERSION_WAIT * 1000) else b""


def decode_document(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in ``raw``; raises VerbError with code 6."""
    # bytes.decode is strict. Otherwise a delegate would read other characters than this plugin.
    try:
        document = loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise _undecodable(str(error)) from error
    if not isinstance(document, dict):
        raise _undecodable(f"it must be an object, not {type(document).__name__}")
    if not isinstance(document.get("cniVersion", ""), str):
        raise _undecodable("cniVersion must be a string")
    return document


def _undecodable(problem: str) -> VerbError:
    return VerbError("the network configuration on stdin cannot be read", code=DECODING_FAILURE, details=problem)


def check_name(config: dict[str, Any]) -> None:
    """Raise a VerbError with code 7 if a configuration has no valid network name."""
    if not config.get("name"):
        raise VerbError("missing network name", code=INVALID_NETWORK_CONFIG)
    try:
        check_network_name(config["name"])
    except InvalidIdentifierError as error:
        raise VerbError(str(error), code=INVALID_NETWORK_CONFIG) from error


def version_of(config: dict[str, Any]) -> str:
    """Return the spec version of ``config``: its ``cniVersion``, or 0.1.0 if it has none."""
    return str(config.get("cniVersion") or DEFAULT_VERSION)


def check_version(verb: str, version: str, supported: Sequence[str]) -> None:
    """Raise a VerbError with code 1 if the plugin does not support a version, or if the version does not have the verb.

    The code is 6 if ``version`` is malformed.
    """
    if verb in SINCE:
        _check_since(verb, version, supported)
    if version not in supported:
        shown = " ".join(f'"{known}"' for known in supported)
        raise VerbError(
            "incompatible CNI versions",
            code=INCOMPATIBLE_CNI_VERSION,
            details=f'config is "{version}", plugin supports [{shown}]',
        )


def _check_since(verb: str, version: str, supported: Sequence[str]) -> None:
    try:
        allowed = supports(version, verb)
    except VersionError as error:
        raise VerbError(str(error), code=DECODING_FAILURE) from error
    if not allowed:
        raise VerbError(f"config version does not allow {verb}", code=INCOMPATIBLE_CNI_VERSION)
    if max(map(parse_version, supported)) < parse_version(version):
        raise VerbError(f"plugin version does not allow {verb}", code=INCOMPATIBLE_CNI_VERSION)
