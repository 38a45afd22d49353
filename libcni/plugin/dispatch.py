"""From the start of a plugin's process to its function, and from there to one document on stdout."""

from __future__ import annotations

import json
import os
import sys
from io import BytesIO, StringIO

from libcni.config.versions import ALL_VERSIONS, check_known
from libcni.plugin.environment import check_environment, check_netns
from libcni.plugin.failure import VerbError, error_document, is_foreseen
from libcni.plugin.reading import check_name, check_version, decode, read, version_of
from libcni.plugin.request import Request
from libcni.plugin.results import PluginResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO, NoReturn, TextIO, TypeAlias, TypeVar

    Function: TypeAlias = Callable[[Request], PluginResult | Mapping[str, Any] | None]
    FunctionT = TypeVar("FunctionT", bound=Function)

__all__ = ["Plugin"]


class Plugin:
    """Answer the verbs of the CNI specification with the functions registered here.

    ADD and DEL need a function. CHECK, GC and STATUS succeed without one. A function gets the Request. What it raises
    becomes the error document: a VerbError with its own code and text.

    Args:
        name: the plugin's type.
        versions: the spec versions that it supports.
        about: one line for whoever starts it by hand.

    Raises:
        VersionError: a version that the specification does not have.
    """

    def __init__(self, name: str, *, versions: Sequence[str] = ALL_VERSIONS, about: str = "") -> None:
        self.name = name
        self.versions: tuple[str, ...] = tuple(check_known(version) for version in versions)
        self.about: str = about or f"CNI plugin {name}"
        self._functions: dict[str, Function] = {}

    def add(self, function: FunctionT) -> FunctionT:
        """Register the function for ADD (spec 1.1.0, section 2, ADD).

        It fills ``request.result``, or returns what to print instead: a PluginResult, or a mapping as JSON has it.
        """
        return self._register("ADD", function)

    def delete(self, function: FunctionT) -> FunctionT:
        """Register the function for DEL (spec 1.1.0, section 2, DEL).

        It succeeds where nothing is left to undo, and without a namespace.
        """
        return self._register("DEL", function)

    def check(self, function: FunctionT) -> FunctionT:
        """Register the function for CHECK: it raises where what ADD made has gone (spec 1.1.0, section 2, CHECK)."""
        return self._register("CHECK", function)

    def gc(self, function: FunctionT) -> FunctionT:
        """Register the function for GC (spec 1.1.0, section 2, GC).

        It frees what ``request.valid_attachments`` does not hold.
        """
        return self._register("GC", function)

    def status(self, function: FunctionT) -> FunctionT:
        """Register the function for STATUS (spec 1.1.0, section 2, STATUS).

        It raises a VerbError, code 50 or 51, where ADD could not be served.
        """
        return self._register("STATUS", function)

    def _register(self, verb: str, function: FunctionT) -> FunctionT:
        self._functions[verb] = function
        return function

    def run(self) -> NoReturn:
        """Answer the call that this process is, and exit: 0, or 1 with an error document.

        Whatever else writes to file descriptor 1, child processes included, writes to stderr instead.
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
        """Answer one call and return the exit status. Arguments left out are those of the process.

        During the call ``sys.stdout`` and ``sys.stderr`` are ``stderr``: a ``print`` does not spoil the document.
        """
        env = os.environ if env is None else env
        stdout, stderr = stdout or sys.stdout, stderr or sys.stderr or StringIO()
        if not env.get("CNI_COMMAND"):
            stderr.write(f"{self.about}\nCNI protocol versions supported: {', '.join(self.versions)}\n")
            return 0
        kept = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = stderr
        try:
            status, text = self._text(_Call(env, stdin or _stdin()), stderr)
        finally:
            sys.stdout, sys.stderr = kept
        stdout.write(text)
        stdout.flush()
        return status

    def _text(self, call: _Call, stderr: TextIO) -> tuple[int, str]:
        try:
            document = self._answer(call)
            return 0, "" if document is None else _encode(document)
        except BaseException as error:  # noqa: BLE001 - also sys.exit() and Ctrl-C must leave one document
            if not is_foreseen(error):
                _print_traceback(error, stderr)
            return 1, _encode(error_document(error, call.version or self.versions[-1]))

    def _answer(self, call: _Call) -> dict[str, Any] | None:
        for verb in ("ADD", "DEL"):
            if verb not in self._functions:
                raise VerbError(f"plugin {self.name} has no function for {verb}")
        call.read()
        check_environment(call.verb, call.env)
        if call.verb == "VERSION":
            return self._version_document(call)
        return self._serve(call.request(self.versions))

    def _version_document(self, call: _Call) -> dict[str, Any]:
        config = call.config() if call.stdin.strip() else {}
        return {"cniVersion": config.get("cniVersion") or self.versions[-1], "supportedVersions": [*self.versions]}

    def _serve(self, request: Request) -> dict[str, Any] | None:
        function = self._functions.get(request.verb)
        returned = function(request) if function else None
        if request.verb != "ADD":
            return None
        if returned is None:
            returned = request.result
        if isinstance(returned, PluginResult):
            returned.version = request.version
            return returned.to_document()
        return PluginResult.from_document(returned, request.version).to_document()


class _Call:
    """Hold what is known of a call before it is known to be right."""

    def __init__(self, env: Mapping[str, str], stream: BinaryIO) -> None:
        self.env = env
        self.verb = env["CNI_COMMAND"]
        self.version = ""
        self.stdin = b""
        self._stream = stream
        self._problem: VerbError | None = None
        self._config: dict[str, Any] = {}

    def read(self) -> None:
        """Read stdin; a problem with it is kept, because one with the environment comes first."""
        if self.verb == "VERSION" and self._stream.isatty():
            return
        try:
            self.stdin = read(self._stream)
            self._config = decode(self.stdin)
            self.version = version_of(self._config)
        except VerbError as error:
            self._problem = error

    def config(self) -> dict[str, Any]:
        """Return the configuration, or raise what was wrong with it."""
        if self._problem is not None:
            raise self._problem
        return self._config

    def request(self, supported: Sequence[str]) -> Request:
        """Return the checked request, or raise VerbError."""
        config = self.config()
        check_name(config)
        check_version(self.verb, self.version, supported)
        if self.verb in {"ADD", "DEL"}:
            check_netns(self.env)
        return Request(self.verb, self.env, config, self.stdin)


def _stdin() -> BinaryIO:
    return sys.stdin.buffer if sys.stdin else BytesIO()  # None where descriptor 0 was closed at the start


def _claim_stdout() -> int:
    """Return a descriptor for the real stdout, and let 1 be stderr."""
    _fill_stdio()
    claimed = os.dup(1)
    os.dup2(2, 1)
    return claimed


def _fill_stdio() -> None:
    """Open what is closed of 0 to 2: a duplicate of stdout would take the free number, and be taken for stderr."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _encode(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False) + "\n"


def _print_traceback(error: BaseException, stderr: TextIO) -> None:
    from traceback import print_exception

    print_exception(error, file=stderr)
