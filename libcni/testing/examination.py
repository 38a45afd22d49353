"""One examination of one plugin: its calls, and the checks that hold for all answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from libcni._dataclass import dataclass, field
from libcni.config.versions import CURRENT_VERSION, SINCE, supports
from libcni.plugin import Plugin, PluginResult, VerbError
from libcni.protocol.error_code import ErrorCode
from libcni.testing.calling import SILENT_VERBS, Answer, Target, call_plugin
from libcni.testing.document_checks import error_problems
from libcni.testing.namespaces import NetworkNamespace
from libcni.testing.report import ConformanceFinding, ConformanceReport
from libcni.testing.snapshot import link_names

if TYPE_CHECKING:
    from libcni.testing.ipam_recorder import Recorder

ATTACHMENT: Mapping[str, None] = {"CNI_CONTAINERID": None, "CNI_NETNS": None, "CNI_IFNAME": None}
"""The variables that a verb without an attachment does not get."""

IFNAME = "cnitest0"

_FIRST_OWN_CODE = 100
_SILENCE, _CODES, _ERRORS = _OBSERVATIONS = (
    "only ADD and VERSION print on stdout",
    "error codes below 100 are the specification's",
    "every failure prints an error document",
)


class TooSlowError(Exception):
    """A call did not answer in time. It ends the examination: a hundred such calls would take an hour."""


@dataclass
class Examination:
    """One examination of one plugin. The first attributes are the arguments of ``check_plugin``.

    Attributes:
        version: the spec version that is being checked; "" during the checks that do not depend on one.
        recorder: the recording IPAM plugin, if the plugin delegates.
        surroundings: makes a namespace, and what the plugin needs on the host, for each version.
        makes_interface: whether the last successful ADD reported the interface of CNI_IFNAME.
        has_attached: whether an ADD has succeeded.
        refused: the last ADD that failed, in words.
        check_works: whether the last CHECK of an attachment succeeded.
        gc_frees: whether GC has freed an attachment that is not valid.
        missing_netns: a path without a namespace.
        report: the findings so far.
    """

    plugin: Target
    config_base: dict[str, Any]
    namespace: NetworkNamespace | None = None
    prev_result: Mapping[str, Any] | None = None
    path: str = ""
    args: str = ""
    ipam: bool = False
    keeps_state: bool | None = None
    timeout: float = 30.0
    version: str = ""
    recorder: Recorder | None = None
    surroundings: Callable[[], AbstractContextManager[NetworkNamespace]] | None = None
    makes_interface: bool = False
    has_attached: bool = False
    refused: str = ""
    check_works: bool = False
    gc_frees: bool = False
    # A random name, so that no other test creates a namespace at this path.
    missing_netns: str = field(default_factory=lambda: os.path.join(gettempdir(), f"libcni-gone-{uuid4().hex[:12]}"))
    _observed: dict[str, set[str]] = field(default_factory=lambda: {check: set() for check in _OBSERVATIONS})

    def __post_init__(self) -> None:
        # This machine may use a network of the configured name. GC would free the addresses of its containers, because
        # the list of valid attachments has only those of this examination.
        name = f"{self.config_base.get('name', 'conformance')}-{uuid4().hex[:8]}"
        self.config_base = {**self.config_base, "name": name}
        self._links = link_names(None) - {"lo"} if self.namespace else set()
        self.report: ConformanceReport = ConformanceReport(
            self.plugin.name if isinstance(self.plugin, Plugin) else os.fspath(self.plugin)
        )

    @property
    def ifname(self) -> str:
        """CNI_IFNAME; for a chained plugin the interface of ``prev_result``."""
        names = [str(part["name"]) for part in self.previous_interfaces() if part.get("sandbox")]
        return names[0] if names and names[0] != "lo" else IFNAME

    @property
    def needs_host(self) -> bool:
        """Whether the configuration names a link of the host."""
        return self.surroundings is None and not self._links.isdisjoint(_texts(self.config_base))

    def previous_interfaces(self) -> Sequence[Mapping[str, Any]]:
        """Return the interfaces of ``prev_result``."""
        return (self.prev_result or {}).get("interfaces") or []

    @property
    def lacks_namespace(self) -> bool:
        """Whether each ADD has failed, because the plugin looked for the namespace that does not exist."""
        return self.namespace is None and not self.has_attached and self.missing_netns in self.refused

    def add_finding(self, check: str, problems: str | Iterable[str]) -> None:
        """Add a finding; no problem means that the plugin follows the rule."""
        text = problems if isinstance(problems, str) else "; ".join(problems)
        self.report.findings.append(ConformanceFinding(check, self.version, text))

    def add_note(self, note: str) -> None:
        """Add a note, once for all versions."""
        if note not in self.report.notes:
            self.report.notes.append(note)

    def expect_success(self, check: str, answer: Answer) -> None:
        """Add a finding: no problem if the call has succeeded, else its failure."""
        self.add_finding(check, "" if answer.status == 0 else shown(answer))

    def has_verb(self, verb: str) -> bool:
        """Return whether the specification of the version that is being checked has ``verb``."""
        return verb not in SINCE or supports(self.version, verb)

    def config(
        self,
        result: Mapping[str, Any] | None = None,
        previous: Mapping[str, Any] | None = None,
        namespace: NetworkNamespace | None = None,
    ) -> dict[str, Any]:
        """Return the configuration of a call.

        Args:
            result: ``prevResult``; if there is none, a chained plugin gets ``previous``.
            previous: the previous plugin's result; None: ``prev_result``.
            namespace: the namespace of its interfaces; None: that of the examination.

        Raises:
            ValueError: the version cannot express ``previous``.
        """
        config = {**self.config_base, "cniVersion": self.version}
        previous, namespace = previous or self.prev_result, namespace or self.namespace
        if result:
            config["prevResult"] = result
        elif previous is not None:
            whole = {"cniVersion": CURRENT_VERSION, **previous}
            if namespace is not None and previous.get("interfaces"):
                # The surroundings may be new.
                whole["interfaces"] = [
                    {**part, "sandbox": namespace.path} if part.get("sandbox") else part
                    for part in previous["interfaces"]
                ]
            try:
                config["prevResult"] = PluginResult.from_document(whole, self.version).to_document()
            except VerbError as error:
                problem = f"prev_result cannot be converted to version {self.version} (leave it out of versions)"
                raise ValueError(f"{problem}: {error}") from error
        return config

    def call(self, verb: str, config: Mapping[str, Any] | bytes, **changes: Any) -> Answer:
        """Call the plugin, and return its answer.

        Raises TooSlowError if it does not answer in time, and ValueError if its first call cannot be started.
        """
        try:
            answer = self.start(verb, config, timeout=self.timeout, **changes)
        except subprocess.TimeoutExpired as error:
            problem = [f"no answer to {verb} within {self.timeout:g} s", *getattr(error, "__notes__", ())]
            raise TooSlowError("; ".join([*problem, "the other checks were not run"])) from None
        except OSError as error:
            if not self.report.findings:
                raise ValueError(_why_not_started(self.report.plugin, error)) from error
            return Answer(127, "", f"it cannot be started: {error}")
        self._observe(verb, answer)
        return answer

    def start(self, verb: str, config: Mapping[str, Any] | bytes, *, timeout: float, **changes: Any) -> Answer:
        """Call the plugin, and return its answer. If it does not answer in time, kill it and raise TimeoutExpired."""
        netns = self.namespace.path if self.namespace else self.missing_netns
        options = {"netns": netns, "ifname": self.ifname, "args": self.args, "path": self.path, **changes}
        return call_plugin(self.plugin, verb, config, timeout=timeout, **options)

    def _observe(self, verb: str, answer: Answer) -> None:
        if answer.status == 0:
            if verb in SILENT_VERBS and answer.stdout.strip():
                self._observed[_SILENCE].add(f"{verb}: {answer.stdout[:200]!r}")
            return
        document, problem = document_of(answer, must_fail=True)
        problems = [problem] if problem else error_problems(document)
        self._observed[_ERRORS].update(f"{verb}: {text}" for text in problems)
        code = document.get("code")
        # Codes 1 to 99 are reserved: a later specification may give them a meaning that a runtime acts on.
        if isinstance(code, int) and code < _FIRST_OWN_CODE and code not in ErrorCode.__members__.values():
            self._observed[_CODES].add(f"{verb}: code {code}")

    def report_observations(self) -> None:
        """Add the findings that concern all calls."""
        for check, problems in self._observed.items():
            self.add_finding(check, sorted(problems))


def _why_not_started(path: str, error: OSError) -> str:
    from libcni.diagnosis.executable import executable_problem  # imports the client, and most plugins start

    if not os.path.isfile(path):
        return f"{path} cannot be started: there is no such file"
    if not os.access(path, os.X_OK):
        return f"{path} cannot be started: it is not executable (chmod +x)"
    problem = executable_problem(path)
    return f"{path} cannot be started: {f'{problem[0]}; {problem[1]}' if problem else error.strerror}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return ``config`` without ``key``."""
    return {name: value for name, value in config.items() if name != key}


def document_of(answer: Answer, *, must_fail: bool = False) -> tuple[dict[str, Any], str]:
    """Return (document on stdout, ""), or ({}, problem) if the exit status or the document is not as expected."""
    has_failed = answer.status != 0
    if has_failed != must_fail:
        return {}, shown(answer)
    try:
        return answer.document, ""
    except json.JSONDecodeError as error:
        return {}, f"stdout is not one JSON document ({error}): {answer.stdout[:200]!r}"
    except ValueError as error:
        return {}, str(error)


def shown(answer: Answer) -> str:
    """Return an answer's exit status and output in one line."""
    how = f"signal {-answer.status}" if answer.status < 0 else f"exit status {answer.status}"
    text = " ".join(answer.stdout.split()) or answer.stderr.strip()
    return f"{how}: {text[:300]}" if text else how
