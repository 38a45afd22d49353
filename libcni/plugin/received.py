"""Read and check the input of a plugin: the environment (spec 1.1.0, section 2) and stdin (section 3)."""

from __future__ import annotations

import os

from libcni.config.identifiers import validate_container_id, validate_interface_name, validate_network_name
from libcni.config.versions import DEFAULT_VERSION, SINCE, parse_version, supports
from libcni.errors import InvalidIdentifierError, VersionError
from libcni.plugin.failure import (
    DECODING_FAILURE,
    INCOMPATIBLE_CNI_VERSION,
    INVALID_ENVIRONMENT_VARIABLES,
    INVALID_NETNS,
    INVALID_NETWORK_CONFIG,
    IO_FAILURE,
    VerbError,
)
from libcni.plugin.fastjson import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO

_ATTACHMENT = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME")

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "ADD": _ATTACHMENT,
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
    "CHECK": _ATTACHMENT,
    "GC": ("CNI_PATH",),
    "STATUS": (),
    "VERSION": (),
}
"""The variables that each verb needs besides CNI_COMMAND. An empty variable counts as missing."""

_VERSION_WAIT = 1.0


class ReceivedCall:
    """The input of one call. ``Request`` documents the attributes."""

    def __init__(self, verb: str, env: Mapping[str, str], config: dict[str, Any], stdin: bytes) -> None:
        self.verb = verb
        self.env = env
        self.config = config
        self.stdin = stdin
        self.version: str = version_of(config)
        self.name: str = str(config.get("name", ""))
        self.container_id: str = env.get("CNI_CONTAINERID", "")
        self.netns: str = env.get("CNI_NETNS", "")
        self.ifname: str = env.get("CNI_IFNAME", "")
        # An empty part would mean the current directory.
        self.path: tuple[str, ...] = tuple(part for part in env.get("CNI_PATH", "").split(os.pathsep) if part)


def read_stdin(verb: str, stdin: BinaryIO) -> bytes:
    """Return all bytes of ``stdin``; for a VERSION no bytes, if nothing comes within a second.

    VERSION needs no configuration, and a person at a terminal or a runtime's open pipe may send none. Raises VerbError
    with code 5.
    """
    try:
        if verb == "VERSION" and not _has_input(stdin):
            return b""
        return stdin.read()
    except (OSError, ValueError) as error:
        raise VerbError(f"error reading from stdin: {error}", code=IO_FAILURE) from error


def _has_input(stdin: BinaryIO) -> bool:
    try:
        descriptor = stdin.fileno()
    except (OSError, ValueError):  # not a file: a buffer in memory
        return True
    # Wait only for the first byte or for the end of stdin: a runtime that starts to write also closes stdin.
    from select import POLLHUP, POLLIN, poll

    waiter = poll()
    waiter.register(descriptor, POLLIN | POLLHUP)
    return bool(waiter.poll(_VERSION_WAIT * 1000))


def decode_document(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in ``raw``; raises VerbError with code 6."""
    # bytes.decode is strict. Otherwise a delegate would read other characters than this plugin.
    try:
        document = loads(raw.decode())
        if not isinstance(document, dict):
            raise ValueError(f"it must be an object, not {type(document).__name__}")  # noqa: TRY004 - one error for all
        if not isinstance(document.get("cniVersion", ""), str):
            raise ValueError("cniVersion must be a string")  # noqa: TRY004 - as above
    except (ValueError, RecursionError) as error:
        problem = "the network configuration on stdin cannot be read"
        raise VerbError(problem, code=DECODING_FAILURE, details=str(error)) from error
    return document


def version_of(config: dict[str, Any]) -> str:
    """Return the spec version of ``config``: its ``cniVersion``, or 0.1.0 if it has none."""
    return str(config.get("cniVersion") or DEFAULT_VERSION)


def check_environment(verb: str, env: Mapping[str, str]) -> None:
    """Raise a VerbError with code 4 if a variable that ``verb`` needs is missing or invalid."""
    if verb not in REQUIRED:
        raise VerbError(f"unknown CNI_COMMAND: {verb}", code=INVALID_ENVIRONMENT_VARIABLES)
    # Name all missing variables: a person who starts a plugin by hand needs one attempt, not three.
    missing = [name for name in REQUIRED[verb] if not env.get(name)]
    if missing:
        problem = f"required env variables [{','.join(missing)}] missing"
        raise VerbError(problem, code=INVALID_ENVIRONMENT_VARIABLES)
    for name, rule in (("CNI_CONTAINERID", validate_container_id), ("CNI_IFNAME", validate_interface_name)):
        if name in REQUIRED[verb]:
            _apply(rule, env[name], f"{name}: ", INVALID_ENVIRONMENT_VARIABLES)


def check_config(verb: str, config: dict[str, Any], supported: Sequence[str]) -> None:
    """Check the network's name, whether the plugin supports the spec version, and whether this version has ``verb``.

    Raises VerbError with code 7 for the name, with code 6 for a malformed version, with code 1 for another version.
    """
    if not config.get("name"):
        raise VerbError("missing network name", code=INVALID_NETWORK_CONFIG)
    _apply(validate_network_name, config["name"], "", INVALID_NETWORK_CONFIG)
    version = version_of(config)
    if verb in SINCE:
        try:
            allowed, is_newer = supports(version, verb), parse_version(version) > max(map(parse_version, supported))
        except VersionError as error:
            raise VerbError(str(error), code=DECODING_FAILURE) from error
        if not allowed or is_newer:
            which = "plugin" if allowed else "config"
            shown = f'{verb} exists since version {SINCE[verb]}; the configuration has "{version}"'
            details = f"{shown}, the plugin supports {', '.join(supported)}"
            raise VerbError(f"{which} version does not allow {verb}", code=INCOMPATIBLE_CNI_VERSION, details=details)
    if version not in supported:
        shown = " ".join(f'"{known}"' for known in supported)
        details = f'config is "{version}", plugin supports [{shown}]'
        raise VerbError("incompatible CNI versions", code=INCOMPATIBLE_CNI_VERSION, details=details)


def check_netns(env: Mapping[str, str]) -> None:
    """Raise a VerbError with code 8 if CNI_NETNS is the plugin's own network namespace.

    Nothing is checked if CNI_NETNS_OVERRIDE is ``1`` or ``true``.
    """
    netns = env.get("CNI_NETNS", "")
    if not netns or env.get("CNI_NETNS_OVERRIDE", "").lower() in {"1", "true"}:
        return
    try:
        # samefile compares device and inode, because a namespace may have several paths.
        same = os.path.samefile(netns, "/proc/self/ns/net")
    except (OSError, ValueError):
        return  # a DEL must succeed after the namespace has been deleted
    if same:
        raise VerbError(
            "plugin's netns and netns from CNI_NETNS should not be the same",
            code=INVALID_NETNS,
            details=f"CNI_NETNS is {netns}, the plugin's own namespace; CNI_NETNS_OVERRIDE=1 allows that",
        )


def _apply(rule: Callable[[object], str], value: object, where: str, code: int) -> None:
    try:
        rule(value)
    except InvalidIdentifierError as error:
        raise VerbError(f"{where}{error}", code=code) from error
