"""Checks of VERSION, and of calls that a plugin must refuse (spec 1.1.0, sections 2 and 3)."""

from __future__ import annotations

from typing import Any

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin.received import REQUIRED
from libcni.testing.calling import Answer
from libcni.testing.document_checks import error_problems, version_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, has_verb, without


def check_version_verb(exam: Examination) -> None:
    """Check VERSION, and take the supported versions from it."""
    answer = exam.call("VERSION", {"cniVersion": "0.4.0"})
    document, problem = document_of(answer, 0)
    exam.add_finding("VERSION answers", problem or version_problems(document))
    offered = document.get("supportedVersions") or []
    exam.supported = tuple(version for version in ALL_VERSIONS if version in offered)
    echoed = document.get("cniVersion")
    exam.add_finding(
        "VERSION echoes cniVersion", "" if echoed == "0.4.0" else f"cniVersion is {echoed!r} and not '0.4.0'"
    )
    bare = exam.call("VERSION", {"cniVersion": "0.4.0"}, env={**ATTACHMENT, "CNI_PATH": None, "CNI_ARGS": None})
    exam.add_finding("VERSION needs CNI_COMMAND only", document_of(bare, 0)[1])


def check_invalid_calls(exam: Examination, version: str) -> None:
    """Check that missing variables and invalid configurations are refused, with the right code."""
    config = exam.config(version)
    _check_environment(exam, config, version)
    for check, stdin in (("garbage on stdin", b"garbage"), ("nothing on stdin", b""), ("a list on stdin", b"[]")):
        check_refused(exam, check, exam.call("ADD", stdin), (6,))
    check_refused(exam, "no network name", exam.call("ADD", without(config, "name")), (7,))
    check_refused(exam, "an invalid network name", exam.call("ADD", {**config, "name": "../x"}), (7,))
    check_refused(exam, "an unknown cniVersion", exam.call("ADD", {**config, "cniVersion": "9.9.9"}), (1,))
    check_refused(exam, "an unknown verb", exam.call("NOPE", config), (4,))
    echoed = document_of(exam.call("ADD", config, env={"CNI_IFNAME": None}), 1)[0].get("cniVersion")
    exam.add_finding(
        "an error has the cniVersion", "" if echoed == version else f"cniVersion is {echoed!r} and not {version!r}"
    )


def _check_environment(exam: Examination, config: dict[str, Any], version: str) -> None:
    for verb in ("ADD", "DEL", "CHECK"):
        for name in REQUIRED[verb] if has_verb(verb, version) else ():
            answer = exam.call(verb, config, env={name: None})
            check_refused(exam, f"{verb} without {name}", answer, (4,), mention=name)
    for name, value in (("CNI_CONTAINERID", "../x"), ("CNI_IFNAME", "a/b")):
        check_refused(exam, f"an invalid {name}", exam.call("ADD", config, env={name: value}), (4,))
    if "ipam" not in config or exam.ipam:
        exam.expect_success("DEL without CNI_PATH", exam.call("DEL", config, env={"CNI_PATH": None}))


def check_refused(  # noqa: PLR0913, PLR0917 - a call and all that is expected of it
    exam: Examination, check: str, answer: Answer, codes: tuple[int, ...], version: str = "", mention: str = ""
) -> None:
    """Add the finding that a call was refused with one of ``codes``, and with a text that contains ``mention``."""
    document, problem = document_of(answer, 1)
    if not problem:
        problem = "; ".join(error_problems(document))
    if not problem and document["code"] not in codes:
        problem = f"code {document['code']} and not {codes[0]} ({document['msg']})"
    if not problem and mention not in f"{document['msg']} {document.get('details', '')}":
        problem = f"{mention} is not named: {document['msg']}"
    exam.add_finding(f"{check} is refused", problem, version)
