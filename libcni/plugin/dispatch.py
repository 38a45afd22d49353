"""Run a plugin: read its environment and stdin, call its function, and print one document on stdout."""

from __future__ import annotations

import os
import sys
from _thread import _local, allocate_lock
from io import BytesIO, StringIO

from libcni.config.versions import ALL_VERSIONS, check_known
from libcni.errors import CNIError
from libcni.plugin.failure import VerbError, error_document
from libcni.plugin.fastjson import dumps
from libcni.plugin.received import (
    check_config,
    check_environment,
    check_netns,
    decode_document,
    read_stdin,
    version_of,
)
from libcni.plugin.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO, NoReturn, TextIO, TypeAlias, TypeVar

    from libcni.plugin.results import PluginResult

    Function: TypeAlias = Callable[[Request], PluginResult | Mapping[str, Any] | None]
    FunctionT = TypeVar("FunctionT", bound=Function)

__all__ = ["Plugin"]


class Plugin:
    """A CNI plugin: it answers each verb with the function that is registered for it.

    ADD and DEL need a function. CHECK, GC and STATUS succeed without one. A function gets a ``Request``. If it raises a
    ``VerbError``, that becomes the error document; any other exception becomes an error document with code 999.

    Args:
        name: the plugin's type.
        versions: the spec versions that it supports.
        about: one line for a person who starts the plugin by hand.
        ipam: whether the plugin delegates to the IPAM plugin in ``ipam.type`` of its configuration (spec 1.1.0, section
            4). ADD's function calls ``request.ipam_add()``; CHECK, DEL, GC and STATUS are forwarded. A configuration
            without an ``ipam`` section has no such plugin.

    Raises:
        VersionError: if the specification does not have a version.
        ValueError: if ``versions`` is empty.

    Examples:
        >>> from libcni.testing import call_plugin
        >>> plugin = Plugin("fixed")
        >>> @plugin.add
        ... def add(request):
        ...     request.result.add_ip("10.1.0.5/16", gateway="10.1.0.1")
        >>> @plugin.delete
        ... def delete(request):
        ...     pass  # nothing is kept
        >>> call_plugin(plugin, "ADD", {"cniVersion": "1.1.0", "name": "net", "type": "fixed"}).document["ips"]
        [{'address': '10.1.0.5/16', 'gateway': '10.1.0.1'}]
    """

    def __init__(
        self, name: str, *, versions: Sequence[str] = ALL_VERSIONS, about: str = "", ipam: bool = False
    ) -> None:
        self.name = name
        self.versions: tuple[str, ...] = tuple(check_known(version) for version in versions)
        if not self.versions:
            raise ValueError(f"plugin {name} must support at least one version of the specification")
        self.about: str = about or f"CNI plugin {name}"
        self.ipam: bool = ipam
        self._functions: dict[str, Function] = {}

    def add(self, function: FunctionT) -> FunctionT:
        """Register the function for ADD (spec 1.1.0, section 2, ADD).

        It fills ``request.result``, or returns the result: a PluginResult, or a mapping with the specification's keys.
        """
        return self._register("ADD", function)

    def delete(self, function: FunctionT) -> FunctionT:
        """Register the function for DEL (spec 1.1.0, section 2, DEL).

        It must succeed if nothing is left to undo, and if there is no namespace.
        """
        return self._register("DEL", function)

    def check(self, function: FunctionT) -> FunctionT:
        """Register the function for CHECK (spec 1.1.0, section 2, CHECK).

        It raises if something that ADD made no longer exists.
        """
        return self._register("CHECK", function)

    def gc(self, function: FunctionT) -> FunctionT:
        """Register the function for GC (spec 1.1.0, section 2, GC).

        It frees the resources of attachments that are not in ``request.valid_attachments``.
        """
        return self._register("GC", function)

    def status(self, function: FunctionT) -> FunctionT:
        """Register the function for STATUS (spec 1.1.0, section 2, STATUS).

        It raises a VerbError with code 50 or 51 if an ADD could not be served.
        """
        return self._register("STATUS", function)

    def _register(self, verb: str, function: FunctionT) -> FunctionT:
        # A second function is more often a copied decorator than an intended replacement.
        if verb in self._functions:
            raise ValueError(f"plugin {self.name} has a function for {verb} already")
        self._functions[verb] = function
        return function

    def run(self) -> NoReturn:
        """Answer the call for which this process was started, and exit: with 0, or with 1 and an error document.

        Anything else that writes to file descriptor 1, child processes included, writes to stderr instead.
        """
        with os.fdopen(_claim_stdout(), "w", encoding="utf-8") as stdout:
            status = self.main(stdout=stdout)
        sys.exit(status)

    def main(
        self,
        env: Mapping[str, str] | None = None,
        stdin: BinaryIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> int:
        """Answer one call and return the exit status.

        During the call this thread's ``sys.stdout`` and ``sys.stderr`` are ``stderr``: a ``print`` does not spoil the
        document. A daemon may answer several calls in several threads at once.

        Args:
            env: the environment; None: that of the process, and so for the streams.
            stdin: the configuration.
            stdout: gets the document.
            stderr: gets anything else.
        """
        env = os.environ if env is None else env
        stdout, stderr = stdout or sys.stdout, stderr or sys.stderr or StringIO()
        if not env.get("CNI_COMMAND"):
            stderr.write(f"{self.about}\nCNI protocol versions supported: {', '.join(self.versions)}\n")
            return 0
        # Before the author's function runs: its prints must not mix with the document.
        with _Prints(stderr):
            # sys.stdin is None if descriptor 0 was closed when the process started.
            stdin = stdin or (sys.stdin.buffer if sys.stdin else BytesIO())
            status, text = self._answer(env, stdin, stderr)
        stdout.write(text)
        stdout.flush()
        return status

    def _answer(self, env: Mapping[str, str], stdin: BinaryIO, stderr: TextIO) -> tuple[int, str]:
        verb, version = env["CNI_COMMAND"], self.versions[-1]
        try:
            raw = b""
            config: dict[str, Any] = {}
            problem: VerbError | None = None
            try:
                # Read stdin before anything else: a runtime may start this process before it has the configuration.
                raw = read_stdin(verb, stdin)
                config = decode_document(raw)
                version = version_of(config)
            except VerbError as error:
                problem = error  # a problem with the environment is reported first
            for needed in ("ADD", "DEL"):
                if needed not in self._functions:
                    raise VerbError(f"plugin {self.name} has no function for {needed}")
            check_environment(verb, env)
            if problem is not None and (verb != "VERSION" or raw.strip()):
                raise problem
            return 0, self._serve(verb, env, config, raw)
        except BaseException as error:  # noqa: BLE001 - also sys.exit() and Ctrl-C must leave one document
            # A VerbError, or the error of a delegate, says what failed. For all others the author needs the line.
            if not isinstance(error, CNIError):
                from traceback import print_exception

                print_exception(error, file=stderr)
            return 1, dumps(error_document(error, version))

    def _serve(self, verb: str, env: Mapping[str, str], config: dict[str, Any], stdin: bytes) -> str:
        """Run ``verb`` and return the text for stdout."""
        if verb == "VERSION":
            version = config.get("cniVersion") or self.versions[-1]
            return dumps({"cniVersion": version, "supportedVersions": [*self.versions]})
        check_config(verb, config, self.versions)
        if verb in {"ADD", "DEL"}:
            check_netns(env)
        request = Request(verb, env, config, stdin, ipam=self.ipam)
        if verb != "ADD":
            self._forward(request)
            return ""
        try:
            from libcni.plugin.results import document_of  # other verbs seldom need results, whose import takes 0.5 ms

            returned = self._functions["ADD"](request)
            return dumps(document_of(request.result if returned is None else returned, request.version))
        except BaseException:
            # Undo the delegate's ADD now, because a runtime may never send a DEL.
            request.undo_delegated()
            raise

    def _forward(self, request: Request) -> None:
        """Run a verb other than ADD: the plugin's own function, and the IPAM plugin."""
        steps: list[Callable[[], object]] = []
        own, ipam_type = self._functions.get(request.verb), self._ipam_type(request)
        if ipam_type:
            steps.append(lambda: request.forward(ipam_type))
        if own is not None:
            steps.append(lambda: own(request))
        if request.verb == "GC":
            steps.reverse()  # GC frees the plugin's own resources first; DEL the address first, as Go's plugins do
        errors: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as error:
                if request.verb not in {"DEL", "GC"}:
                    raise
                # DEL and GC must free as much as they can.
                errors.append(error)
        for other in errors[1:]:
            sys.stderr.write(f"{request.verb} failed as well: {other}\n")
        if errors:
            raise errors[0]

    def _ipam_type(self, request: Request) -> str:
        try:
            return request.ipam_type if self.ipam else ""
        except VerbError:
            if request.verb == "DEL":
                return ""  # ADD refuses such a configuration, so nothing was allocated with it
            raise


class _Prints:
    """A context in which what this thread prints goes to the stream of its call.

    Threads share ``sys.stdout``. While any call runs, it forwards to the stream of the thread that prints.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._outer = getattr(_calls, "stream", None)
        _calls.stream = self._stream
        with _lock:
            if not _kept:
                _kept.extend((sys.stdout, sys.stderr))
                sys.stdout, sys.stderr = map(_StreamOfThread, _kept)
            _running.append(self)

    def __exit__(self, *error: object) -> None:
        _calls.stream = self._outer
        with _lock:
            _running.remove(self)
            if not _running:
                sys.stdout, sys.stderr = _kept
                _kept.clear()


class _StreamOfThread:
    """Stands for ``sys.stdout`` or ``sys.stderr``; a thread without a call has the process's own."""

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_calls, "stream", None) or self._own, name)


_calls, _lock = _local(), allocate_lock()
_kept: list[Any] = []
_running: list[_Prints] = []


def _claim_stdout() -> int:
    """Return a descriptor for the real stdout, and make descriptor 1 a copy of stderr."""
    # Descriptors, not only sys.stdout: programs that the plugin starts inherit descriptor 1.
    _fill_stdio()
    claimed = os.dup(1)
    os.dup2(2, 1)
    return claimed


def _fill_stdio() -> None:
    """Open those of the descriptors 0, 1 and 2 that are closed: otherwise the copy of stdout could become stderr."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
