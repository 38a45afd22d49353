"""Check the environment variables of a verb (spec 1.1.0, section 2, Parameters)."""

from __future__ import annotations

import os

from libcni.config.identifiers import check_container_id, check_ifname
from libcni.errors import InvalidIdentifierError
from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, INVALID_NETNS, VerbError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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

_RULES: Mapping[str, Callable[[object], str]] = {"CNI_CONTAINERID": check_container_id, "CNI_IFNAME": check_ifname}


def check_environment(verb: str, env: Mapping[str, str]) -> None:
    """Raise a VerbError with code 4 if a variable that ``verb`` needs is missing or invalid."""
    if verb not in REQUIRED:
        raise VerbError(f"unknown CNI_COMMAND: {verb}", code=INVALID_ENVIRONMENT_VARIABLES)
    # Name all missing variables: a person who starts a plugin by hand needs one attempt, not three.
    missing = [name for name in REQUIRED[verb] if not env.get(name)]
    if missing:
        problem = f"required env variables [{','.join(missing)}] missing"
        raise VerbError(problem, code=INVALID_ENVIRONMENT_VARIABLES)
    for name, rule in _RULES.items():
        if name in REQUIRED[verb]:
            try:
                rule(env[name])
            except InvalidIdentifierError as error:
                raise VerbError(f"{name}: {error}", code=INVALID_ENVIRONMENT_VARIABLES) from error


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
