"""Hints for errors in the words of the command line, as commands to type if possible."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable
from typing import Any

from libcni import (
    AttachmentExistsError,
    CNIError,
    ConfigError,
    InterfaceExistsError,
    LockTimeoutError,
    NamespaceMismatchError,
    NetworkNotFoundError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)

# env and shells exit with 126 and 127 if they cannot start a program.
_NOT_STARTED = {None, 126, 127}


_RETRY = "the plugin asks you to try again later"


def hint_of(error: CNIError) -> str:
    """Return what to do about an error, as a command if possible; "" if nothing is known."""
    for kind, hint in _HINTS:
        if isinstance(error, kind) and (text := hint(error)):
            return text
    return error.hint or ""


def _attachment(error: Any) -> str:
    """Return the options that name an error's attachment."""
    return shlex.join(["-c", error.container_id, "-i", error.ifname])


def _not_started(error: PluginError) -> str:
    """Say why the plugin's file cannot be started: it says more than the kernel's error number."""
    if not error.path or _did_start(error):
        return ""
    from libcni import executable_problem

    problem = executable_problem(error.path)
    return f"{error.path}: {problem[0]}; {problem[1].rstrip(':')}" if problem is not None else ""


def _did_start(error: PluginError) -> bool:
    return bool(error.exit_status not in _NOT_STARTED or error.signal or isinstance(error, PluginTimeoutError))


def _not_detached(error: PluginError) -> str:
    """Name the ways out if DEL fails, or the DEL of a roll-back: the record stays then."""
    if not error.container_id or not (error.verb == "DEL" or error.rollback_errors):
        return ""
    # A plugin that did not start has the cause as the first hint. The library's other hints are its words for the rest.
    known = "" if _did_start(error) else (error.hint or "").partition("; ")[0]
    more_time = "give it more time (--timeout) or " if isinstance(error, PluginTimeoutError) else ""
    cause = known or f"{more_time}correct the cause"
    # A command has a line of its own, so that it can be copied.
    return (
        f"{cause}; then:\n  libcni del {_attachment(error)}\n"
        "with the file of today instead of the recorded configuration:\n"
        f"  libcni del {error.network} {_attachment(error)} --use-given\n"
        "if no DEL can succeed:\n"
        f"  libcni forget {shlex.quote(f'{error.container_id}:{error.ifname}')}"
    )


def _of_verb(error: PluginError) -> str:
    if error.hint:
        return ""
    if error.verb == "CHECK":
        return "libcni doctor --check shows what to type"
    # 50 and 51 are the codes of STATUS (spec 1.1.0, section 2). With another one the plugin may not know the verb.
    if error.verb == "STATUS" and error.code not in {50, 51} and error.network:
        network = shlex.quote(error.network)
        return f"libcni networks --check {network} shows whether the plugin supports the network's version"
    return ""


def _timeout(error: PluginTimeoutError) -> str:
    if error.verb == "VERSION":
        # VERSION does no work. A plugin that does not answer at once is broken, and more time does not help.
        return f"{error.path} does not answer VERSION; install the plugin again"
    return "--timeout gives it more time; --verbose shows which plugin takes how long"


def _interface_exists(error: InterfaceExistsError) -> str:
    name = shlex.quote(os.path.basename(error.netns))
    return (
        f"if nobody uses it: ip -n {name} link del {error.ifname}; else choose another --ifname; "
        "--on-existing allow lets the plugins work on it"
    )


def _mismatch(error: NamespaceMismatchError) -> str:
    if error.hint:
        return ""
    if _is_same_file(error.netns, error.recorded_netns):
        # There is no record, and another container has the interface: --use-given would remove it.
        network = shlex.quote(error.network)
        return f"to free what it holds, and leave that interface alone:\n  libcni del {network} {_attachment(error)}"
    return (
        f"from its recorded namespace {error.recorded_netns}:\n  libcni del {_attachment(error)}\n"
        f"from the given one:\n  libcni del {error.network} {error.netns} {_attachment(error)} --use-given"
    )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _own_namespace(error: ConfigError) -> str:
    # The library's hint is an argument that the command line does not have.
    return "give the namespace of the container, such as /run/netns/NAME" if error.location == "netns" else ""


def _not_attached(error: NotAttachedError) -> str:
    """Name the commands for an attachment that is not complete, or that has no record."""
    if error.state:
        return f"libcni del {_attachment(error)}, then libcni add"
    return "libcni attachments lists the recorded attachments"


def _plugin_not_found(error: PluginNotFoundError) -> str:
    where = "install it there" if error.searched else "install it"
    # A rejected file has a hint of its own, such as "make it executable".
    return "" if error.rejected else f"{where}, or name its directory with --path or CNI_PATH"


def _record(error: RecordError) -> str:
    if error.missing == "attachment":
        return "libcni repair --yes sets it aside"
    if error.missing == "configuration":
        return (
            "with a file of the network: libcni del FILE -c ID -i IFNAME --use-given; if there is none: "
            "libcni forget ID:IFNAME"
        )
    if error.errno in {errno.EACCES, errno.EPERM} and os.geteuid():
        return "run it as root"
    return "libcni doctor shows what is wrong with the disk" if error.errno is not None and not error.hint else ""


_HINTS: tuple[tuple[type[CNIError], Callable[[Any], str]], ...] = (
    (PluginError, _not_started),
    (PluginError, _not_detached),
    (PluginError, lambda error: _RETRY if error.retryable and not error.hint else ""),
    (PluginTimeoutError, _timeout),
    (PluginError, _of_verb),
    (PluginNotFoundError, _plugin_not_found),
    (LockTimeoutError, lambda _: "libcni doctor shows which program holds it"),
    (InterfaceExistsError, _interface_exists),
    (
        AttachmentExistsError,
        lambda error: f"detach it first (libcni del {_attachment(error)}), or use --on-existing replace",
    ),
    (NamespaceMismatchError, _mismatch),
    (NetworkNotFoundError, lambda error: error.hint or "libcni networks lists the configured networks"),
    (ConfigError, _own_namespace),
    (NotAttachedError, _not_attached),
    (RecordError, _record),
)
"""The first hint that is not empty is printed."""
