"""The report of a conformance check."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ConformanceFinding:
    """The outcome of one check.

    Attributes:
        check: the rule that was checked, in a few words.
        version: the spec version of the configuration, or "" if the check does not depend on one.
        problem: how the plugin broke the rule; "" if it did not.

    Examples:
        >>> print(ConformanceFinding("DEL again", "1.1.0", "exit status 1"))
        DEL again (1.1.0): exit status 1
    """

    check: str
    version: str
    problem: str

    def __str__(self) -> str:
        return f"{self.check}{f' ({self.version})' if self.version else ''}: {self.problem or 'passed'}"


@dataclass
class ConformanceReport:
    """All findings about one plugin.

    Attributes:
        plugin: its path or name.
        versions: the known spec versions that it claims to support.
        findings: in the order of the checks.

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

    @property
    def failures(self) -> list[ConformanceFinding]:
        """The findings with a problem."""
        return [finding for finding in self.findings if finding.problem]

    def __str__(self) -> str:
        failures = self.failures
        title = f"{self.plugin}: {len(failures)} of {len(self.findings)} checks failed"
        return "\n".join([title, *(f"  {finding}" for finding in failures)])
