"""Build the programs that this library is compared with, run the groups, print a table, and draw a picture.

Usage: run.py [--quick] [--only 1,2] [--write]. ``--write`` replaces docs/images/performance.svg, and the table in
docs/performance.md. ``--python PATH`` runs the library with another Python than the distribution's.
"""

from __future__ import annotations

import argparse
import datetime as dt
import html
import os
import platform
import re
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import common
import group_own
import group_real
import group_rest
from common import BUILD, ROOT, Row

GROUPS = (group_real, group_own, group_rest)
PAGE = ROOT / "docs/performance.md"
PICTURE = ROOT / "docs/images/performance.svg"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
HEAD = ("what", "who", "median", "p99", "ratio", "to")
WIDTH, BAR, LABEL, RIGHT = 860, 18, 330, 130


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare this library with Go libcni.")
    parser.add_argument("--quick", action="store_true", help="few rounds, for development")
    parser.add_argument("--only", help="numbers of groups, such as 1,3")
    parser.add_argument("--write", action="store_true", help="put table and picture into docs/")
    parser.add_argument("--python", help="the Python that runs the library; the distribution's if it can")
    options = parser.parse_args()
    if options.python:
        common.DISTRIBUTION = Path(options.python)
    started, load = time.monotonic(), os.getloadavg()[0]
    rows: list[Row] = []
    with common.machinery():
        for group in GROUPS:
            if options.only is None or group.NAME[0] in options.only.split(","):
                print(f"... {group.NAME} ({time.monotonic() - started:.0f} s)", flush=True)
                found = group.run(quick=options.quick)
                print(table(found), flush=True)  # a later group may fail
                rows += found
    note = f"{os.cpu_count()} cores, Linux {platform.release()}, {common.python_in_use()}, "
    note += f"{dt.datetime.now(dt.UTC).date()}, load of the machine before: {load:.1f}"
    picture = PICTURE if options.write else BUILD / "performance.svg"
    picture.write_text(svg(rows, note), encoding="utf-8")
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_TABLE.sub(lambda _: f"{note}\n\n{table(rows)}\n", text), encoding="utf-8")
    print(f"\n{note}; {time.monotonic() - started:.0f} s; picture: {picture.relative_to(ROOT)}")
    for row in rows:
        if row.is_missed:
            print(f"not reached: {row.what}, {row.who}: {row.ratio:.2f} x {row.against}, wanted {abs(row.wanted or 0)}")
    return 0


def table(rows: Sequence[Row]) -> str:
    """Return the figures as Markdown."""
    lines = []
    for group, members in groupby(rows, lambda row: row.group):
        lines += ["", f"### {group[2:].capitalize()}", "", f"| {' | '.join(HEAD)} |", "|---|---|--:|--:|--:|---|"]
        lines += [f"| {' | '.join(cells(row))} |" for row in members]
    return "\n".join(lines).lstrip()


def cells(row: Row) -> tuple[str, ...]:
    unit = f" {row.unit}" if row.unit else ""
    late = "" if row.p99 is None else f"{number(row.p99)}{unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return row.what, row.who, f"{number(row.median)}{unit}", late, ratio, row.against


def number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def svg(rows: Sequence[Row], note: str) -> str:
    """Draw each ratio as a bar, and a line at 1.0: the program that it is compared with."""
    scale, parts, y = (WIDTH - LABEL - RIGHT) / 2.0, [], 44
    chosen = [row for row in rows if row.ratio is not None and row.who != "Go" and row.against not in row.what]
    for group, members in groupby(chosen, lambda row: row.group):
        parts.append(f'<text x="8" y="{y + 26}" font-weight="bold">{html.escape(group[2:])}</text>')
        y += BAR + 16
        for row in members:
            ratio = float(row.ratio or 0)
            width = min(ratio, 2.0) * scale
            label = html.escape(f"{row.what}: {row.who}" if row.who else row.what)
            parts.append(
                f'<text x="{LABEL - 6}" y="{y + 13}" text-anchor="end">{label}</text>'
                f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#5b7fa6" opacity="0.85"/>'
                f'<text x="{LABEL + width + 5:.1f}" y="{y + 13}">{ratio:.2f} x {html.escape(row.against)}'
                f"{' …' if ratio > 2 else ''}</text>"
            )
            y += BAR + 3
    axis = LABEL + scale
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 34}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="8" y="20" font-size="14" font-weight="bold">Ratios of medians: this library to what it is compared '
        f'with</text><text x="8" y="36" fill="#555">{html.escape(note)}; times: shorter is better; rates: longer</text>'
    )
    line = f'<line x1="{axis}" x2="{axis}" y1="48" y2="{y}" stroke="#333" stroke-dasharray="3,3"/>'
    return (
        "\n".join([head, *parts, line, f'<text x="{axis}" y="{y + 14}" text-anchor="middle">1.0</text></svg>']) + "\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
