"""One examination of one plugin: its calls, and the checks that hold for all answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

from libcni.config.versions import CURRENT_VERSION, SINCE, supports
from libcni.errors import ErrorCode
from libcni.plugin import Plugin, PluginResult, VerbError
from libcni.testing.calling import Answer, Target, call_plugin
from libcni.testing.fakes import FakePlugin
from libcni.testing.namespaces import NetworkNamespace
from libcni.testing.report import ConformanceFinding, ConformanceReport
from libcni.testing.snapshot import Snapshot, snapshot

ATTACHMENT: Mapping[str, None] = {"CNI_CONTAINERID": None, "CNI_NETNS": None, "CNI_IFNAME": None}
"""The variables that a verb without an attachment does not get."""

IFNAME = "cnitest0"

_FIRST_OWN_CODE = 100
_SILENT_VERBS = frozenset({"DEL", "CHECK", "GC", "STATUS"})


class TooSlowError(Exception):
    """A call did not answer in time. A hundred calls of 30 seconds would keep a test for an hour."""


@dataclass
class Examination:
    """One examination of one plugin. The first attributes are the arguments of ``check_plugin``.

    Attributes:
        missing_netns: a path without a namespace.
        report: the findings so far.
        supported: the known versions that the plugin claims to support.
        recorder: the recording IPAM plugin, if the plugin delegates.
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
    supported: tuple[str, ...] = ()
    recorder: FakePlugin | None = None
    # A random name, so that no other test creates a namespace at this path.
    missing_netns: str = field(default_factory=lambda: os.path.join(gettempdir(), f"libcni-gone-{uuid4().hex[:12]}"))
    _chatty: list[str] = field(default_factory=list)
    _odd_codes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # This machine may use a network of the configured name. GC would free the addresses of its containers, because
        # the list of valid attachments has only those of this examination.
        name = f"{self.config_base.get('name', 'conformance')}-{uuid4().hex[:8]}"
        self.config_base = {**self.config_base, "name": name}
        self.report: ConformanceReport = ConformanceReport(
            self.plugin.name if isinstance(self.plugin, Plugin) else os.fspath(self.plugin)
        )

    @property
    def options(self) -> dict[str, str]:
        """The CNI variables of a call, apart from the container's ID."""
        netns = self.namespace.path if self.namespace else self.missing_netns
        return {"netns": netns, "ifname": IFNAME, "args": self.args, "path": self.path}

    @property
    def is_executable(self) -> bool:
        """Whether the plugin runs as a process of its own."""
        return not isinstance(self.plugin, Plugin)

    def snapshot(self) -> Snapshot:
        """Return the state of the namespace, if there is one."""
        return snapshot(self.namespace) if self.namespace else frozenset()

    def add_finding(self, check: str, problems: str | Iterable[str], version: str = "") -> None:
        """Add a finding; no problem means that the plugin follows the rule."""
        text = problems if isinstance(problems, str) else "; ".join(problems)
        self.report.findings.append(ConformanceFinding(check, version, text))

    def expect_success(self, check: str, answer: Answer, version: str = "") -> None:
        """Add a finding: no problem if the call has succeeded, else its failure."""
        self.add_finding(check, "" if answer.status == 0 else shown(answer), version)

    def config(self, version: str, **more: Any) -> dict[str, Any]:
        """Return the configuration in ``version``, with ``prevResult`` for a chained plugin."""
        config = {**self.config_base, "cniVersion": version, **more}
        if self.prev_result is not None and "prevResult" not in more:
            previous = {"cniVersion": CURRENT_VERSION, **self.prev_result}
            try:
                config["prevResult"] = PluginResult.from_document(previous, version).to_document()
            except VerbError as error:
                reason = f"{error.msg}; {error.details}" if error.details else error.msg
                raise ValueError(
                    f"prev_result cannot be converted to version {version} (leave it out of versions): {reason}"
                ) from error
        return config

    def call(self, verb: str, config: Mapping[str, Any] | bytes, **changes: Any) -> Answer:
        """Call the plugin; raises TooSlowError if it does not answer in time."""
        env = changes.pop("env", {})
        options = {**self.options, **changes}
        try:
            answer = call_plugin(self.plugin, verb, config, env=env, timeout=self.timeout, **options)
        except subprocess.TimeoutExpired as error:
            problem = [f"no answer to {verb} within {self.timeout:g} s", *getattr(error, "__notes__", ())]
            raise TooSlowError("; ".join([*problem, "the other checks were not run"])) from None
        except OSError as error:
            return Answer(127, "", f"it cannot be started: {error}")
        self._observe(verb, answer)
        return answer

    def _observe(self, verb: str, answer: Answer) -> None:
        if answer.status == 0 and verb in _SILENT_VERBS and answer.stdout.strip():
            self._chatty.append(f"{verb}: {answer.stdout[:200]!r}")
        code = document_of(answer, 1)[0].get("code")
        # Codes 1 to 99 are reserved: a later specification may give them a meaning that a runtime acts on.
        if isinstance(code, int) and code < _FIRST_OWN_CODE and abs(code) not in ErrorCode.__members__.values():
            self._odd_codes.append(f"{verb}: code {code}")

    def report_observations(self) -> None:
        """Add the findings that concern all calls."""
        self.add_finding("only ADD and VERSION print on stdout", sorted(set(self._chatty)))
        self.add_finding("error codes below 100 are the specification's", sorted(set(self._odd_codes)))


def has_verb(verb: str, version: str) -> bool:
    """Return whether the specification of ``version`` has ``verb``."""
    return verb not in SINCE or supports(version, verb)


def without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return ``config`` without ``key``."""
    return {name: value for name, value in config.items() if name != key}


def document_of(answer: Answer, status: int) -> tuple[dict[str, Any], str]:
    """Return the document on stdout, and the problem of an answer that should have exit status 0, or should not."""
    if (answer.status != 0) != (status != 0):
        return {}, shown(answer)
    try:
        return answer.document, ""
    except json.JSONDecodeError as error:
        return {}, f"stdout is not one JSON document ({error}): {answer.stdout[:200]!r}"
    except ValueError as error:
        return {}, str(error)


def shown(answer: Answer) -> str:
    """Return an answer in one line."""
    how = f"signal {-answer.status}" if answer.status < 0 else f"exit status {answer.status}"
    text = " ".join(answer.stdout.split()) or answer.stderr.strip()
    return f"{how}: {text[:300]}" if text else how
