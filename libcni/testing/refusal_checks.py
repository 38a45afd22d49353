"""Checks of VERSION, and of calls that a plugin must refuse (spec 1.1.0, sections 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from libcni.config.versions import ALL_VERSIONS, SINCE, supports
from libcni.plugin.received import REQUIRED
from libcni.testing.calling import Answer
from libcni.testing.document_checks import error_problems, version_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, without


def check_version_verb(exam: Examination) -> tuple[str, ...]:
    """Check VERSION, and return the known versions that the plugin supports."""
    answer = exam.call("VERSION", {"cniVersion": "0.4.0"})
    document, problem = document_of(answer)
    exam.add_finding("VERSION answers", problem or version_problems(document))
    exam.add_finding("VERSION echoes cniVersion", _wrong_version(document, "0.4.0"))
    bare = exam.call("VERSION", {"cniVersion": "0.4.0"}, env={**ATTACHMENT, "CNI_PATH": None, "CNI_ARGS": None})
    exam.add_finding("VERSION needs CNI_COMMAND only", document_of(bare)[1])
    offered = document.get("supportedVersions") or []
    return tuple(version for version in ALL_VERSIONS if version in offered)


def check_invalid_calls(exam: Examination) -> None:
    """Check that missing variables and invalid configurations are refused, with the right code."""
    config, version = exam.config(), exam.version
    exam.version = ""  # these rules do not depend on it
    for verb in ("ADD", "DEL", "CHECK"):
        if verb not in SINCE or supports(version, verb):
            for name in REQUIRED[verb]:
                answer = _call(exam, verb, config, env={name: None})
                _check_refused(exam, f"{verb} without {name}", answer, 4, mention=name)
    for name, value in (("CNI_CONTAINERID", "../x"), ("CNI_IFNAME", "a/b")):
        _check_refused(exam, f"an invalid {name}", _call(exam, "ADD", config, env={name: value}), 4)
    if not _delegates(without(config, "ipam") if exam.ipam else config):  # a delegate is found on CNI_PATH
        exam.expect_success("DEL without CNI_PATH", exam.call("DEL", config, env={"CNI_PATH": None}))
    wrong: list[tuple[str, dict[str, Any] | bytes, int]] = [
        ("garbage on stdin", b"garbage", 6),
        ("nothing on stdin", b"", 6),
        ("a list on stdin", b"[]", 6),
        ("no network name", without(config, "name"), 7),
        ("an invalid network name", {**config, "name": "../x"}, 7),
        ("an unknown cniVersion", {**config, "cniVersion": "9.9.9"}, 1),
    ]
    for check, stdin, code in wrong:
        _check_refused(exam, check, _call(exam, "ADD", stdin), code)
    _check_refused(exam, "an unknown verb", exam.call("NOPE", config), 4)
    refused = document_of(_call(exam, "ADD", config, env={"CNI_IFNAME": None}), must_fail=True)[0]
    exam.add_finding("an error has the cniVersion", _wrong_version(refused, version))


def _delegates(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration names another plugin, as in ``ipam``, or flannel's ``delegate``."""
    parts = chain.from_iterable(value if isinstance(value, list) else [value] for value in config.values())
    return any(isinstance(part, dict) and "type" in part for part in parts)


def _call(exam: Examination, verb: str, config: dict[str, Any] | bytes, **changes: Any) -> Answer:
    """Call the plugin; take down what an ADD has made that it should have refused."""
    answer = exam.call(verb, config, **changes)
    if verb == "ADD" and answer.status == 0:
        exam.call("DEL", config, **changes)
    return answer


def _wrong_version(document: dict[str, Any], expected: str) -> str:
    version = document.get("cniVersion")
    return "" if version == expected else f"cniVersion is {version!r} and not {expected!r}"


def _check_refused(exam: Examination, check: str, answer: Answer, code: int, mention: str = "") -> None:
    """Add the finding that a call was refused with ``code``, and with a text that contains ``mention``."""
    document, problem = document_of(answer, must_fail=True)
    if not problem:
        problem = "; ".join(error_problems(document))
    if not problem and document["code"] != code:
        problem = f"code {document['code']} and not {code} ({document['msg']})"
    if not problem and mention not in f"{document['msg']} {document.get('details', '')}":
        problem = f"{mention} is not named: {document['msg']}"
    exam.add_finding(f"{check} is refused", problem)
