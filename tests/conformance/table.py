"""testdata/evidence/differences.md, from what Go libcni did with the vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance.golang import GO_VERSION, REASONS, Reasons
from conformance.observe import Difference

_HEAD = f"""# Differences from Go libcni

For a person who moves from Go libcni and wants each detail; [Migrate](../../docs/how-to/migrate.md) has the short list.
`make conformance-go` writes this page: it executes the vectors in `testdata/` with Go libcni {GO_VERSION} of Debian 12.
Each difference needs a reason in `testdata/go-differences.yaml`. What a vector says and why is in `testdata/`.

"""


def render(reasons: Reasons, total: int) -> str:
    """Return the page."""
    return "".join(
        [_HEAD, _counts(reasons, total), _rules(reasons), _single(reasons), _unknown(reasons), newest(), plugin_side()]
    )


def _counts(reasons: Reasons, total: int) -> str:
    unknown = len(reasons.unknown)
    different = total - unknown - reasons.same
    return (
        f"Of {total} vectors Go libcni does the same in {reasons.same} and something else in {different}. {unknown} "
        f"need what Go libcni {GO_VERSION} does not have.\n\n"
    )


def _rules(reasons: Reasons) -> str:
    rows = [(rule.what, rule.why, _named(rule.vectors)) for rule in reasons.rules]
    head = "## Differences in many vectors\n\n"
    return head + _table(("what Go does", "why it is different here", "vectors"), rows)


def _single(reasons: Reasons) -> str:
    by_vector: dict[str, tuple[list[Difference], str]] = {}
    for name, one, why in reasons.rows:
        by_vector.setdefault(name, ([], why))[0].append(one)
    rows = [
        (f"`{name}`", _lines(_go(one) for one in found), _lines(_ours(one) for one in found), why)
        for name, (found, why) in sorted(by_vector.items())
    ]
    return "## Differences of one vector\n\n" + _table(("vector", "what Go does", "what we do", "why"), rows)


def _unknown(reasons: Reasons) -> str:
    head = f"## Not in Go libcni {GO_VERSION}\n\n"
    needs: dict[str, list[str]] = {}
    for report in reasons.unknown:
        needs.setdefault(report.unknown, []).append(report.vector.name)
    return head + _table(("what", "vectors"), [(what, _named(names, 1000)) for what, names in sorted(needs.items())])


def newest() -> str:
    """Return the section on the newest Go libcni, from testdata/go-differences.yaml."""
    rows = yaml.safe_load(REASONS.read_text(encoding="utf-8"))["newest"]
    head = (
        "## The newest Go libcni\n\n"
        "Go libcni 1.3 and its main branch of August 2026, by their sources. The vectors were executed with 1.3.0 by "
        "hand, in November 2026: it does the same in 359 of 557. The others differ as with 1.1.2, or as these rows "
        "say, or because its GC returns its errors as one text. The last "
        "column names the vector or the test of what this library does.\n\n"
    )
    cells = [(row["about"], row["go"], row["here"], f"`{row['shown']}`") for row in rows]
    return head + _table(("about", "what Go does", "what we do", "shown by"), cells)


def plugin_side() -> str:
    """Return the section on the plugin side, from testdata/skel-differences.yaml."""
    file = Path(__file__).resolve().parents[2] / "testdata/skel-differences.yaml"
    cases = yaml.safe_load(file.read_text(encoding="utf-8"))["cases"]
    head = (
        "## Plugin side: pkg/skel\n\n"
        "Of the cases of Go's tests of `pkg/skel` (`pkg/skel/skel_test.go`) `libcni.plugin` answers these otherwise, "
        "on purpose; `tests/plugin/test_skel_differences.py` makes each call.\n\n"
    )
    rows = [(case["case"], case["go"], _skel_answer(case["answer"]), case["why"]) for case in cases]
    return head + _table(("case", "what Go does", "what we do", "why"), rows)


def _skel_answer(answer: Mapping[str, Any]) -> str:
    if "raises" in answer:
        return "`Plugin(...)` raises VersionError"
    if "stderr" in answer:
        return "the about text on stderr, exit status 0"
    if "code" in answer:
        text = answer["msg"].replace("\\", "").replace(" .* ", " ... ")
        return f"code {answer['code']}, {text}"
    return f"`{json.dumps(answer['document'])}`" if "document" in answer else "succeeds"


def _named(names: Sequence[str], shown: int = 6) -> str:
    text = ", ".join(f"`{name}`" for name in names[:shown])
    return text if len(names) <= shown else f"{text} and {len(names) - shown} more"


def _go(one: Difference) -> str:
    return f"{one.place}: {one.seen}"


def _ours(one: Difference) -> str:
    return f"{one.place}: {one.expected}"


def _lines(parts: Iterable[str]) -> str:
    return "<br>".join(parts)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines) + "\n"


def _cell(text: str) -> str:
    shortened = text if len(text) <= 600 else f"{text[:600]}..."
    return shortened.replace("\n", " ").replace("|", "\\|").strip()
