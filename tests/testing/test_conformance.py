"""The conformance helper: right plugins pass it, and each fault is seen by the check that is meant for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import Recorder, example

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import Answer, assert_plugin_conforms, check_plugin
from testing.faulty import PREVIOUS, failing


def test_the_ipam_example_conforms(tmp_path: Path) -> None:
    report = assert_plugin_conforms(example("counter"), {"ipam": {"dataDir": str(tmp_path / "data")}}, ipam=True)
    assert report.versions == ALL_VERSIONS
    assert report.failures == []


def test_the_chained_example_conforms(tmp_path: Path) -> None:
    config = {"type": "hosts", "file": str(tmp_path / "h")}
    report = assert_plugin_conforms(example("hosts"), config, prev_result=PREVIOUS, keeps_state=True)
    assert report.versions == ("0.4.0", "1.0.0", "1.1.0")


@pytest.mark.usefixtures("fake_state")
def test_the_fake_bridge_conforms(fake_path: str) -> None:
    config = {"type": "fake-bridge", "ipam": {"subnet": "10.9.0.0/29", "routes": [{"dst": "0.0.0.0/0"}]}}
    options: dict[str, Any] = {"versions": ["0.2.0", "1.1.0"], "keeps_state": True, "only": ["refusals", "life"]}
    report = check_plugin(Path(fake_path, "fake-bridge"), config, **options)
    assert failing(report) == set()


def test_a_plugin_can_be_checked_in_this_process() -> None:
    report = assert_plugin_conforms(Recorder().plugin, {"type": "recorder"}, prev_result=PREVIOUS)
    assert report.plugin == "recorder"
    assert {finding.version for finding in report.findings} == {"", *ALL_VERSIONS}
    assert "ADD (1.0.0): passed" in map(str, report.findings)
    assert str(report) == f"recorder: 0 of {len(report.findings)} checks failed"


Bend = Callable[[str, Mapping[str, str], dict[str, Any], Answer], Answer | None]


class Bent(Plugin):
    """A right plugin, whose answers pass through the hands of ``bend``."""

    def __init__(self, bend: Bend) -> None:
        super().__init__("bent")
        self.bend = bend
        for register in (self.add, self.delete, self.check, self.gc, self.status):
            register(lambda request: None)

    def main(self, *streams: Any, **_: Any) -> int:
        env, stdin, stdout, stderr = streams
        text = stdin.read()
        stdin.seek(0)
        inner = StringIO()
        answer = Answer(super().main(env, stdin, inner, stderr), inner.getvalue(), "")
        try:
            config = json.loads(text)
        except ValueError:
            config = {}
        bent = self.bend(env["CNI_COMMAND"], env, config if isinstance(config, dict) else {}, answer) or answer
        stdout.write(bent.stdout)
        return bent.status


def answer(document: object, status: int = 0) -> Answer:
    return Answer(status, json.dumps(document), "")


RIGHT = Answer(0, '{"cniVersion": "1.1.0"}', "")
BROKEN = answer({"cniVersion": "1.1.0", "code": 999, "msg": "broken"}, 1)


def on(verb: str, bent: Callable[[dict[str, Any], dict[str, Any]], Answer]) -> Bend:
    """Bend the successes of one verb; ``bent`` gets the configuration and the document."""

    def bend(called: str, env: Mapping[str, str], config: dict[str, Any], right: Answer) -> Answer | None:
        if called != verb or right.status:
            return None
        return bent(config, json.loads(right.stdout or "{}"))

    return bend


def result(**changes: Any) -> Bend:
    return on("ADD", lambda config, document: answer({**document, **changes}))


def errors(**changes: Any) -> Bend:
    return lambda verb, env, config, right: answer({**right.document, **changes}, 1) if right.status else None


def accepts(condition: Callable[[str, Mapping[str, str], dict[str, Any]], bool]) -> Bend:
    return lambda verb, env, config, right: RIGHT if right.status and condition(verb, env, config) else None


def breaks(condition: Callable[[str, Mapping[str, str], dict[str, Any]], bool]) -> Bend:
    return lambda verb, env, config, right: BROKEN if not right.status and condition(verb, env, config) else None


FAULTS: list[tuple[str, Bend]] = [
    ("VERSION answers", on("VERSION", lambda config, document: answer({**document, "cniVersion": ""}))),
    ("VERSION answers", on("VERSION", lambda config, document: answer({**document, "supportedVersions": []}))),
    ("VERSION answers", on("VERSION", lambda config, document: Answer(0, "1.1.0", ""))),
    ("VERSION echoes cniVersion", on("VERSION", lambda c, document: answer({**document, "cniVersion": "1.1.0"}))),
    ("VERSION needs CNI_COMMAND only", breaks(lambda v, env, config: v == "VERSION" and "CNI_NETNS" not in env)),
    ("ADD without CNI_NETNS is refused", accepts(lambda v, env, config: v == "ADD" and "CNI_NETNS" not in env)),
    ("CHECK without CNI_NETNS is refused", accepts(lambda v, env, config: v == "CHECK" and "CNI_NETNS" not in env)),
    ("DEL without CNI_IFNAME is refused", accepts(lambda v, env, config: v == "DEL" and "CNI_IFNAME" not in env)),
    ("ADD without CNI_IFNAME is refused", errors(msg="something is missing")),
    ("an invalid CNI_CONTAINERID is refused", accepts(lambda v, env, config: env.get("CNI_CONTAINERID") == "../x")),
    ("an invalid CNI_IFNAME is refused", accepts(lambda v, env, config: env.get("CNI_IFNAME") == "a/b")),
    ("DEL without CNI_PATH", breaks(lambda v, env, config: v == "DEL" and "CNI_PATH" not in env)),
    ("garbage on stdin is refused", accepts(lambda v, env, config: v == "ADD" and not config)),
    ("nothing on stdin is refused", accepts(lambda v, env, config: v == "ADD" and not config)),
    ("a list on stdin is refused", accepts(lambda v, env, config: v == "ADD" and not config)),
    ("garbage on stdin is refused", errors(code=5)),
    ("no network name is refused", accepts(lambda v, env, config: "name" not in config)),
    ("an invalid network name is refused", accepts(lambda v, env, config: config.get("name") == "../x")),
    ("an unknown cniVersion is refused", accepts(lambda v, env, config: config.get("cniVersion") == "9.9.9")),
    ("an unknown cniVersion is refused", errors(code=7)),
    ("an unknown verb is refused", accepts(lambda v, env, config: v == "NOPE")),
    ("an error has the cniVersion", errors(cniVersion="0.1.0")),
    ("an unknown verb is refused", errors(code="4")),
    ("an unknown verb is refused", lambda v, e, c, right: Answer(1, right.stdout * 2, "") if right.status else None),
    ("an unknown verb is refused", lambda v, e, c, right: Answer(1, "", "text") if right.status else None),
    ("STATUS", breaks(lambda v, env, config: v == "STATUS")),
    ("ADD", breaks(lambda v, env, config: v == "ADD")),
    ("ADD", on("ADD", lambda config, document: Answer(0, "", ""))),
    ("ADD", on("ADD", lambda config, document: Answer(0, "log line\n{}", ""))),
    ("ADD", on("ADD", lambda config, document: answer([document]))),
    ("ADD", result(cniVersion="0.9.0")),
    ("ADD", result(ips=[{"address": "10.0.0.2"}])),
    ("ADD", result(ips=[{"address": "10.0.0.2/24", "interface": 1}])),
    ("ADD keeps prevResult", result(ips=[])),
    ("CHECK", breaks(lambda v, env, config: v == "CHECK")),
    ("GC", breaks(lambda v, env, config: v == "GC" and bool(config.get("cni.dev/valid-attachments")))),
    (
        "GC without valid attachments",
        breaks(lambda v, env, config: v == "GC" and config.get("cni.dev/valid-attachments") == []),
    ),
    ("DEL", breaks(lambda v, env, config: v == "DEL")),
    ("DEL without CNI_NETNS", breaks(lambda v, env, config: v == "DEL" and "CNI_NETNS" not in env)),
    ("DEL without prevResult", breaks(lambda v, env, config: v == "DEL" and "prevResult" not in config)),
]


@pytest.mark.parametrize(("check", "bend"), FAULTS, ids=[f"{n}-{check}" for n, (check, _) in enumerate(FAULTS)])
def test_each_fault_is_seen_by_its_check(check: str, bend: Bend) -> None:
    previous = PREVIOUS if check != "DEL without prevResult" else {"ips": [{"address": "10.0.0.2/24"}]}
    report = check_plugin(Bent(bend), {"type": "bent"}, prev_result=previous, versions=["0.3.1", "1.1.0"])
    assert check in {finding.check for finding in report.failures}
    assert f"\n  {check}" in str(report)


def test_a_previous_result_that_a_version_cannot_express_is_refused() -> None:
    previous = {"interfaces": PREVIOUS["interfaces"]}
    with pytest.raises(ValueError, match=r"cannot be converted to version 0\.1\.0 .*: .*no valid IP addresses"):
        check_plugin(Bent(lambda *given: None), {"type": "bent"}, prev_result=previous)
    assert_plugin_conforms(Bent(lambda *given: None), {"type": "bent"}, prev_result=previous, versions=["1.1.0"])


class Counting(Recorder):
    """A plugin that remembers its attachments, wrongly in one way."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.known: set[tuple[str, str, str]] = set()
        super().__init__(add=self._add, delete=self._delete, check=self._check, gc=self._gc)

    def _key(self, request: Request) -> tuple[str, str, str]:
        return request.name, request.container_id, request.ifname

    def _add(self, request: Request) -> None:
        self.known.add(self._key(request))

    def _delete(self, request: Request) -> None:
        if self.fault == "a second DEL fails" and self._key(request) not in self.known:
            raise VerbError("not there")
        if self.fault == "DEL makes a file" and request.netns:
            Path(request.netns).touch()
        self.known.discard(self._key(request))

    def _check(self, request: Request) -> None:
        if self._key(request) not in self.known:
            raise VerbError("not there")

    def _gc(self, request: Request) -> None:
        valid = set() if self.fault == "GC frees all" else request.valid_attachments
        foreign = self.fault == "GC frees all networks"
        self.known = {key for key in self.known if key[1:] in valid or (key[0] != request.name and not foreign)}


def test_a_plugin_with_a_memory_conforms() -> None:
    assert failing(check_plugin(Counting("").plugin, {})) == set()


def test_del_must_not_fail_where_nothing_is_left() -> None:
    report = check_plugin(Counting("a second DEL fails").plugin, {}, versions=["1.0.0"])
    assert failing(report) == {
        "DEL without CNI_PATH",
        "DEL again",
        "DEL without CNI_NETNS",
        "DEL without namespace",
        "DEL without prevResult",
        "DEL without an earlier ADD",
    }


def test_del_must_not_make_what_is_not_there() -> None:
    report = check_plugin(Counting("DEL makes a file").plugin, {}, versions=["1.0.0", "1.1.0"])
    assert failing(report) == {"DEL creates no namespace file"}
    for finding in report.failures:
        assert not Path(finding.problem.removeprefix("it created ")).exists()


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        (
            "GC frees all",
            {
                "GC keeps valid attachments",
                "GC without a list of attachments frees nothing",
                "GC keeps other networks",
                "GC keeps a valid interface",
            },
        ),
        ("GC frees all networks", {"GC keeps other networks"}),
    ],
)
def test_gc_must_spare_what_is_valid_and_what_is_not_its_own(fault: str, checks: set[str]) -> None:
    assert failing(check_plugin(Counting(fault).plugin, {})) == checks


@pytest.mark.parametrize(
    "change", [{"interfaces": [{"name": "eth0"}]}, {"ips": [{"address": "10.0.0.2/24", "interface": 0}]}]
)
def test_an_ipam_plugin_prints_an_abbreviated_result(change: dict[str, Any]) -> None:
    fixed = {"ipam": {"addresses": ["10.0.0.2/24"]}}
    report = check_plugin(Bent(result(**change)), fixed, ipam=True, versions=["1.1.0"])
    assert failing(report) == {"ADD"}
    assert "an IPAM plugin leaves" in str(report)


def test_a_fault_fails_the_assertion_and_its_text_names_it() -> None:
    with pytest.raises(AssertionError, match="an error has the cniVersion"):
        assert_plugin_conforms(Bent(errors(cniVersion="0.1.0")), {}, versions=["1.1.0"])
