"""Check a plugin against the specification: every verb, every version, and what it says when it is called wrongly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import gettempdir
from typing import Any
from uuid import uuid4

from libcni.config.versions import ALL_VERSIONS, SINCE, parse_version
from libcni.plugin import Plugin, PluginResult, VerbError
from libcni.plugin.shapes import error_problems, result_problems, version_problems
from libcni.testing.calling import Answer, Target, call_plugin
from libcni.testing.namespaces import NetworkNamespace

__all__ = ["ConformanceReport", "Finding", "assert_plugin_conforms", "check_plugin"]

_ATTACHMENT = {"CNI_CONTAINERID": None, "CNI_NETNS": None, "CNI_IFNAME": None}


@dataclass(frozen=True)
class Finding:
    """Say how one check came out.

    Attributes:
        check: what the specification asks, in a few words.
        version: the spec version it was asked in, or "" where it does not depend on one.
        problem: what the plugin did instead, or "".
    """

    check: str
    version: str
    problem: str

    def __str__(self) -> str:
        return f"{self.check}{f' ({self.version})' if self.version else ''}: {self.problem or 'right'}"


@dataclass
class ConformanceReport:
    """Hold all findings about one plugin.

    Attributes:
        plugin: its path or name.
        versions: the spec versions that it says it supports and that exist.
        findings: in the order of the checks.
    """

    plugin: str
    versions: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        """The findings with a problem."""
        return [finding for finding in self.findings if finding.problem]

    def without(self, checks: Iterable[str]) -> list[Finding]:
        """Return the failures of all but ``checks``."""
        left_out = set(checks)
        return [finding for finding in self.failures if finding.check not in left_out]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.plugin}: {len(self.failures)} of {len(self.findings)} checks failed",
                *(f"  {finding}" for finding in self.failures),
            ]
        )


def assert_plugin_conforms(
    plugin: Target, config: Mapping[str, Any], *, known_faults: Iterable[str] = (), **how: Any
) -> ConformanceReport:
    """Check ``plugin`` as ``check_plugin`` does, and return the report.

    Args:
        plugin: a Plugin or the path of an executable.
        config: see ``check_plugin``.
        known_faults: checks that may fail.
        how: see ``check_plugin``.

    Raises:
        AssertionError: a check failed; the text lists all that did.
    """
    report = check_plugin(plugin, config, **how)
    if report.without(known_faults):
        raise AssertionError(str(report))
    return report


def check_plugin(  # noqa: PLR0913 - a plugin's surroundings
    plugin: Target,
    config: Mapping[str, Any],
    *,
    namespace: NetworkNamespace | None = None,
    path: str = "/opt/cni/bin",
    prev_result: Mapping[str, Any] | None = None,
    ipam: bool = False,
    args: str = "",
    versions: Sequence[str] = ALL_VERSIONS,
) -> ConformanceReport:
    """Run a plugin through every verb and version, and compare each answer with the specification.

    It is called for containers that do not exist, with an interface ``cnitest0``; what it makes, it must take down.

    Args:
        plugin: a Plugin, called in this process, or the path of an executable.
        config: a configuration for which its ADD succeeds; ``cniVersion``, ``name`` and ``prevResult`` are added.
        namespace: where its ADD needs a real one; it must be as before after DEL.
        path: CNI_PATH, for plugins that delegate.
        prev_result: for a chained plugin, what comes before it, as spec 1.1.0 writes it.
        ipam: whether it is an IPAM plugin, with abbreviated results.
        args: CNI_ARGS.
        versions: only these, of those that it supports.
    """
    run = _Run(plugin, dict(config), namespace, prev_result, {"path": path, "args": args}, ipam=ipam)
    run.check_version_verb()
    run.report.versions = tuple(version for version in run.supported if version in versions)
    if run.report.versions:
        run.check_wrong_calls(run.report.versions[-1])
    for version in run.report.versions:
        run.check_life(version)
        run.check_too_old(version)
    return run.report


class _Run:
    """Hold one examination of one plugin."""

    def __init__(  # noqa: PLR0913 - as check_plugin
        self,
        plugin: Target,
        config: dict[str, Any],
        namespace: NetworkNamespace | None,
        prev_result: Mapping[str, Any] | None,
        parameters: dict[str, str],
        *,
        ipam: bool,
    ) -> None:
        self.plugin = plugin
        self.base = config
        self.namespace = namespace
        self.prev_result = prev_result
        self.ipam = ipam
        self.gone = os.path.join(gettempdir(), f"libcni-gone-{uuid4().hex[:12]}")
        self.parameters = {**parameters, "netns": namespace.path if namespace else self.gone, "ifname": "cnitest0"}
        self.report = ConformanceReport(plugin.name if isinstance(plugin, Plugin) else os.fspath(plugin))
        self.supported: tuple[str, ...] = ()

    def found(self, check: str, problems: str | Iterable[str], version: str = "") -> None:
        text = problems if isinstance(problems, str) else "; ".join(problems)
        self.report.findings.append(Finding(check, version, text))

    def call(self, verb: str, config: Mapping[str, Any] | bytes, **changes: Any) -> Answer:
        env = changes.pop("env", {})
        return call_plugin(self.plugin, verb, config, env=env, **{**self.parameters, **changes})

    def config(self, version: str, **more: Any) -> dict[str, Any]:
        config = {**self.base, "cniVersion": version, "name": self.base.get("name", "conformance"), **more}
        if self.prev_result is not None and "prevResult" not in more:
            config["prevResult"] = PluginResult.from_document(self.prev_result, version).to_document()
        return config

    # VERSION

    def check_version_verb(self) -> None:
        answer = self.call("VERSION", {"cniVersion": "0.4.0"})
        document, problem = _document(answer, 0)
        self.found("VERSION answers", problem or version_problems(document))
        offered = document.get("supportedVersions") or []
        self.supported = tuple(version for version in ALL_VERSIONS if version in offered)
        echoed = document.get("cniVersion")
        self.found("VERSION echoes cniVersion", "" if echoed == "0.4.0" else f"{echoed!r} for '0.4.0'")
        bare = self.call("VERSION", {"cniVersion": "0.4.0"}, env={**_ATTACHMENT, "CNI_PATH": None, "CNI_ARGS": None})
        self.found("VERSION needs CNI_COMMAND only", _document(bare, 0)[1])

    # calls that must be refused

    def check_wrong_calls(self, version: str) -> None:
        config = self.config(version)
        self.check_environment(config, version)
        for check, stdin in (("garbage on stdin", b"garbage"), ("nothing on stdin", b""), ("a list on stdin", b"[]")):
            self.refused(check, self.call("ADD", stdin), (6,))
        self.refused("no network name", self.call("ADD", _without(config, "name")), (7,))
        self.refused("an invalid network name", self.call("ADD", {**config, "name": "../x"}), (7,))
        self.refused("an unknown cniVersion", self.call("ADD", {**config, "cniVersion": "9.9.9"}), (1,))
        self.refused("an unknown verb", self.call("NOPE", config), (4,))
        echoed = _document(self.call("ADD", config, env={"CNI_IFNAME": None}), 1)[0].get("cniVersion")
        self.found("an error says the cniVersion", "" if echoed == version else f"{echoed!r} for {version!r}")

    def check_environment(self, config: dict[str, Any], version: str) -> None:
        needed = {"ADD": [*_ATTACHMENT], "DEL": ["CNI_CONTAINERID", "CNI_IFNAME"], "CHECK": [*_ATTACHMENT]}
        for verb, names in needed.items():
            for name in names if _has(verb, version) else ():
                answer = self.call(verb, config, env={name: None})
                self.refused(f"{verb} without {name}", answer, (4,), mention=name)
        for name, value in (("CNI_CONTAINERID", "../x"), ("CNI_IFNAME", "a/b")):
            self.refused(f"an invalid {name}", self.call("ADD", config, env={name: value}), (4,))
        if "ipam" not in config or self.ipam:
            self.succeeds("DEL without CNI_PATH", self.call("DEL", config, env={"CNI_PATH": None}))

    def check_too_old(self, version: str) -> None:
        for verb in ("CHECK", "GC", "STATUS"):
            if not _has(verb, version):
                answer = self.call(verb, self.config(version))
                self.refused(f"{verb} before it existed", answer, (1, 4), version)

    def refused(self, check: str, answer: Answer, codes: tuple[int, ...], version: str = "", mention: str = "") -> None:
        document, problem = _document(answer, 1)
        if not problem:
            problem = "; ".join(error_problems(document))
        if not problem and document["code"] not in codes:
            problem = f"code {document['code']} and not {codes[0]} ({document['msg']})"
        if not problem and mention not in f"{document['msg']} {document.get('details', '')}":
            problem = f"{mention} is not named: {document['msg']}"
        self.found(f"{check} is refused", problem, version)

    def succeeds(self, check: str, answer: Answer, version: str = "") -> None:
        self.found(check, "" if answer.status == 0 else _shown(answer), version)

    # one attachment's life

    def check_life(self, version: str) -> None:
        container, other = f"conformance-{uuid4().hex[:8]}", f"conformance-{uuid4().hex[:8]}"
        before = self.namespace.interfaces() if self.namespace else {}
        self.status(version)
        added = self.call("ADD", self.config(version), container_id=container)
        try:
            self.added(added, version, container)
        finally:
            self.deleted(version, container, added)
        after = self.namespace.interfaces() if self.namespace else {}
        self.found("DEL leaves nothing", "" if after == before else f"{before} became {after}", version)
        never = self.call("DEL", self.config(version), container_id=other)
        self.succeeds("DEL of what was never added", never, version)
        self.found("DEL makes no namespace", self._made_a_file(), version)

    def status(self, version: str) -> None:
        if _has("STATUS", version):
            config = _without(self.config(version), "prevResult")
            self.succeeds("STATUS", self.call("STATUS", config, env=_ATTACHMENT), version)

    def added(self, answer: Answer, version: str, container: str) -> None:
        result, problem = _document(answer, 0)
        self.found("ADD", problem or result_problems(result, version, abbreviated=self.ipam), version)
        if problem:
            return
        self.found("ADD passes prevResult on", self._not_passed_on(result, version), version)
        checked = self.config(version, prevResult=result)
        if _has("CHECK", version):
            self.succeeds("CHECK", self.call("CHECK", checked, container_id=container), version)
        if _has("GC", version):
            self.gc(version, container, checked)

    def gc(self, version: str, container: str, checked: dict[str, Any]) -> None:
        valid = [{"containerID": container, "ifname": self.parameters["ifname"]}]
        self.succeeds("GC", self._gc(version, valid), version)
        self.succeeds("GC spares what is valid", self.call("CHECK", checked, container_id=container), version)
        self.succeeds("GC of everything", self._gc(version, []), version)

    def _gc(self, version: str, valid: list[dict[str, str]]) -> Answer:
        both = {"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid}
        return self.call("GC", _without({**self.config(version), **both}, "prevResult"), env=_ATTACHMENT)

    def deleted(self, version: str, container: str, added: Answer) -> None:
        result = _document(added, 0)[0]
        config = self.config(version, prevResult=result) if result else self.config(version)
        self.succeeds("DEL", self.call("DEL", config, container_id=container), version)
        self.succeeds("DEL again", self.call("DEL", config, container_id=container), version)
        for check, env in (
            ("DEL without CNI_NETNS", {"CNI_NETNS": None}),
            ("DEL without namespace", {"CNI_NETNS": self.gone}),
        ):
            self.succeeds(check, self.call("DEL", config, container_id=container, env=env), version)
        bare = _without(config, "prevResult")
        self.succeeds("DEL without prevResult", self.call("DEL", bare, container_id=container), version)

    def _made_a_file(self) -> str:
        if not os.path.exists(self.gone):
            return ""
        os.unlink(self.gone)
        return f"it made {self.gone}"

    def _not_passed_on(self, result: dict[str, Any], version: str) -> list[str]:
        if self.prev_result is None:
            return []
        before = {ip["address"] for ip in PluginResult.from_document(self.prev_result, version).ips}
        try:
            after = {ip.get("address") for ip in PluginResult.from_document(result, version).ips}
        except VerbError as error:
            return [str(error)]
        return [f"{address} is lost" for address in sorted(before - after)]


def _has(verb: str, version: str) -> bool:
    return verb not in SINCE or parse_version(version) >= parse_version(SINCE[verb])


def _without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != key}


def _document(answer: Answer, status: int) -> tuple[dict[str, Any], str]:
    """Return the one document on stdout, and what was wrong with the answer."""
    if (answer.status != 0) != (status != 0):
        return {}, _shown(answer)
    try:
        return answer.document, ""
    except json.JSONDecodeError as error:
        return {}, f"stdout is not one JSON document ({error}): {answer.stdout[:200]!r}"
    except ValueError as error:
        return {}, str(error)


def _shown(answer: Answer) -> str:
    how = f"signal {-answer.status}" if answer.status < 0 else f"exit status {answer.status}"
    text = " ".join(answer.stdout.split()) or answer.stderr.strip()
    return f"{how}: {text[:300]}" if text else how
