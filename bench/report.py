"""The figures as a table for the terminal and as Markdown."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

from common import Row

HEAD = ("what", "who", "median", "p99", "ratio", "to", "bar", "")


def cells(row: Row) -> tuple[str, ...]:
    unit = f" {row.unit}" if row.unit else ""
    return (
        row.what,
        row.who,
        f"{number(row.median)}{unit}",
        f"{number(row.p99)}{unit}" if row.p99 is not None else "",
        f"{row.ratio:.3f}"
        if row.ratio is not None and row.ratio < 0.1
        else f"{row.ratio:.2f}"
        if row.ratio is not None
        else "",
        row.against,
        "" if row.limit is None else f"<= {row.limit:g}" if row.limit > 0 else f">= {-row.limit:g}",
        {None: "", True: "yes", False: "NO"}[row.met],
    )


def number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def table(rows: Sequence[Row]) -> str:
    shown = [cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [HEAD, *shown]) for column in range(len(HEAD))]
    lines = []
    group = ""
    for row, line in zip(rows, shown, strict=True):
        if row.group != group:
            group = row.group
            lines += ["", group, _line(HEAD, widths)]
        lines.append(_line(line, widths))
    return "\n".join(lines)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    left = [text.ljust(width) for text, width in zip(texts[:2], widths[:2], strict=True)]
    right = [text.rjust(width) for text, width in zip(texts[2:5], widths[2:5], strict=True)]
    rest = [text.ljust(width) for text, width in zip(texts[5:], widths[5:], strict=True)]
    return "  " + "  ".join([*left, *right, *rest]).rstrip()


def markdown(rows: Sequence[Row]) -> str:
    """Return the table for the documentation: the figures without the bars, which are for developers."""
    lines = []
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines += [
                "",
                f"### {group[2:].capitalize()}",
                "",
                f"| {' | '.join(HEAD[:6])} |",
                "|---|---|--:|--:|--:|---|",
            ]
        lines.append(f"| {' | '.join(cells(row)[:6])} |")
    return "\n".join(lines).lstrip()


def machine() -> str:
    return f"{os.cpu_count()} cores, Linux {platform.release()}, Python {sys.version.split()[0]}"
