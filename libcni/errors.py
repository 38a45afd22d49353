"""Every error that this library raises, under one root.

    CNIError
    ├── ConfigError (ValueError)            a configuration document is invalid; names the file and the location
    │   └── NetworkNotFoundError (LookupError)   no configuration has that network name
    ├── InvalidIdentifierError (ValueError) a name, container ID, interface name or plugin type breaks the spec's rules
    ├── VersionError (ValueError)           a spec version is malformed, unknown, or too old for the verb
    ├── PluginNotFoundError                 no executable of that type on CNI_PATH; nothing was run
    ├── PluginError                         a plugin failed, or could not be started
    │   ├── PluginTimeoutError (TimeoutError)    a plugin was stopped at its deadline
    │   └── InvalidOutputError                   a plugin exited with 0, but printed no valid result
    ├── AttachmentExistsError               ADD: this container already has that interface
    │   └── InterfaceExistsError                 ADD: the interface exists, and the container has no record of it
    ├── NamespaceMismatchError              the namespace is not the recorded one, or was replaced meanwhile
    ├── NotAttachedError                    CHECK: no completed ADD is on record, or its interface no longer exists
    ├── LockTimeoutError (TimeoutError)     another verb held the container's or the network's lock too long
    ├── RecordError                         a record on disk cannot be read or written
    └── CNIErrorGroup (ExceptionGroup)      several of the above, from an operation that goes on after errors (GC)

Catch ``CNIError`` to catch them all. Compare ``code`` and classes, never text. An error's ``hint`` is data too: a
``Hint``.
"""

from __future__ import annotations

import os
from errno import EACCES, EFBIG, EMFILE, ENFILE, ENOTDIR, EPERM

# Not from typing: a plugin imports this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, Self

    from libcni import ErrorCode

__all__ = [
    "AttachmentExistsError", "CNIError", "CNIErrorGroup", "ConfigError", "Hint", "InterfaceExistsError",
    "InvalidIdentifierError", "InvalidOutputError", "LockTimeoutError",
    "NamespaceMismatchError", "NetworkNotFoundError", "NotAttachedError", "PluginError", "PluginNotFoundError",
    "PluginTimeoutError", "RecordError", "VersionError",
]  # fmt: skip

_SHOWN = 2048
# Members of ErrorCode, whose import takes time.
_TRY_AGAIN_LATER = 11
_HINTS_OF_CODES = {
    1: "in the network's configuration, use a cniVersion that the plugin supports; or install another plugin",
    2: "correct the network's configuration, or install a plugin that supports the field",
    4: "correct the container's ID, the interface name, the namespace or CNI_ARGS",
    7: "correct the network's configuration",
    8: "give the path of the container's network namespace",
    _TRY_AGAIN_LATER: "the plugin asks you to try again later",
}
# A result of many megabytes must not travel in every exception, log record and pickle.
KEPT = 65536
"""The number of characters of a plugin's message, and of bytes of its stdout and stderr, that an error keeps."""
LIMIT_HINTS = {
    EFBIG: "this program may write only small files: raise the limit of its files' size (ulimit -f)",
    EMFILE: "this program has too many open files: raise its limit (ulimit -n)",
    ENFILE: "the system has too many open files: raise the limit (sysctl fs.file-max)",
}
"""The hint for each error number that reports a limit."""


_NEEDED = {
    "attachments": ("cache_dir",), "show": ("cache_dir",), "forget": ("cache_dir",), "networks": ("conf_dir", "path"),
    # Without the client's owner, these commands would detach the attachments that have no owner.
    "gc": ("conf_dir", "path", "cache_dir", "owner"), "repair": ("conf_dir", "path", "cache_dir", "owner"),
}  # fmt: skip
"""The client's settings that these commands need as options. All others need the three directories."""


class Hint:
    """The remedy for an error: a text, and the parts of a ``libcni`` command if there is one for it.

    ``str`` of the hint is a text for programmers: it names the argument of the library's function, and adds to the
    command the directories and owner of the client that raised the error. A program with options of its own can
    build another text from the fields.

    Attributes:
        text (str): what to do, in words. ``{argument}`` in it stands for the argument.
        command (str): the command of ``libcni`` that does it, such as ``del``, ``forget`` or ``doctor``; "" for none.
        container_id (str): the container that the command is about, or "".
        ifname (str): the interface that the command is about, or "".
        network (str): the network that the command is about, or "".
        options (tuple[str, ...]): further options of the command, such as ``--validate``.
        argument (str): the argument of the failed call that would change the outcome, such as ``on_existing``; "" for
            none.
        value (object): the argument's value; None if the caller has to choose a value.
        client (Mapping[str, str]): the client that raised the error: its ``conf_dir``, ``path`` (with colons between
            the directories), ``cache_dir`` and ``owner``; empty if no client raised it.

    Examples:
        >>> hint = Hint("detach it first", command="del", container_id="web", ifname="eth0")
        >>> print(hint)
        detach it first: libcni del web -i eth0
    """

    client: Mapping[str, str] = {}

    def __init__(  # noqa: PLR0913 - the fields
        self,
        text: str,
        command: str = "",
        *,
        container_id: str = "",
        ifname: str = "",
        network: str = "",
        options: tuple[str, ...] = (),
        argument: str = "",
        value: object = True,
    ) -> None:
        self.text = text
        self.command = command
        self.container_id = container_id
        self.ifname = ifname
        self.network = network
        self.options = options
        self.argument = argument
        self.value = value

    @classmethod
    def about(cls, subject: Any, text: str, command: str, **fields: Any) -> Hint:
        """Return a hint about an attachment: ``subject`` is an error, a record or an Attachment."""
        return cls(
            text, command,
            container_id=subject.container_id, ifname=subject.ifname, network=subject.network, **fields,
        )  # fmt: skip

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}" if self.value is True else f'="{self.value}"'
        words = self.words(self.argument + value)
        command = self.shell_command(self.client)
        return f"{words}: {command}" if command else words

    def __repr__(self) -> str:
        return f"Hint({self.text!r}, {self.command!r})"

    def words(self, argument: str) -> str:
        """Return the hint without its command, with ``argument`` in place of ``{argument}``."""
        return self.text.replace("{argument}", argument) if self.argument else self.text

    def shell_command(self, client: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> str:
        """Return the command for a shell, or "". Settings of ``client`` that differ from the defaults become options.

        ``defaults``: the settings that the command uses without options; None: the built-in ones, which apply if no
        environment variable is set.
        """
        from shlex import join  # plugins start without these

        from libcni._defaults import CACHE_DIR, CONF_DIR, PLUGIN_PATH

        if not self.command:
            return ""
        words = ["libcni", self.command, *filter(None, [self.container_id])]
        for option, name in (("-i", self.ifname), ("-n", self.network)):
            words += [option, name] if name else []
        words += self.options
        defaults = defaults or {"conf_dir": CONF_DIR, "path": PLUGIN_PATH, "cache_dir": CACHE_DIR, "owner": ""}
        for name in _NEEDED.get(self.command, ("conf_dir", "path", "cache_dir")):
            value = client.get(name, defaults[name])
            words += [f"--{name.replace('_', '-')}", value] if value != defaults[name] else []
        return join(words)


class CNIError(Exception):
    r"""Base class of all errors of this library.

    The text of an error is printable: control characters, terminal escapes and lone surrogates in it, which plugins and
    files may contain, are shown as escapes such as ``\x1b``. The fields hold the original values.

    Attributes:
        text (str): the error's text without the hint.
        hint (Hint | None): how to solve the problem. ``str`` of the error contains it.
        client (Mapping[str, str]): the client that raised the error, as in ``Hint``; empty if no client raised it.
        rollback_errors (tuple[CNIError, ...]): the errors of the roll-back of a failed ADD. If it is not empty, the
            attachment's record still exists, and ``str`` says so.
        record_state (str): the state of that record, ``pending`` after an ADD; "" if there are several records or none.

    Examples:
        >>> try:
        ...     cni.network("nowhere")
        ... except CNIError as error:
        ...     print(type(error).__name__)
        NetworkNotFoundError
    """

    rollback_errors: tuple[CNIError, ...] = ()
    record_state: str = ""
    client: Mapping[str, str] = {}

    def __init__(self, message: str, *, hint: Hint | str | None = None) -> None:
        # Documents and plugins contribute to messages. Their texts may have any length, and terminal escapes.
        self.text: str = printable(shorten(message, KEPT))
        super().__init__(self.text)
        self._hint = (Hint(hint) if isinstance(hint, str) else hint) if hint else None

    def __str__(self) -> str:
        text = self.text
        if self.rollback_errors:
            stays = f", and the record stays {self.record_state}" if self.record_state else ""
            text += f"; the roll-back failed{stays}: {'; '.join(error.text for error in self.rollback_errors)}"
        return f"{text} ({printable(str(self.hint))})" if self.hint else text

    @property
    def hint(self) -> Hint | None:
        """How to solve the problem. If the error was raised without a hint, its class may provide it."""
        hint = self._hint or self._usual_hint()
        if hint is not None and self.client:
            hint.client = self.client
        return hint

    @hint.setter
    def hint(self, hint: Hint | None) -> None:
        self._hint = hint

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without a change: a lock is busy, or a plugin asks to try again.

        False for PluginTimeoutError: a plugin that hangs seldom answers the second time. A group is retryable if all
        its errors are.
        """
        return False

    def _usual_hint(self) -> Hint | None:
        return None

    def suggest(self, hint: Hint) -> None:
        """Set ``hint``, but keep an existing hint that has no command: such a hint names the cause."""
        if self._hint is None or self._hint.command:
            self._hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with args, and __init__ would build the text from an already built text.
        from copyreg import __newobj__  # type: ignore[attr-defined] # the stubs lack it

        # A TimeoutError is an OSError, whose __new__ leaves args empty.
        return __newobj__, (type(self), *self.args), {**self.__dict__, "args": self.args}


class ConfigError(CNIError, ValueError):
    """A configuration document cannot be used. Nothing was run and nothing written.

    Attributes:
        problem (str): what is wrong, without the file and the location.
        file (str | None): the document's path; None if the document was not read from a file.
        location (str | None): where in the document, such as ``plugins[1].type`` or ``line 3, column 7``.

    Examples:
        >>> try:
        ...     NetworkConfigList.from_bytes(b'{"cniVersion": "1.0.0", "name": "db", "plugins": "bridge"}')
        ... except ConfigError as error:
        ...     print(error.location)
        plugins
    """

    def __init__(
        self, problem: str, *, file: str | None = None, location: str | None = None, hint: Hint | str | None = None
    ) -> None:
        super().__init__(": ".join([*filter(None, (file, location)), problem]), hint=hint)
        self.problem = problem
        self.file = file
        self.location = location


class NetworkNotFoundError(ConfigError, LookupError):
    """No configuration has the requested network name.

    Attributes:
        network (str | None): the requested name; None if any network was accepted.
        known (tuple[str, ...]): the names of the networks that exist.
    """

    def __init__(
        self,
        problem: str,
        *,
        network: str | None = None,
        known: tuple[str, ...] = (),
        file: str | None = None,
        hint: Hint | str | None = None,
    ) -> None:
        super().__init__(problem, file=file, hint=hint)
        self.network = network
        self.known = known

    def _usual_hint(self) -> Hint | None:
        if not self.known:
            return None
        from difflib import get_close_matches  # plugins start without it

        similar = get_close_matches(self.network or "", self.known, 1)
        known = f"the known networks: {', '.join(self.known)}"
        return Hint(f"did you mean {similar[0]}? T{known[1:]}" if similar else known)


class InvalidIdentifierError(CNIError, ValueError):
    """A name breaks a rule of the specification (spec 1.1.0, sections 1 and 2). Nothing was run.

    Attributes:
        kind (str): the kind of name: ``network name``, ``container ID``, ``interface name``,
            ``plugin type``, ``CNI_ARGS key`` ...
        value (object): the invalid value.
        rule (str): the rule that the value breaks, in words.
    """

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"invalid {kind} {short_repr(value, 200)}: {rule}")
        self.kind = kind
        self.value = value
        self.rule = rule


class VersionError(CNIError, ValueError):
    """A spec version is malformed, unknown to this library, or too old for the verb.

    Attributes:
        version (object): the version that the caller or the document gave.
    """

    def __init__(self, message: str, *, version: object = None, hint: Hint | str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.version = version


class PluginNotFoundError(CNIError):
    """A plugin's executable is not on CNI_PATH. No plugin of the chain was run.

    Attributes:
        plugin (str): the plugin's type.
        searched (tuple[str, ...]): the directories that were searched, in order.
        rejected (tuple[str, ...]): files of that name that cannot be run, each with the reason.
    """

    def __init__(
        self,
        plugin: str,
        searched: tuple[str, ...] = (),
        rejected: tuple[str, ...] = (),
        *,
        hint: Hint | str | None = None,
    ) -> None:
        if not searched:
            text = f'plugin "{plugin}": no plugin directories given (CNI_PATH is empty)'
        else:
            text = f'plugin "{plugin}" not found in {", ".join(searched)}'
        if rejected:
            text += f" (rejected: {'; '.join(rejected)})"
        super().__init__(text, hint=hint)
        self.plugin = plugin
        self.searched = searched
        self.rejected = rejected

    def _usual_hint(self) -> Hint | None:
        text = "install the plugin there, or pass its directory with {argument}"
        text = text if self.searched else "pass a plugin directory with {argument}"
        return Hint(text, argument="path", value=None)


class PluginError(CNIError):
    """A plugin failed, or could not be started.

    The arguments are a sentence, the plugin's ``Invocation`` (None if the plugin is unknown) and its ``Outcome`` (None
    if the plugin was not started, or its end is unknown).

    Attributes:
        problem (str): what went wrong, in one sentence.
        plugin (str): the plugin's type.
        path (str): the path of the plugin's executable.
        verb (str): the verb that the plugin was called with.
        network (str): the network's name, "" if the verb has none.
        container_id (str): the container's ID, "" if the verb has none.
        ifname (str): the interface's name, "" if the verb has none.
        code (int | None): the code of the plugin's error document (spec 1.1.0, section 5, Error); None if the plugin
            printed none.
        msg (str): the error document's message, or "". The first 65,536 characters.
        details (str): the error document's details, or "". The first 65,536 characters.
        stdout (str): the plugin's stdout, undecodable bytes escaped. The first 65,536 bytes.
        stderr (str): the end of the plugin's stderr, undecodable bytes escaped.
        exit_status (int | None): the plugin's exit status; None if a signal ended it, or nothing ran.
        signal (int | None): the number of the signal that ended the plugin.
        seconds (float): how long the plugin ran.
        was_run (bool): False if the plugin certainly did not run, for example because its file is no program.

    Examples:
        >>> executor.answers["bridge", "ADD"] = error_outcome(11, "no free address")
        >>> try:
        ...     cni.add_network_list(net, rt)
        ... except PluginError as error:
        ...     print(error.plugin, error.verb, error.code, error.msg, error.retryable)
        bridge ADD 11 no free address True
    """

    # The text is built here once, from fields. Callers compare fields, so the text may change between releases.
    # The fields are copied: an error travels to logs and other processes, and the call's configuration may be secret.
    def __init__(  # noqa: PLR0913 - the parts of an error document
        self,
        problem: str,
        invocation: Any = None,  # not Invocation: this module imports no other package
        outcome: Any = None,
        *,
        code: int | None = None,
        msg: str = "",
        details: str = "",
        was_run: bool = True,
        hint: Hint | str | None = None,
    ) -> None:
        self.problem = problem
        self.plugin: str = invocation.plugin if invocation else ""
        self.path: str = invocation.path if invocation else ""
        self.verb: str = invocation.verb if invocation else ""
        self.network: str = invocation.network if invocation else ""
        self.container_id: str = invocation.container_id if invocation else ""
        self.ifname: str = invocation.ifname if invocation else ""
        self.code = code
        self.msg: str = shorten(msg, KEPT)
        self.details: str = shorten(details, KEPT)
        self.stdout: str = _decoded_start(outcome.stdout) if outcome else ""
        self.stderr: str = outcome.stderr.decode(errors="backslashreplace") if outcome else ""
        self.exit_status: int | None = outcome.exit_status if outcome else None
        self.signal: int | None = outcome.signal if outcome else None
        self.seconds: float = outcome.seconds if outcome else 0.0
        self.was_run = was_run
        named = (("network", self.network), ("container", self.container_id), ("interface", self.ifname))
        context = "; ".join(filter(None, (self.verb, ", ".join(f"{word} {name}" for word, name in named if name))))
        text = problem
        if self.plugin:  # Result.from_bytes reads a document without a known plugin
            text = f'plugin "{self.plugin}" failed{f" ({context})" if context else ""}: {problem}'
        # The end of stderr: a panic or the last log line usually names the cause.
        if self.stderr.strip():
            text += f"; stderr: {shorten(self.stderr.strip(), 500, end=True)!r}"
        super().__init__(text, hint=hint)

    @property
    def well_known(self) -> ErrorCode | None:
        """The code as a member of the spec's table, or None.

        The sign is ignored: the 0.4.0 specification prints a list dash before each code, and some plugins took it for
        a minus.
        """
        from libcni import ErrorCode

        # A code may be any integer; ErrorCode(...) would raise ValueError for an unknown one.
        if self.code is None or abs(self.code) not in ErrorCode.__members__.values():
            return None
        return ErrorCode(abs(self.code))

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later: the plugin's code is 11, or a known temporary fault is the cause."""
        from libcni._known_faults import fault_of  # few calls fail

        fault = fault_of(self)
        return self.well_known == _TRY_AGAIN_LATER or (fault is not None and fault.cure == "again")

    @property
    def known_fault(self) -> str:
        """The plugin's fault if its CHECK is known to fail for healthy containers; else "".

        Attaching such a container again does not help.
        """
        from libcni._known_faults import fault_of

        fault = fault_of(self)
        return fault.meaning if fault is not None and fault.cure == "none" else ""

    def _usual_hint(self) -> Hint | None:
        from libcni._known_faults import fault_of

        fault = fault_of(self)
        if fault is not None and fault.cure == "none":
            text = "the container may be healthy, and attaching it again does not help"
            return Hint(f"the plugin has a known fault: {fault.meaning}; {text}")
        if fault is not None and fault.cure == "doctor":
            return Hint(f"{fault.meaning}; find out the cause, and what to do", "doctor")
        if self.rollback_errors:
            return Hint.about(self, "correct the cause, then detach the container", "del")
        if fault is not None:
            return Hint(f"{fault.meaning}: repeat the call")
        return self._hint_of_end()

    def _hint_of_end(self) -> Hint | None:
        """Return the hint for the plugin's code, or for how it ended."""
        if self.code in _HINTS_OF_CODES:
            return Hint(_HINTS_OF_CODES[self.code])
        if self.signal is not None:
            return Hint(
                "find out why the plugin was killed; if by SIGKILL, see whether the kernel's log reports low memory"
            )
        if self.verb == "CHECK":
            return Hint("see what is wrong, and how to repair it", "doctor", options=("--check",))
        # 50 and 51 are the codes of STATUS (spec 1.1.0, section 2). With another code the plugin may not know the verb.
        if self.verb == "STATUS" and self.code not in {50, 51} and self.network:
            text = "see whether the plugin supports the network's spec version"
            return Hint(text, "networks", options=("--validate", self.network))
        return None


class PluginTimeoutError(PluginError, TimeoutError):
    """A plugin was stopped at its deadline: SIGTERM, then SIGKILL 0.4 s later (``ProcessExecutor(grace=...)``).

    A plugin whose turn came after the deadline was not started.

    Attributes: those of PluginError. ``stderr`` and ``seconds`` cover the time until the plugin was stopped.
    """

    @property
    def retryable(self) -> bool:
        """False, whatever the plugin has written to stderr: a plugin that hangs seldom answers the second time."""
        return False

    def _usual_hint(self) -> Hint | None:
        if self.rollback_errors:
            return super()._usual_hint()
        # VERSION does no work. A plugin that does not answer at once is broken, and more time does not help.
        if self.verb == "VERSION":
            return Hint("install the plugin again")
        return Hint("a higher {argument} gives the plugin more time", argument="timeout", value=None)


class InvalidOutputError(PluginError):
    """A plugin exited with 0, but its stdout is not a result: empty, not JSON, wrong types, or too large."""


class _AttachmentError(CNIError):
    """Base class of the errors of one attachment. A subclass names the fields that it uses."""

    def __init__(  # noqa: PLR0913 - the attachment's fields
        self,
        message: str,
        *,
        container_id: str = "",
        ifname: str = "",
        network: str = "",
        netns: str = "",
        recorded_netns: str = "",
        state: str = "",
        hint: Hint | str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.container_id = container_id
        self.ifname = ifname
        self.network = network
        self.netns = netns
        self.recorded_netns = recorded_netns
        self.state = state


class AttachmentExistsError(_AttachmentError):
    """ADD was refused: the container already has the interface, or another container publishes the host port.

    With ``strict``, also if a program or a firewall rule uses the host port. Nothing was run.

    Attributes:
        container_id (str): the container of the ADD, or the container that publishes the host port.
        ifname (str): the interface's name.
        network (str): the network that the interface is attached to now.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> try:
        ...     cni.add_network_list(net, rt)
        ... except AttachmentExistsError as error:
        ...     print(error.container_id, error.ifname, error.network)
        c1 eth0 dbnet
    """

    def _usual_hint(self) -> Hint | None:
        text = "use {argument}, or detach the container first"
        return Hint.about(self, text, "del", argument="on_existing", value="replace")


class InterfaceExistsError(AttachmentExistsError):
    """The namespace has an interface of this name that no record names. Nothing was run.

    Another program may use the interface. The plugins of an ADD would fail, and the roll-back would delete the
    interface. With ``DelPolicy(refuse_unrecorded=True)`` DEL raises this error too, because it would free the
    interface's address.

    Attributes:
        container_id (str): the container of the verb.
        ifname (str): the interface's name.
        network (str): the network of the verb.
        netns (str): the network namespace that has the interface.
    """

    def _usual_hint(self) -> Hint | None:
        from shlex import join  # plugins start without it

        directory, _, name = self.netns.rpartition("/")
        is_named = directory in {"/run/netns", "/var/run/netns"}
        ip = ("ip", "-n", name) if is_named else ("nsenter", f"--net={self.netns}", "ip")
        text = "choose another name, let the plugins use the interface ({argument}), or remove it if nobody uses it: "
        return Hint(text + join((*ip, "link", "del", self.ifname)), argument="on_existing", value="allow")


class NamespaceMismatchError(_AttachmentError):
    """The namespace is not the recorded one.

    DEL and CHECK raise this error before any plugin runs, if both namespaces exist. ADD raises it if the container is
    attached in another namespace, because plugins know a container only by its ID. If the namespace is replaced while
    an ADD or a reload runs, no further plugin runs, and the container is not attached.

    Attributes:
        container_id (str): the container.
        ifname (str): the interface's name.
        network (str): the network.
        netns (str): the namespace that the caller gave.
        recorded_netns (str): the namespace of the recorded attachment.
    """

    def _usual_hint(self) -> Hint | None:
        text = "detach the container from the recorded namespace, or use the given namespace ({argument})"
        return Hint.about(self, text, "del", argument="use_given")


class NotAttachedError(_AttachmentError):
    """CHECK or a reload was refused: no completed ADD is on record, or its namespace or interface no longer exists.

    Nothing was run.

    Attributes:
        container_id (str): the container.
        ifname (str): the interface's name.
        network (str): the network.
        state (str): the state of the attachment, such as ``pending``, ``gone`` or ``lost-path``; "" if there is no
            record.
    """

    def _usual_hint(self) -> Hint | None:
        if not self.state:
            return Hint("see the recorded attachments", "attachments")
        return Hint.about(self, "detach the container, then attach it again", "del")


class LockTimeoutError(CNIError, TimeoutError):
    """Another verb, thread or process held a lock until the deadline. Nothing was run, except in GC, which locks twice.

    Attributes:
        what (str): the locked object, for example ``container c1`` or ``network dbnet``.
        path (str): the lock file.
        seconds (float): how long the caller waited.
    """

    def __init__(self, message: str, *, what: str = "", path: str = "", seconds: float = 0.0) -> None:
        super().__init__(message)
        self.what = what
        self.path = path
        self.seconds = seconds

    def _usual_hint(self) -> Hint | None:
        # Without a path, other operations of the same client were the reason.
        return Hint("see which program holds the lock", "doctor") if self.path else None

    @property
    def retryable(self) -> bool:
        """True: later, the lock may be free."""
        return True


class RecordError(CNIError):
    """A record or its directory cannot be read or written.

    Attributes:
        path (str): the file or directory.
        errno (int | None): the operating system's error number.
        missing (str): the part that a DEL lacks: ``attachment`` if the record does not name the attachment,
            ``configuration`` if it holds no usable configuration, ``namespace`` if the record cannot be read and the
            caller gave no namespace; else "".

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> import os
        >>> [attachment] = cni.get_cached_attachments()
        >>> os.truncate(attachment.path, 1)
        >>> try:
        ...     cni.check_network_list(net, rt)
        ... except RecordError as error:
        ...     print(error.path == attachment.path)
        True
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        errno: int | None = None,
        missing: Literal["", "attachment", "configuration", "namespace"] = "",
        hint: Hint | str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.errno = errno
        self.missing = missing

    def _usual_hint(self) -> Hint | None:
        if self.missing == "attachment":
            text = "detach the container with libcni del NETWORK NETNS, or move the record aside, to the folder corrupt"
            return Hint(text, "repair", options=("--yes",))
        if self.errno in {EACCES, EPERM} and os.geteuid():
            return Hint("run this program as root")
        if self.errno in LIMIT_HINTS:
            return Hint(LIMIT_HINTS[self.errno])
        if self.errno == ENOTDIR:
            return Hint("a file or a dangling link stands where a directory is needed; see which", "doctor")
        return Hint("see what is wrong with the disk", "doctor") if self.errno else None


class CNIErrorGroup(CNIError, ExceptionGroup[CNIError]):  # noqa: N818 - named like ExceptionGroup
    """All errors of an operation that continues after an error: GC, a tear-down.

    ``exceptions`` holds them; ``except*`` and ``split`` work as for any ExceptionGroup.

    Attributes:
        report (Any): the report of the operation, with its successes: a GCReport, a DelReport, or a report of the
            manager; None if the operation has no report.

    Examples:
        >>> group = CNIErrorGroup("2 of 9 attachments stay", [RecordError("disk full"), CNIError("no such file")])
        >>> [type(error).__name__ for error in group.exceptions]
        ['RecordError', 'CNIError']
    """

    report: Any = None

    def __new__(cls, message: str, errors: list[CNIError] | tuple[CNIError, ...]) -> Self:
        """Create the group; ``errors`` must not be empty."""
        return super().__new__(cls, printable(message), list(errors))

    def __init__(self, message: str, errors: list[CNIError] | tuple[CNIError, ...]) -> None:
        CNIError.__init__(self, message)
        # pickle and copy call __new__ with args, so they must hold the errors and not the text alone.
        self.args: tuple[Any, ...] = (self.message, list(errors))

    @classmethod
    def raise_any(cls, message: str, errors: list[CNIError] | tuple[CNIError, ...], report: object = None) -> None:
        """Raise a group of ``errors`` with ``report`` if there are any; ``{}`` in ``message`` becomes their number."""
        if errors:
            group = cls(message.format(len(errors)), errors)
            group.report = report
            raise group

    @property
    def retryable(self) -> bool:
        """Whether all errors of the group are retryable."""
        return all(isinstance(error, CNIError) and error.retryable for error in self.exceptions)

    def derive(self, excs: Any) -> CNIErrorGroup:  # type: ignore[override]  # members are never BaseExceptions
        """Return a group of the same kind with other members (used by ``split`` and ``except*``)."""
        return CNIErrorGroup(self.message, list(excs))

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {error}" for error in self.exceptions)])


def name_client(error: BaseException | None, client: Mapping[str, str]) -> None:
    """Store in an error, and in the errors that it contains, the client that raised it."""
    if isinstance(error, CNIError) and not error.client:
        error.client = client
        for inner in (*error.rollback_errors, *(error.exceptions if isinstance(error, CNIErrorGroup) else ())):
            name_client(inner, client)


def printable(text: str) -> str:
    r"""Return ``text`` with escapes for the characters that a terminal does not show as themselves.

    These are control characters (terminal escapes begin with one), lone surrogates, which no encoding can carry, and
    characters that reorder or hide others. Line feeds and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


def _decoded_start(data: bytes) -> str:
    # A plugin can print megabytes, and errors travel to logs and other processes.
    text = data[:KEPT].decode(errors="backslashreplace")
    return text if len(data) <= KEPT else f"{text}… ({len(data) - KEPT} more bytes)"


def shorten(text: str, limit: int = _SHOWN, *, end: bool = False) -> str:
    """Return the first ``limit`` characters of ``text``, or the last if ``end``, and the number of the others."""
    if len(text) <= limit:
        return text
    cut = f"… ({len(text) - limit} more characters)"
    return f"{cut} {text[-limit:]}" if end else f"{text[:limit]}{cut}"


def short_repr(value: object, limit: int = 80) -> str:
    """Return ``repr(value)`` shortened, or the type's name if ``repr`` fails."""
    try:
        return shorten(repr(value), limit)
    except (ValueError, RecursionError):
        # ValueError: an integer with more digits than sys.get_int_max_str_digits(). RecursionError: a deep list.
        return f"<{type(value).__name__} too large to show>"


def some(texts: Sequence[str], separator: str = ", ", most: int = 3) -> str:
    """Join the first ``most`` texts, and say how many more there are: ``a, b, c, and 2 more``."""
    more = f"{separator}and {len(texts) - most} more" if len(texts) > most else ""
    return f"{separator.join(texts[:most])}{more}"


def counted(number: int, noun: str) -> str:
    """Return ``1 record`` or ``2,000 records``."""
    ending = "" if number == 1 else "es" if noun.endswith("ss") else "s"
    return f"{number:,} {noun}{ending}"
