"""Build the programs that this library is compared with, run the groups, print a table, and draw a picture.

Usage: run.py [--quick] [--only 1,2] [--write]. ``--write`` replaces testdata/evidence/performance.md, and the
picture and the ten rows of docs/performance.md. ``--python PATH`` runs the library with another Python than the
distribution's.
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
EVIDENCE = ROOT / "testdata/evidence/performance.md"
PICTURE = ROOT / "docs/images/performance.svg"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
HEAD = ("what", "who", "median", "p99", "ratio", "to")
WIDTH = 420
INTRODUCTION = """# Measurements

Written by `make bench BENCH=--write`. [The page](../../docs/performance.md) says how it is measured, and has ten of
these rows. *Durable* rows sync the records. *Ahead* means `start_ahead="always"`, *not ahead* `"never"`; rows with
real plugins and without that word have the default.
"""
CHOSEN = {  # the rows of the page and its picture, worst news first: a row's "what" and "who"
    "64 ADDs at once in threads, no-op plugins": ("64 at once: rate", "threads"),
    "list 10,000 records": ("10,000 records: list all", "threads"),
    "ADD, no-op plugins, durable": ("ADD, ext4", "durable, ahead"),
    "ADD + DEL with 10,000 records on disk": ("10,000 records: ADD + DEL", "threads"),
    "64 ADDs at once on asyncio, no-op plugins": ("64 at once: rate", "asyncio"),
    "8 ADDs at once, bridge + tuning, durable": ("8 at once, bridge + tuning: rate", "asyncio, durable"),
    "ADD, bridge + tuning, durable": ("bridge + tuning: ADD", "durable"),
    "ADD + DEL, four real plugins, durable": ("bridge + tuning + portmap + firewall: ADD + DEL", "durable"),
    "ADD + DEL, bridge + tuning, durable": ("bridge + tuning: ADD + DEL", "durable"),
    "ADD, no-op plugins, tmpfs, not durable": ("ADD, tmpfs", "ahead"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare this library with Go libcni.")
    parser.add_argument("--quick", action="store_true", help="few rounds, for development")
    parser.add_argument("--only", help="numbers of groups, such as 1,3")
    parser.add_argument("--write", action="store_true", help="put tables and picture into testdata/evidence/ and docs/")
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
    note += f"{dt.datetime.now(dt.UTC).date()}, load average before: {load:.1f}"
    picture = PICTURE if options.write else BUILD / "performance.svg"
    picture.write_text(svg(rows, note), encoding="utf-8")
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_TABLE.sub(lambda _: f"{note}\n\n{ten(rows)}\n", text), encoding="utf-8")
        EVIDENCE.write_text(f"{INTRODUCTION}\n{note}\n\n{table(rows)}\n", encoding="utf-8")
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


def ten(rows: Sequence[Row]) -> str:
    """Return the page's rows: Go's figure, this library's, and how many times as fast as Go it is."""
    found = {(row.what, row.who): row for row in rows}
    lines = ["| what | Go | this library | speed |", "|---|--:|--:|--:|"]
    for label, (what, who) in CHOSEN.items():
        if (row := found.get((what, who))) and (go := found.get((what, "Go"))):
            lines.append(f"| {label} | {cells(go)[2]} | {cells(row)[2]} | {speed(row):.2f} |")
    return "\n".join(lines)


def speed(row: Row) -> float:
    ratio = float(row.ratio or 1)
    return ratio if row.unit == "/s" else 1 / ratio


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
    """Draw the page's rows: how many times as fast as Go this library is, whatever the row measures."""
    found = {(row.what, row.who): row for row in rows}
    chosen = [(label, found[key]) for label, key in CHOSEN.items() if key in found]
    scale, y = (WIDTH - 60) / 2.0, 36
    axis = 8 + scale
    parts = []
    for label, row in chosen:
        width = min(speed(row), 2.0) * scale
        parts.append(
            f'<text x="8" y="{y + 12}">{html.escape(label)}</text>'
            f'<rect x="8" y="{y + 18}" width="{width:.1f}" height="14" rx="2"/>'
            f'<line x1="{axis}" x2="{axis}" y1="{y + 15}" y2="{y + 35}"/>'
            f'<text x="{WIDTH - 8}" y="{y + 30}" text-anchor="end">{speed(row):.2f}</text>'
        )
        y += 42
    style = (
        "text { font: 13px system-ui, sans-serif; fill: #1f2328 } .note { font-size: 11px; fill: #59636e }"
        " rect { fill: #3a6ea5 } .page { fill: #ffffff } line { stroke: #59636e; stroke-dasharray: 3 3 }"
        " @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9da7b1 }"
        " rect { fill: #79a9dc } .page { fill: #0d1117 } }"
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 38}" width="{WIDTH * 1.5:g}">',
        f'<style>{style}</style><rect class="page" width="100%" height="100%"/>',
        '<text x="8" y="20" font-weight="bold">Times as fast as Go libcni: a longer bar is better</text>',
        *parts,
        f'<text class="note" x="{axis}" y="{y + 12}" text-anchor="middle">1.0: Go libcni</text>',
        f'<text class="note" x="8" y="{y + 30}">{html.escape(re.sub(r", (Linux|load) [^,]*", "", note))}</text>',
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
