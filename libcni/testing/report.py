"""The report of a conformance check."""

from __future__ import annotations

from collections.abc import Mapping

from libcni._dataclass import dataclass, field, replace


@dataclass(frozen=True)
class ConformanceFinding:
    """The outcome of one check.

    Attributes:
        check: the rule that was checked, in a few words.
        version: the spec version of the configuration, or "" if the check does not depend on one.
        problem: how the plugin broke the rule; "" if it did not.
        known: the reason that the caller gave for this failure in ``known``, or "".

    Examples:
        >>> print(ConformanceFinding("DEL again", "1.1.0", "exit status 1"))
        DEL again (1.1.0): exit status 1
    """

    check: str
    version: str
    problem: str
    known: str = ""

    def __str__(self) -> str:
        version, known = (
            f" ({text})" if text else "" for text in (self.version, self.known and f"known: {self.known}")
        )
        return f"{self.check}{version}: {self.problem or 'passed'}{known}"


@dataclass
class ConformanceReport:
    """All findings about one plugin.

    Attributes:
        plugin: its path or name.
        versions: the known spec versions that it claims to support.
        findings: in the order of the checks.
        notes: what the examination may have missed because of its arguments.

    Examples:
        >>> from libcni.plugin import Plugin
        >>> from libcni.testing import check_plugin
        >>> plugin = Plugin("nothing")
        >>> for register in (plugin.add, plugin.delete):
        ...     _ = register(lambda request: None)
        >>> report = check_plugin(plugin, {"type": "nothing"}, versions=["1.1.0"])
        >>> report.versions, report.failures
        (('1.1.0',), [])
    """

    plugin: str
    versions: tuple[str, ...] = ()
    findings: list[ConformanceFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[ConformanceFinding]:
        """The findings with a problem that is not known."""
        return [finding for finding in self.findings if finding.problem and not finding.known]

    def apply_known(self, known: Mapping[str, str]) -> None:
        """Mark the failures whose check is in ``known``; add a failure for each check in ``known`` that has none."""
        self.findings = [
            replace(finding, known=known.get(finding.check, "")) if finding.problem else finding
            for finding in self.findings
        ]
        for check, reason in known.items():
            if not any(finding.known for finding in self.findings if finding.check == check):
                was_run = any(finding.check == check for finding in self.findings)
                problem = f"it {'passes' if was_run else 'was not run'}: remove it from known ({reason})"
                self.findings.append(ConformanceFinding(check, "", problem))

    def __str__(self) -> str:
        failures = self.failures
        title = f"{self.plugin}: {len(failures)} of {len(self.findings)} checks failed"
        shown = [*failures, *(finding for finding in self.findings if finding.known)]
        return "\n".join([title, *(f"  {finding}" for finding in shown), *(f"  note: {note}" for note in self.notes)])
