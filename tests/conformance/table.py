"""testdata/evidence/differences.md, from what Go libcni did with the vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance.golang import INSTALLED, NEWEST, REASONS, Reasons
from conformance.observe import Difference

_HEAD = f"""# Differences from Go libcni

For a person who moves from Go libcni and wants each detail; [Migrate](../../docs/how-to/migrate.md) has the short list.
`make conformance-go` writes this page: it executes the vectors in `testdata/` with Go libcni {INSTALLED} of Debian 12,
built by Go 1.19, and {NEWEST} of Debian sid, built by Go 1.27.
Each difference needs a reason in `testdata/go-differences.yaml`. What a vector says and why is in `testdata/`.

"""


def render(each: Mapping[str, Reasons], total: int) -> str:
    """Return the page; ``each``: the reasons by version of Go libcni."""
    parts = [_HEAD, _counts(each, total), _rules(each), _single(each)]
    return "".join([*parts, *(_unknown(*one) for one in each.items()), newest(), plugin_side()])


def _counts(each: Mapping[str, Reasons], total: int) -> str:
    rows = [
        (version, str(one.same), str(total - len(one.unknown) - one.same), str(len(one.unknown)))
        for version, one in each.items()
    ]
    return f"Of {total} vectors:\n\n" + _table(("Go libcni", "the same", "something else", "does not have it"), rows)


def _rules(each: Mapping[str, Reasons]) -> str:
    rows = [
        (rules[0].what, rules[0].why, *(_named(rule.vectors, 3) for rule in rules))
        for rules in zip(*(reasons.rules for reasons in each.values()), strict=True)
    ]
    head = "## Differences in many vectors\n\n"
    return head + _table(("what Go does", "why it is different here", *each), rows)


def _single(each: Mapping[str, Reasons]) -> str:
    why: dict[str, str] = {}
    found: dict[str, dict[str, list[Difference]]] = {}
    for version, reasons in each.items():
        for name, one, reason in reasons.rows:
            why[name] = reason
            found.setdefault(name, {}).setdefault(version, []).append(one)
    rows = []
    for name, by_version in sorted(found.items()):
        ours = dict.fromkeys(_ours(one) for differences in by_version.values() for one in differences)
        rows.append((f"`{name}`", *(_of_go(version, by_version, each) for version in each), _lines(ours), why[name]))
    titles = [f"what Go {version} does" for version in each]
    return "## Differences of one vector\n\n" + _table(("vector", *titles, "what we do", "why"), rows)


def _of_go(version: str, by_version: Mapping[str, list[Difference]], each: Mapping[str, Reasons]) -> str:
    """Return what a version does; of a later one that does what the first does, only that."""
    told = _lines(_go(one) for one in by_version.get(version, ()))
    first = next(iter(each))
    if version != first and told and told == _lines(_go(one) for one in by_version.get(first, ())):
        return "the same"
    return told or "what we do, or does not have it"


def _unknown(version: str, reasons: Reasons) -> str:
    head = f"## Not in Go libcni {version}\n\n"
    needs: dict[str, list[str]] = {}
    for report in reasons.unknown:
        needs.setdefault(report.unknown, []).append(report.vector.name)
    return head + _table(("what", "vectors"), [(what, _named(names, 1000)) for what, names in sorted(needs.items())])


def newest() -> str:
    """Return the section on the newest Go libcni, from testdata/go-differences.yaml."""
    rows = yaml.safe_load(REASONS.read_text(encoding="utf-8"))["newest"]
    head = (
        "## The newest Go libcni\n\n"
        "Further differences from Go libcni 1.3.0 and its main branch of August 2026, by their sources. The last "
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
