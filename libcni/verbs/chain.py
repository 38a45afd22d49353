"""One plugin after the other: how each is called, and what its answer means."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import InvalidOutputError, PluginError, VersionError, shorten
from libcni.protocol.invocation import Invocation, Outcome, failure
from libcni.protocol.request import environment, execution_config
from libcni.protocol.result import Result, ResultProblem, read_result
from libcni.verbs.steps import Flow, Pause

__all__ = ["Chain", "RetryPolicy", "run"]

_RESULT_KEYS = {"interfaces", "ips", "routes", "dns", "ip4", "ip6"}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What to do where a plugin answers "try again later" (code 11): call this plugin again, within the verb's time.

    Attributes:
        attempts: how often it is called at most, the first time included.
        delay: seconds to wait before each further call.
    """

    attempts: int = 3
    delay: float = 1.0


@dataclass(frozen=True, slots=True)
class Chain:
    """A list's plugins, each with its executable ("" where it is missing), ready to be called.

    ``rt`` is None for the verbs that have no attachment; ``path`` is CNI_PATH.
    """

    net: NetworkConfigList
    rt: RuntimeConf | None
    executables: tuple[str, ...]
    path: Sequence[str]
    retry: RetryPolicy | None = None

    def invocation(self, verb: str, index: int, prev_result: str | None = None, valid: str | None = None) -> Invocation:
        """Return the call of the plugin at ``index``."""
        net, rt, plugin = self.net, self.rt, self.net.plugins[index]
        return Invocation(
            verb=verb,
            plugin=plugin.type,
            path=self.executables[index],
            stdin=execution_config(plugin, net.name, net.cni_version, rt=rt, prev_result=prev_result, valid=valid),
            env=environment(verb, self.path, rt),
            network=net.name,
            container_id=rt.container_id if rt else "",
            ifname=rt.ifname if rt else "",
            index=index,
        )

    def add(self, *, strict: bool = False) -> Flow[Result]:
        """Run ADD through the chain; each plugin gets the result of the one before it (spec 1.1.0, section 3)."""
        result: Result | None = None
        printed: bytes | None = None
        for index in range(len(self.net.plugins)):
            invocation = self.invocation("ADD", index, result.text if result else None)
            outcome = yield from self.call(invocation)
            if outcome.stdout != printed:  # most plugins after the first print what they were given
                result = _result_of(invocation, outcome, self.net.cni_version, strict=strict)
                printed = outcome.stdout
        if result is None:
            raise AssertionError("a list without plugins is refused before")
        return result

    def check(self, prev_result: str) -> Flow[None]:
        """Run CHECK through the chain, up to the first error."""
        for index in range(len(self.net.plugins)):
            yield from self.call(self.invocation("CHECK", index, prev_result))

    def call(self, invocation: Invocation) -> Flow[Outcome]:
        """Run one plugin, and where it asks to be tried again later, do as ``retry`` says."""
        for _ in range(self.retry.attempts - 1 if self.retry else 0):
            try:
                return (yield from run(invocation))
            except PluginError as error:
                if not error.retryable or not (yield from self._may_retry(invocation, error)):
                    raise
        return (yield from run(invocation))

    def _may_retry(self, invocation: Invocation, error: PluginError) -> Flow[bool]:
        """Let the time pass; between two ADDs a plugin must see a DEL (spec 1.1.0, section 3)."""
        if invocation.verb == "ADD":
            try:
                yield from run(self.invocation("DEL", invocation.index))
            except PluginError as undoing:
                error.add_note(f"it was not tried again: {undoing}")
                return False
        in_time: bool = yield Pause(self.retry.delay if self.retry else 0.0)
        return in_time


def run(invocation: Invocation) -> Flow[Outcome]:
    """Run one plugin; raises PluginError unless its exit status is 0."""
    outcome: Outcome = yield invocation
    if outcome.exit_status != 0:
        raise plugin_error(invocation, outcome)
    return outcome


def plugin_error(invocation: Invocation, outcome: Outcome) -> PluginError:
    """Return the error for a plugin that did not exit with 0, from its error document if it printed one."""
    printed = outcome.stdout.decode(errors="backslashreplace").strip()
    if outcome.signal is not None:
        what = f", and had printed {shorten(printed, 300)!r}" if printed else ""
        return failure(PluginError, invocation, f"it was ended by {_signal_name(outcome.signal)}{what}", outcome)
    document = _error_document(outcome.stdout)
    if document is None:
        what = f"what it printed is no error document: {shorten(printed, 300)!r}" if printed else "it printed no error"
        return failure(PluginError, invocation, f"exit status {outcome.exit_status}, and {what}", outcome)
    code, msg, details = document
    parts = [part for part in (msg, details) if part]
    problem = f"{'; '.join(parts) or 'no message'} (code {code})"
    return failure(PluginError, invocation, problem, outcome, code=code, msg=msg, details=details)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _error_document(stdout: bytes) -> tuple[int, str, str] | None:
    """Return (code, msg, details) of the error document on stdout (spec 1.1.0, section 5), or None if it is none."""
    try:
        document = jsontext.parse(jsontext.decode(stdout))
    except JSONTextError:
        return None
    if not isinstance(document, dict) or not document.keys() & {"code", "msg"}:
        return None
    code, msg, details = (document.get(key) for key in ("code", "msg", "details"))
    if not isinstance(code, int | None) or isinstance(code, bool):
        return None
    if not isinstance(msg, str | None) or not isinstance(details, str | None):
        return None
    return code or 0, msg or "", details or ""


def _result_of(invocation: Invocation, outcome: Outcome, version: str, *, strict: bool) -> Result:
    """Return the result that a plugin printed, in the configuration's version."""
    try:
        result = read_result(outcome.stdout, version)
        if not (result.interfaces or result.ips or result.routes):
            _refuse_error_document(outcome.stdout, result)
        if strict and result.cni_version != version:
            raise ResultProblem(f"it answered in version {result.cni_version}, and was asked for {version}")
        return result.as_version(version)
    except (ResultProblem, VersionError) as error:
        raise failure(InvalidOutputError, invocation, str(error), outcome) from error


def _refuse_error_document(stdout: bytes, result: Result) -> None:
    document = _error_document(stdout)
    if document is not None and not _RESULT_KEYS & result.to_dict().keys():
        raise ResultProblem(f"it printed an error document and exit status 0: {document[1]} (code {document[0]})")
