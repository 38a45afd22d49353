"""Decode a plugin's exit status and stdout: an error, the result of an ADD, or the supported versions."""

from __future__ import annotations

import signal
from typing import Any

from libcni._dataclass import dataclass
from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError
from libcni.errors import KEPT, InvalidOutputError, PluginError, VersionError, shorten
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result, ResultProblem, read_result

__all__ = ["PluginInfo"]

_RESULT_KEYS = {"interfaces", "ips", "routes", "dns", "ip4", "ip6"}


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A plugin's answer to VERSION (spec 1.1.0, section 5, Version).

    Attributes:
        cni_version: the spec version of the answer.
        supported_versions: the spec versions that the plugin supports, in the plugin's order.

    Examples:
        >>> PluginInfo("1.1.0", ("1.0.0", "1.1.0")).supported_versions
        ('1.0.0', '1.1.0')
    """

    cni_version: str
    supported_versions: tuple[str, ...]


def plugin_error(invocation: Invocation, outcome: Outcome) -> PluginError:
    """Return the error for a plugin that did not exit with 0, from its error document if it printed any."""
    # A signal may have stopped the plugin while it was writing: half of a document can look like a whole document.
    document = _error_document(outcome.stdout) if outcome.signal is None else None
    if document is not None:
        code, msg, details = document
        problem = f"{'; '.join(shorten(part) for part in (msg, details) if part) or 'no message'} (code {code})"
        return PluginError(problem, invocation, outcome, code=code, msg=msg, details=details)
    printed = outcome.stdout[:KEPT].decode(errors="backslashreplace").strip()
    if outcome.signal is not None:
        suffix = f", and had printed {shorten(printed, 300)!r}" if printed else ""
        name = next((f" ({known.name})" for known in signal.Signals if known == outcome.signal), "")
        problem = f"it was ended by signal {outcome.signal}{name}{suffix}"
        return PluginError(problem, invocation, outcome)
    suffix = f"its stdout is not an error document: {shorten(printed, 300)!r}" if printed else "its stdout is empty"
    return PluginError(f"it failed with exit status {outcome.exit_status}, and {suffix}", invocation, outcome)


def _error_document(stdout: bytes) -> tuple[int, str, str] | None:
    """Return (code, msg, details) of an error document (spec 1.1.0, section 5); None if stdout is no such document."""
    try:
        return _error_parts(_document(stdout))
    except JSONTextError:
        return None


def _error_parts(document: Any) -> tuple[int, str, str] | None:
    if not isinstance(document, dict) or not document.keys() & {"code", "msg"}:
        return None
    code, msg, details = (document.get(key) for key in ("code", "msg", "details"))
    # A plugin is foreign code, so a wrong type must not raise here and hide the failure itself. bool is an int in
    # Python.
    if not isinstance(code, int | None) or isinstance(code, bool):
        return None
    if not isinstance(msg, str | None) or not isinstance(details, str | None):
        return None
    return code or 0, msg or "", details or ""


def _document(stdout: bytes) -> Any:
    return jsontext.parse(jsontext.check_size(jsontext.decode_utf8(stdout)))


def read_add_result(invocation: Invocation, outcome: Outcome, version: str) -> Result:
    """Return the result that a plugin printed for ADD, converted to the configuration's spec version.

    Raises InvalidOutputError if stdout is not a result, or cannot be converted.
    """
    try:
        result = read_result(outcome.stdout, version)
        # A result without addresses is legal (spec 1.1.0, section 5), for example from tuning. An error document has
        # no addresses either, so check whether such a result is an error document.
        if not (result.interfaces or result.ips or result.routes):
            document = result.to_dict()
            error = None if _RESULT_KEYS & document.keys() else _error_parts(document)
            if error is not None:
                code, msg, _ = error
                problem = f"it printed an error document and exit status 0: {shorten(msg, 300)} (code {code})"
                raise ResultProblem(problem)
        return result.as_version(version)
    except (ResultProblem, VersionError) as error:
        raise InvalidOutputError(str(error), invocation, outcome) from error


def read_version_info(invocation: Invocation, outcome: Outcome) -> PluginInfo:
    """Return a plugin's answer to VERSION; raises InvalidOutputError. A plugin of 0.2.0 may omit the list."""
    try:
        document = _document(outcome.stdout)
    except JSONTextError as error:
        problem = f"its version document cannot be read: {error}"
        raise InvalidOutputError(problem, invocation, outcome) from error
    version = document.get("cniVersion") if isinstance(document, dict) else None
    if not isinstance(version, str) or not version:
        raise InvalidOutputError('its version document has no "cniVersion"', invocation, outcome)
    supported: Any = document.get("supportedVersions")
    # The specification 0.2.0 has no key for the list; Go reads the answer in the same way (pkg/version/plugin.go).
    if not supported and version == "0.2.0":
        supported = ["0.1.0", "0.2.0"]
    if not isinstance(supported, list) or not supported or not all(isinstance(text, str) for text in supported):
        problem = 'its version document has no list of strings "supportedVersions"'
        raise InvalidOutputError(problem, invocation, outcome)
    return PluginInfo(version, tuple(supported))
