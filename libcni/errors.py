"""Every error that this library raises, under one root.

    CNIError
    ├── ConfigError (ValueError)            a configuration document is wrong; names the file and the place
    │   └── NetworkNotFoundError (LookupError)   no configuration has that network name
    ├── InvalidIdentifierError (ValueError) a name, container ID, interface name or plugin type breaks the spec's rules
    ├── VersionError (ValueError)           a spec version is malformed, unknown, or does not have the verb
    ├── PluginNotFoundError                 no executable of that type on CNI_PATH; nothing was run
    ├── PluginError                         a plugin ran (or could not be started) and did not succeed
    │   ├── PluginTimeoutError (TimeoutError)    it was stopped at its deadline
    │   └── InvalidOutputError                   it said success, and its output is not what the spec asks
    ├── AttachmentExistsError               ADD: this container already has that interface
    ├── NotAttachedError                    CHECK: there is no completed ADD to check
    ├── LockTimeoutError (TimeoutError)     another verb held the container or the network too long
    ├── RecordError                         a record on disk cannot be read or written
    └── CNIErrorGroup (ExceptionGroup)      several of the above, from a sweep such as GC

Catch ``CNIError`` to catch all. Compare ``code`` and classes, never text.
"""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

__all__ = [
    "AttachmentExistsError",
    "CNIError",
    "CNIErrorGroup",
    "ConfigError",
    "ErrorCode",
    "InvalidIdentifierError",
    "InvalidOutputError",
    "LockTimeoutError",
    "NetworkNotFoundError",
    "NotAttachedError",
    "PluginError",
    "PluginNotFoundError",
    "PluginTimeoutError",
    "RecordError",
    "VersionError",
]

_SHOWN = 2048


class ErrorCode(IntEnum):
    """The well-known codes of a plugin's error document (spec 1.1.0, section 5, Error).

    ``INVALID_NETNS`` and ``INTERNAL`` are not in the spec's table; Go's plugins print them.
    """

    UNKNOWN = 0
    INCOMPATIBLE_CNI_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT_VARIABLES = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_NETWORK_CONFIG = 7
    INVALID_NETNS = 8
    TRY_AGAIN_LATER = 11
    PLUGIN_NOT_AVAILABLE = 50
    LIMITED_CONNECTIVITY = 51
    INTERNAL = 999


def _restore(cls: type[CNIError], args: tuple[Any, ...], state: dict[str, Any]) -> CNIError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class CNIError(Exception):
    """Be the root of all errors of this library.

    Attributes:
        hint (str | None): what to do about it. It is part of the text.
        rollback_errors (tuple[CNIError, ...]): what went wrong when a failed ADD was rolled back; its record is then
            still there.
    """

    hint: str | None = None
    rollback_errors: tuple[CNIError, ...] = ()

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


class ConfigError(CNIError, ValueError):
    """Report a configuration document that cannot be used. Nothing was run and nothing written.

    Attributes:
        problem (str): what is wrong, without the place.
        file (str | None): path of the document, or None where it did not come from a file.
        place (str | None): where in the document, such as ``plugins[1].type`` or ``line 3, column 7``.
    """

    def __init__(
        self, problem: str, *, file: str | None = None, place: str | None = None, hint: str | None = None
    ) -> None:
        where = ": ".join(part for part in (file, place) if part)
        super().__init__(f"{where}: {problem}" if where else problem, hint=hint)
        self.problem = problem
        self.file = file
        self.place = place

    def located(self, file: str | None) -> Self:
        """Return this error as seen from ``file`` (self where the file is known already)."""
        if file is None or self.file is not None:
            return self
        return type(self)(self.problem, file=file, place=self.place, hint=self.hint)


class NetworkNotFoundError(ConfigError, LookupError):
    """Report that no configuration has the wanted network name.

    Attributes:
        network (str | None): the name that was asked for, or None where any network would have done.
    """

    def __init__(
        self,
        problem: str,
        *,
        network: str | None = None,
        file: str | None = None,
        place: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(problem, file=file, place=place, hint=hint)
        self.network = network


class InvalidIdentifierError(CNIError, ValueError):
    """Report a name that breaks the specification's rules for it (spec 1.1.0, sections 1 and 2).

    Attributes:
        kind (str): what the value was meant to be: ``network name``, ``container ID``, ``interface name``,
            ``plugin type``, ``CNI_ARGS key`` ...
        value (object): the value at fault.
        rule (str): the rule that it breaks, in words.
    """

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"invalid {kind} {shorten(repr(value), 200)}: {rule}")
        self.kind = kind
        self.value = value
        self.rule = rule


class VersionError(CNIError, ValueError):
    """Report a spec version that is malformed, unknown here, or too old for what was asked.

    Attributes:
        version (object): the version at fault, as it was given.
    """

    def __init__(self, message: str, *, version: object = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.version = version


class PluginNotFoundError(CNIError):
    """Report that an executable is not on CNI_PATH. No plugin of the chain was run.

    Attributes:
        plugin (str): the plugin's type.
        searched (tuple[str, ...]): the directories, in order.
        rejected (tuple[str, ...]): files of that name that were passed over, each with the reason.
    """

    def __init__(
        self, plugin: str, searched: tuple[str, ...] = (), rejected: tuple[str, ...] = (), *, hint: str | None = None
    ) -> None:
        if not searched:
            text = f'plugin "{plugin}": no plugin directories given (CNI_PATH is empty)'
        else:
            text = f'plugin "{plugin}" not found in {", ".join(searched)}'
        if rejected:
            text += f" (passed over: {'; '.join(rejected)})"
        super().__init__(text, hint=hint)
        self.plugin = plugin
        self.searched = searched
        self.rejected = rejected


class PluginError(CNIError):
    """Report that a plugin did not succeed, with all that is known about the call.

    Attributes:
        problem (str): one sentence on what happened.
        plugin (str): the plugin's type.
        path (str): its executable.
        verb (str): the verb that it was called with.
        network (str): the network's name, "" where the verb has none.
        container_id (str): the container, "" where the verb has none.
        ifname (str): the interface's name, "" where the verb has none.
        code (int | None): the code of its error document (spec 1.1.0, section 5, Error); None where it printed none.
        msg (str): the document's message, or "".
        details (str): the document's details, or "".
        stdout (str): what it printed there, undecodable bytes escaped.
        stderr (str): the end of what it printed there, likewise.
        exit_status (int | None): its exit status; None where a signal ended it, or nothing ran.
        signal (int | None): the number of the signal that ended it.
        seconds (float): how long it ran.
    """

    def __init__(  # noqa: PLR0913 - one error carries all that is known about one call
        self,
        problem: str,
        *,
        plugin: str = "",
        path: str = "",
        verb: str = "",
        network: str = "",
        container_id: str = "",
        ifname: str = "",
        code: int | None = None,
        msg: str = "",
        details: str = "",
        stdout: str = "",
        stderr: str = "",
        exit_status: int | None = None,
        signal: int | None = None,
        seconds: float = 0.0,
        hint: str | None = None,
    ) -> None:
        where = [f"network {network}" if network else "", f"container {container_id}" if container_id else ""]
        where.append(f"interface {ifname}" if ifname else "")
        context = ", ".join(part for part in where if part)
        text = f'plugin "{plugin}" failed ({verb}{f"; {context}" if context else ""}): {problem}'
        if stderr.strip():
            text += f"; stderr: {shorten(stderr.strip(), 500, end=True)!r}"
        super().__init__(text, hint=hint)
        self.problem = problem
        self.plugin = plugin
        self.path = path
        self.verb = verb
        self.network = network
        self.container_id = container_id
        self.ifname = ifname
        self.code = code
        self.msg = msg
        self.details = details
        self.stdout = stdout
        self.stderr = stderr
        self.exit_status = exit_status
        self.signal = signal
        self.seconds = seconds

    @property
    def well_known(self) -> ErrorCode | None:
        """The code as a member of the spec's table, or None.

        The sign is ignored: the 0.4.0 text prints a dash before each code, and some plugins took it for a minus.
        """
        if self.code is None or abs(self.code) not in ErrorCode.__members__.values():
            return None
        return ErrorCode(abs(self.code))

    @property
    def retryable(self) -> bool:
        """Whether the plugin asked to be tried again later (code 11)."""
        return self.well_known is ErrorCode.TRY_AGAIN_LATER

    @property
    def cleanup_needed(self) -> bool:
        """False where the plugin said that the container is unknown and needs no clean-up (code 3)."""
        return self.well_known is not ErrorCode.UNKNOWN_CONTAINER


class PluginTimeoutError(PluginError, TimeoutError):
    """Report a plugin that was stopped (TERM, grace, KILL to its process group) at its deadline."""


class InvalidOutputError(PluginError):
    """Report a plugin that exited with 0 and whose output is not a result: empty, not JSON, wrong types."""


class AttachmentExistsError(CNIError):
    """Report an ADD for a (container, interface) that is attached already. Nothing was run.

    Attributes:
        container_id (str): the container that was to be attached.
        ifname (str): its interface.
        network (str): the network that the interface is attached to now.
    """

    def __init__(self, message: str, *, container_id: str = "", ifname: str = "", network: str = "") -> None:
        super().__init__(message, hint='detach it first, or say on_existing="replace"')
        self.container_id = container_id
        self.ifname = ifname
        self.network = network


class NotAttachedError(CNIError):
    """Report a CHECK of an attachment that has no completed ADD. Nothing was run.

    Attributes:
        container_id (str): the container that was asked for.
        ifname (str): its interface.
        network (str): the network.
    """

    def __init__(
        self, message: str, *, container_id: str = "", ifname: str = "", network: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.container_id = container_id
        self.ifname = ifname
        self.network = network


class LockTimeoutError(CNIError, TimeoutError):
    """Report a lock that another verb, thread or process held until the deadline. Nothing was run.

    Attributes:
        what (str): what is locked, such as ``container c1`` or ``network dbnet``.
        path (str): the lock file.
        seconds (float): how long was waited.
    """

    def __init__(self, message: str, *, what: str = "", path: str = "", seconds: float = 0.0) -> None:
        super().__init__(message)
        self.what = what
        self.path = path
        self.seconds = seconds


class RecordError(CNIError):
    """Report a record or its directory that cannot be read or written.

    Attributes:
        path (str): the file or directory.
        errno (int | None): the operating system's error number.
    """

    def __init__(self, message: str, *, path: str = "", errno: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.errno = errno


class CNIErrorGroup(CNIError, ExceptionGroup[CNIError]):  # noqa: N818 - the design's name, as in ExceptionGroup
    """Hold all errors of a sweep (GC, batches, tear-down) that went on past the first.

    ``exceptions`` has them; ``except*`` and ``split`` work as for any ExceptionGroup.

    Attributes:
        report (Any): what was done all the same, where the verb has a report (such as GCReport), else None.
    """

    report: Any = None

    def __new__(cls, message: str, errors: list[CNIError] | tuple[CNIError, ...]) -> Self:
        """Make the group; ``errors`` must not be empty."""
        return super().__new__(cls, message, list(errors))

    def __init__(self, message: str, errors: list[CNIError] | tuple[CNIError, ...]) -> None:
        CNIError.__init__(self, message)
        self.args: tuple[Any, ...] = (message, list(errors))

    def derive(self, excs: Any) -> CNIErrorGroup:  # type: ignore[override]  # members are never BaseExceptions
        """Return a group of the same kind with other members (used by ``split`` and ``except*``)."""
        return CNIErrorGroup(self.message, list(excs))

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {error}" for error in self.exceptions)])


def shorten(text: str, limit: int = _SHOWN, *, end: bool = False) -> str:
    """Return ``text`` cut to ``limit`` characters: its start, or its ``end``."""
    if len(text) <= limit:
        return text
    cut = f"… ({len(text) - limit} more characters)"
    return f"{cut} {text[-limit:]}" if end else f"{text[:limit]}{cut}"
