"""Run a plugin: from its environment and stdin to its function, and from there to one document on stdout."""

from __future__ import annotations

import os
import sys
from io import BytesIO, StringIO

from libcni.config.versions import ALL_VERSIONS, check_known
from libcni.errors import CNIError
from libcni.plugin.environment import check_environment, check_netns
from libcni.plugin.failure import DECODING_FAILURE, INVALID_NETWORK_CONFIG, VerbError, error_document
from libcni.plugin.fastjson import dumps
from libcni.plugin.reading import check_name, check_version, decode_document, read, read_version_request, version_of
from libcni.plugin.request import Request
from libcni.plugin.results import PluginResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, BinaryIO, Literal, NoReturn, TextIO, TypeAlias, TypeVar

    Function: TypeAlias = Callable[[Request], PluginResult | Mapping[str, Any] | None]
    FunctionT = TypeVar("FunctionT", bound=Function)
    Delegates: TypeAlias = Callable[[Request], Iterable[tuple[str, Mapping[str, Any] | None]]]

__all__ = ["Plugin"]

_ERROR_KEYS = frozenset({"cniVersion", "code", "msg", "details"})


class Plugin:
    """A CNI plugin: it answers each verb with the function that is registered for it.

    ADD and DEL need a function. CHECK, GC and STATUS succeed without one. A function gets a ``Request``. If it raises a
    ``VerbError``, that becomes the error document; any other exception becomes an error document with code 999.

    Args:
        name: the plugin's type.
        versions: the spec versions that it supports.
        about: one line for a person who starts the plugin by hand.
        ipam: whether the plugin delegates to the IPAM plugin in ``ipam.type`` of its configuration (spec 1.1.0, section
            4). CHECK, DEL, GC and STATUS are then forwarded to it; ADD's function calls ``request.ipam_add()``.
            ``"optional"``: only if the configuration has an ``ipam`` section.
        delegates: a function that returns the other plugins to forward CHECK, DEL, GC and STATUS to: pairs of a type
            and its configuration, or None for this plugin's own. ADD's function calls ``request.delegate_add``.

    Raises:
        VersionError: if a version is not one of the specification.
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
        self,
        name: str,
        *,
        versions: Sequence[str] = ALL_VERSIONS,
        about: str = "",
        ipam: bool | Literal["optional"] = False,
        delegates: Delegates | None = None,
    ) -> None:
        self.name = name
        self.versions: tuple[str, ...] = tuple(check_known(version) for version in versions)
        if not self.versions:
            raise ValueError(f"plugin {name} must support at least one version of the specification")
        self.about: str = about or f"CNI plugin {name}"
        self.ipam: bool | Literal["optional"] = ipam
        self.delegates: Delegates | None = delegates
        self._functions: dict[str, Function] = {}

    def add(self, function: FunctionT) -> FunctionT:
        """Register the function for ADD (spec 1.1.0, section 2, ADD).

        It fills ``request.result``, or returns the result: a PluginResult, or a mapping with the specification's keys.
        """
        return self._register("ADD", function)

    def delete(self, function: FunctionT) -> FunctionT:
        """Register the function for DEL (spec 1.1.0, section 2, DEL).

        It must succeed if nothing is left to undo, and without a namespace.
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
        # The second of two functions is more often a decorator that was copied than one that replaces the first.
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

        During the call ``sys.stdout`` and ``sys.stderr`` are ``stderr``: a ``print`` does not spoil the document.

        Args:
            env: the environment; this and the streams default to those of the process.
            stdin: the configuration.
            stdout: gets the document.
            stderr: gets anything else.
        """
        env = os.environ if env is None else env
        stdout, stderr = stdout or sys.stdout, stderr or sys.stderr or StringIO()
        if not env.get("CNI_COMMAND"):
            stderr.write(f"{self.about}\nCNI protocol versions supported: {', '.join(self.versions)}\n")
            return 0
        # Before any function of the author runs: one print would make two documents of the answer.
        kept = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = stderr
        try:
            # sys.stdin is None if descriptor 0 was closed when the process started.
            stdin = stdin or (sys.stdin.buffer if sys.stdin else BytesIO())
            status, text = self._answer(_Input(env, stdin), stderr)
        finally:
            sys.stdout, sys.stderr = kept
        stdout.write(text)
        stdout.flush()
        return status

    def _answer(self, call: _Input, stderr: TextIO) -> tuple[int, str]:
        try:
            # First of all: a runtime may have started this process before it has the configuration.
            call.read()
            for verb in ("ADD", "DEL"):
                if verb not in self._functions:
                    raise VerbError(f"plugin {self.name} has no function for {verb}")
            check_environment(call.verb, call.env)
            if call.verb == "VERSION":
                config = call.config() if call.stdin.strip() else {}
                version = config.get("cniVersion") or self.versions[-1]
                return 0, _encode({"cniVersion": version, "supportedVersions": [*self.versions]})
            request = call.request(self.versions)
            if request.verb == "ADD":
                return 0, self._add(request)
            self._serve(request)
        except BaseException as error:  # noqa: BLE001 - also sys.exit() and Ctrl-C must leave one document
            # An error of this library explains itself. Any other one is a defect, whose author needs the line.
            if not isinstance(error, CNIError):
                from traceback import print_exception

                print_exception(error, file=stderr)
            return 1, _encode(error_document(error, call.version or self.versions[-1]))
        return 0, ""

    def _add(self, request: Request) -> str:
        ipam_type = self._ipam_type(request)
        try:
            returned = self._functions["ADD"](request)
            if ipam_type and not request.has_added(ipam_type):
                raise VerbError(f"plugin {self.name} declares ipam, and its ADD does not call request.ipam_add()")
            document = _result_document(request.result if returned is None else returned, request.version)
            return _encode(document)
        except BaseException:
            # A later DEL would also undo it, but may never come.
            request.undo_delegated()
            raise

    def _serve(self, request: Request) -> None:
        """Run a verb other than ADD: the plugin's own function, and the delegates."""
        # A step is a delegate's type and configuration, or None for the plugin's own function.
        steps: list[tuple[str, Mapping[str, Any] | None] | None] = [*self._declared(request)]
        # GC frees the plugin's own resources first; DEL the address first, as Go's plugins do.
        steps.insert(0 if request.verb == "GC" else len(steps), None)
        # All delegates are known before the first runs: a failure of delegates() must not leave half of them done.
        errors: list[Exception] = []
        for step in steps:
            try:
                if step is not None:
                    request.forward(*step)
                elif request.verb in self._functions:
                    self._functions[request.verb](request)
            except Exception as error:
                if request.verb not in {"DEL", "GC"}:
                    raise
                # DEL and GC free as much as they can.
                errors.append(error)
        for other in errors[1:]:
            sys.stderr.write(f"{request.verb} failed as well: {other}\n")
        if errors:
            raise errors[0]

    def _declared(self, request: Request) -> list[tuple[str, Mapping[str, Any] | None]]:
        declared = [*self.delegates(request)] if self.delegates else []
        ipam_type = self._ipam_type(request)
        return [(ipam_type, None), *declared] if ipam_type else declared

    def _ipam_type(self, request: Request) -> str:
        if not self.ipam:
            return ""
        try:
            if not request.ipam_type and self.ipam != "optional":
                raise VerbError('missing key "ipam"', code=INVALID_NETWORK_CONFIG)
        except VerbError:
            if request.verb == "DEL":
                return ""  # ADD refuses such a configuration, so nothing was allocated with it
            raise
        return request.ipam_type


class _Input:
    """The environment and stdin of a call, before they are known to be valid."""

    def __init__(self, env: Mapping[str, str], stream: BinaryIO) -> None:
        self.env = env
        self.verb = env["CNI_COMMAND"]
        self.version = ""
        self.stdin = b""
        self._stream = stream
        self._problem: VerbError | None = None
        self._config: dict[str, Any] = {}

    def read(self) -> None:
        """Read stdin; keep a problem with it, because a problem with the environment is reported first."""
        try:
            self.stdin = read_version_request(self._stream) if self.verb == "VERSION" else read(self._stream)
            self._config = decode_document(self.stdin)
            self.version = version_of(self._config)
        except VerbError as error:
            self._problem = error

    def config(self) -> dict[str, Any]:
        """Return the configuration; raises the VerbError of a stdin that could not be read or decoded."""
        if self._problem is not None:
            raise self._problem
        return self._config

    def request(self, supported: Sequence[str]) -> Request:
        """Return the request. Raises VerbError if the configuration is invalid, or its version is not supported."""
        config = self.config()
        check_name(config)
        check_version(self.verb, self.version, supported)
        if self.verb in {"ADD", "DEL"}:
            check_netns(self.env)
        return Request(self.verb, self.env, config, self.stdin)


def _result_document(returned: object, version: str) -> dict[str, Any]:
    if isinstance(returned, PluginResult):
        returned.version = version
        return returned.to_document()
    if isinstance(returned, dict) and "code" in returned and returned.keys() <= _ERROR_KEYS:
        code = returned["code"]
        known = code if isinstance(code, int) and code > 0 else DECODING_FAILURE
        raise VerbError(str(returned.get("msg", "")), code=known, details=str(returned.get("details", "")))
    return PluginResult.from_document(returned, version).to_document()


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


def _encode(document: dict[str, Any]) -> str:
    return dumps(document) + "\n"
