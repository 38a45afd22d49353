"""Execute vectors with Go libcni, and tell where it does something else, and why that is right."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from peers import with_peers

from conformance.exact import read
from conformance.observe import Difference, Failure, Seen, differences
from conformance.stage import Stage, document_bytes
from conformance.vectors import TESTDATA, Step, Vector

ROOT = TESTDATA.parent
REASONS = TESTDATA / "go-differences.yaml"
GOPATH = Path("/usr/share/gocode")
INSTALLED, NEWEST = "1.1.2", "1.3.0"
"""The versions of Go libcni: Debian 12's, built with its Go, and sid's with Go 1.27, which scripts/peers unpacks."""

_UNKNOWN_TO_GO = re.compile(
    r'unsupported CNI result version "1\.1\.0"'
    r"|no converter for CNI result version (1\.1\.0 to|[0-9.]+ to 1\.1\.0)"
)


@pytest.fixture(scope="session")
def go_program() -> Path:
    """Return the Go program with the installed Go libcni, which is built once; skip if it cannot be built."""
    if shutil.which("go") is None or not (GOPATH / "src/github.com/containernetworking/cni").exists():
        pytest.skip("needs Go and Go libcni: apt-get install golang-go golang-github-appc-cni-dev")
    return build(INSTALLED)


@pytest.fixture(scope="session")
def newest_go_program() -> Path:
    """Return the Go program with the newest Go libcni; skip if it cannot be had."""
    return build(NEWEST, "go")


# The newest Go is downloaded.
@pytest.fixture(params=["go_program", pytest.param("newest_go_program", marks=pytest.mark.may_skip)])
def each_go_program(request: pytest.FixtureRequest) -> Path:
    """Return the Go program, with each version of Go libcni."""
    program: Path = request.getfixturevalue(request.param)
    return program


def build(version: str, peer: str = "") -> Path:
    """Build the Go program; raises CalledProcessError. ``peer``: the Go of ``scripts/peers``, not the installed one.

    Several sessions may need it at once. The first one builds it, and nobody executes a file that is being written.
    """
    target = ROOT / "build" / f"go_libcni-{version}"
    target.parent.mkdir(exist_ok=True)
    words = ["go", "build", "-tags", "newest" if peer else "installed", "-o", f"{target}.new", "./tests/go_libcni"]
    cache = f"GOCACHE={target.parent / f'go-cache-{version}'}"
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if peer:
            with_peers(peer, "--", "env", "-C", str(ROOT), cache, *words)
        else:
            settings = [cache, f"GOPATH={GOPATH}", "GO111MODULE=off", "GOFLAGS=", "CGO_ENABLED=0"]
            subprocess.run(["env", *settings, *words], cwd=ROOT, check=True)
        os.replace(f"{target}.new", target)
    return target


def call(program: Path, jobs: Sequence[dict[str, Any]], *, timeout: float = 300.0) -> list[list[dict[str, Any]]]:
    """Let the Go program do jobs, and return what each of their steps gave."""
    done = subprocess.run(
        [str(program)], input=json.dumps(jobs).encode(), capture_output=True, check=True, timeout=timeout
    )
    outcomes: list[list[dict[str, Any]]] = read(done.stdout)
    return outcomes


@dataclass(frozen=True)
class Report:
    """What became of one vector: its differences; or, in ``unknown``, what of it Go libcni does not have."""

    vector: Vector
    differences: tuple[Difference, ...] = ()
    unknown: str = ""


def run_vectors(program: Path, vectors: Sequence[Vector], directory: Path) -> list[Report]:
    """Execute all vectors with Go libcni."""
    stages = [Stage(vector, directory / vector.name) for vector in vectors]
    outcomes = call(program, [_job(stage) for stage in stages])
    return [_report(stage, outcome) for stage, outcome in zip(stages, outcomes, strict=True)]


def _job(stage: Stage) -> dict[str, Any]:
    return {
        "path": stage.path,
        "cacheDir": stage.cache_dir,
        "confDir": stage.conf_dir,
        "environ": stage.vector.data.get("environ", {}),
        "steps": [_go_step(stage, step) for step in stage.vector.steps],
    }


def _go_step(stage: Stage, step: Step) -> dict[str, Any]:
    source, rt = step.source, step.rt
    given: dict[str, Any] = {
        "kind": step.kind,
        "stepFile": f"{stage.root}/step",
        "index": step.index,
        "recordsTo": f"{stage.root}/after/{step.index}",
        "network": source.get("network", ""),
        "file": source.get("file", ""),
        "plugin": step.body.get("plugin", ""),
        "text": step.body.get("text", ""),
        "to": step.body.get("to", ""),
        "values": step.body.get("values"),
        "valid": step.body.get("valid", []) if step.kind == "gc" else [],
        "timeout": step.options.get("timeout", 30.0),
        "rt": {key: rt.get(key) for key in ("container_id", "netns", "ifname", "args", "capability_args")},
    }
    given["busy"] = stage.busy_plugins
    if step.kind == "remove":
        given["remove"] = stage.removed_by(step)
    if step.kind == "write":
        given["write"] = stage.written_by(step)
    if source.keys() & {"document", "document_text", "document_base64"}:
        given["document"] = base64.b64encode(document_bytes(source)).decode()
    return given


def _report(stage: Stage, outcomes: list[dict[str, Any]]) -> Report:
    found: list[Difference] = []
    for step, outcome in zip(stage.vector.steps, outcomes, strict=True):
        if outcome.get("unsupported"):
            return Report(stage.vector, unknown=f"the verb {step.kind}")
        if _UNKNOWN_TO_GO.search(str(outcome.get("error", ""))):
            return Report(stage.vector, unknown="spec version 1.1.0")
        found += [_without_paths(one, stage) for one in differences(stage, step, _seen(stage, step, outcome))]
    return Report(stage.vector, tuple(found))


def _seen(stage: Stage, step: Step, outcome: dict[str, Any]) -> Seen:
    after = stage.root / "after" / str(step.index)
    records = [(path.name, path.read_bytes()) for path in sorted(after.glob("*"))] if after.exists() else []
    value = dict(outcome.get("value") or {})
    if "capabilities" in value:
        value["capabilities"] = sorted(value["capabilities"] or [])
    seconds = float(outcome["seconds"].text)
    return Seen(stage.calls(step), value, _failure(outcome.get("error")), records, seconds)


def _failure(error: dict[str, Any] | None) -> Failure | None:
    if error is None:
        return None
    said = {key: error.get(key, "") for key in ("msg", "details")}
    return Failure(error["text"], fields={"code": int(error["code"].text), **said} if "code" in error else {})


def _without_paths(one: Difference, stage: Stage) -> Difference:
    root = str(stage.root)
    return Difference(one.place, one.expected.replace(root, "$ROOT"), one.seen.replace(root, "$ROOT"))


@dataclass
class Rule:
    """A difference that shows in many vectors, and why it is right (place, ours and go are regular expressions)."""

    place: str
    what: str
    why: str
    ours: str = ""
    go: str = ""
    vectors: list[str] = field(default_factory=list)

    def explains(self, one: Difference) -> bool:
        """Return whether this is the difference that is meant."""
        place = one.place.partition(": ")[2]
        found = re.fullmatch(self.place, place), re.search(self.ours, one.expected), re.search(self.go, one.seen)
        return all(match is not None for match in found)


@dataclass
class Reasons:
    """The rules, the reasons of single vectors, and what came of applying them."""

    rules: list[Rule]
    single: dict[str, str]
    rows: list[tuple[str, Difference, str]] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    unknown: list[Report] = field(default_factory=list)
    same: int = 0

    @property
    def stale(self) -> set[str]:
        """What explains nothing."""
        used = {name for name, _, _ in self.rows}
        rules = {f"rule {rule.place!r}" for rule in self.rules if not rule.vectors}
        return rules | {f"vector {name}" for name in self.single if name not in used}


def faults(each: Mapping[str, Reasons]) -> list[str]:
    """Return what fails a run with these versions: a difference without a reason, a reason without a difference."""
    stale = sorted(set.intersection(*(reasons.stale for reasons in each.values())))
    unexplained = [f"no reason with {version}: {one}" for version, found in each.items() for one in found.unexplained]
    return unexplained + [f"stale: {one}" for one in stale]


def explain(reports: Sequence[Report]) -> Reasons:
    """Give each difference its reason."""
    document = yaml.safe_load(REASONS.read_text(encoding="utf-8"))
    single = {name: entry["why"] for entry in document["vectors"] for name in entry["vectors"]}
    reasons = Reasons([Rule(**rule) for rule in document["everywhere"]], single)
    for report in reports:
        if report.unknown:
            reasons.unknown.append(report)
        elif not report.differences:
            reasons.same += 1
        for one in report.differences:
            _explain_one(reasons, report.vector.name, one)
    return reasons


def _explain_one(reasons: Reasons, name: str, one: Difference) -> None:
    rule = next((rule for rule in reasons.rules if rule.explains(one)), None)
    if rule is not None:
        rule.vectors += [] if name in rule.vectors else [name]
    elif name in reasons.single:
        reasons.rows.append((name, one, reasons.single[name]))
    else:
        reasons.unexplained.append(f"{name}: {one}")
