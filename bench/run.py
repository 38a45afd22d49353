"""Build the programs that this library is compared with, run the groups, print a table, and draw a picture.

Usage: run.py [--quick] [--only 1,2] [--write] [--large]. ``--write`` replaces what it has measured: the groups in
testdata/evidence/performance.md, the pictures, and the table of docs/performance.md, which needs the groups 1 to 3.
``--large`` measures the growth up to 2,000 containers, which takes half an hour more. ``--python PATH`` runs the
library with another Python than the distribution's.
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
import group_growth
import group_own
import group_real
import group_rest
from common import BUILD, ROOT, Row

import libcni

GROUPS = (group_real, group_own, group_rest, group_growth)
PAGE = ROOT / "docs/performance.md"
EVIDENCE = ROOT / "testdata/evidence/performance.md"
IMAGES = ROOT / "docs/images"
_SIZE = re.compile(r"([\d,]+) containers: ([^:]+)\Z")
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
HEAD = ("what", "who", "median", "p99", "ratio", "to")
_GROWTH = re.compile(r"(?<=<!-- growth -->\n).*?(?=<!-- end of growth -->)", re.DOTALL)
WIDTH = 420
INTRODUCTION = """# Measurements

Written by `make bench BENCH=--write`. [The page](../../docs/performance.md) says how it is measured, and has some of
these rows. *Durable* rows sync the records. *Ahead* means `start_ahead="always"`, *not ahead* `"never"`; rows with
real plugins and without that word have the default.
"""
CHOSEN = {  # the rows of the page and its picture: a row's "what" and "who"
    "64 ADDs at once in threads, no-op plugins": ("64 at once: rate", "threads"),
    "list 10,000 records": ("10,000 records: list all", "threads"),
    "ADD, no-op plugins, durable": ("ADD, ext4", "durable, ahead"),
    "ADD + DEL with 10,000 records on disk": ("10,000 records: ADD + DEL", "threads"),
    "ADD with a port + DEL with 10,000 records on disk": ("10,000 records: ADD + DEL, with a port", "threads"),
    "64 ADDs at once on asyncio, no-op plugins": ("64 at once: rate", "asyncio"),
    "64 ADDs at once in threads, each with a port": ("64 at once, each with a port: rate", "threads"),
    "64 ADDs at once in threads, three plugins of 20 ms": ("64 at once, three plugins of 20 ms: rate", "threads"),
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
    parser.add_argument("--large", action="store_true", help="measure the growth up to 2,000 containers")
    options = parser.parse_args()
    common.run_in_own_mounts()
    group_growth.is_large = options.large
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
    note = (
        f"libcni {libcni.__version__}, {os.cpu_count()} cores, Linux {platform.release()}, {common.python_in_use()}, "
    )
    note += f"{dt.datetime.now(dt.UTC).date()}, load average before: {load:.1f}"
    images = IMAGES if options.write else BUILD
    pictures = {"performance.svg": svg(rows, note)} if has_all(rows) else {}
    if grown := growth(rows):
        pictures["growth.svg"] = growth_svg(grown, note)
    for name, picture in pictures.items():
        (images / name).write_text(picture, encoding="utf-8")
    if options.write:
        write(rows, note)
    print(f"\n{note}; {time.monotonic() - started:.0f} s; pictures: {images.relative_to(ROOT)}")
    for row in rows:
        if row.is_missed:
            print(f"not reached: {row.what}, {row.who}: {row.ratio:.2f} x {row.against}, wanted {abs(row.wanted or 0)}")
    return 0


def write(rows: Sequence[Row], note: str) -> None:
    """Replace the groups that were measured in the file of all measurements, and the table of the page."""
    text = EVIDENCE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (.*)\n\n((?:.+\n|\n(?!###))*)", text, re.MULTILINE))
    for group in GROUPS:
        if members := [row for row in rows if row.group == group.NAME]:
            sections[title(group.NAME)] = f"{note}\n\n" + table(members).partition("\n\n")[2]
    names = [title(group.NAME) for group in GROUPS]
    parts = [f"### {name}\n\n{sections[name].strip()}\n" for name in names if name in sections]
    EVIDENCE.write_text("\n".join([INTRODUCTION, *parts]), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    if has_all(rows):
        page = _TABLE.sub(lambda _: f"{note}, {common.go_in_use()}\n\n{chosen_table(rows)}\n", page)
    if grown := growth(rows):
        page = _GROWTH.sub(lambda _: growth_section(grown), page)
    PAGE.write_text(page, encoding="utf-8")


def growth_section(grown: dict[str, dict[int, float]]) -> str:
    """Return the section of the page on many containers."""
    sizes = sorted(next(iter(grown.values())))
    head = f"| containers | {' | '.join(grown)} |\n|--:|{'--:|' * len(grown)}\n"
    lines = [
        f"| {size:,} | {' | '.join(f'{number(times[size])} ms' for times in grown.values())} |\n" for size in sizes
    ]
    return f"""
## Many containers on one node

![How the time of verbs and commands grows with the number of containers](images/growth.svg)

Each container has an interface of `bridge`, an address of `host-local` and a port of `portmap`, which runs iptables
several times: that is most of what grows in ADD, reload and DEL. GC finds all attachments valid.

{head}{"".join(lines)}
`make bench BENCH="--only 4 --large --write"` measures up to 2,000 containers, here in 20 to 30 minutes.

"""


def title(group: str) -> str:
    """Return the heading of a group."""
    return group[2:].capitalize()


def table(rows: Sequence[Row]) -> str:
    """Return the figures as Markdown."""
    lines = []
    for group, members in groupby(rows, lambda row: row.group):
        lines += ["", f"### {title(group)}", "", f"| {' | '.join(HEAD)} |", "|---|---|--:|--:|--:|---|"]
        lines += [f"| {' | '.join(cells(row))} |" for row in members]
    return "\n".join(lines).lstrip()


def chosen_table(rows: Sequence[Row]) -> str:
    """Return the page's rows: Go's figure, this library's, and how many times as fast as Go it is."""
    found = {(row.what, row.who): row for row in rows}
    lines = [
        f"| {label} | {cells(found[what, 'Go'])[2]} | {cells(row)[2]} | {speed(row):.2f} |"
        for label, (what, _), row in chosen_of(rows)
    ]
    return "\n".join(["| what | Go | this library | speed |", "|---|--:|--:|--:|", *lines])


def has_all(rows: Sequence[Row]) -> bool:
    """Return whether the groups with the page's rows were measured."""
    return {group.NAME for group in (group_real, group_own, group_rest)} <= {row.group for row in rows}


def chosen_of(rows: Sequence[Row]) -> list[tuple[str, tuple[str, str], Row]]:
    """Return the page's rows with their labels, the worst news first."""
    found = {(row.what, row.who): row for row in rows}
    chosen = [(label, key, found[key]) for label, key in CHOSEN.items() if key in found]
    return sorted(chosen, key=lambda one: speed(one[2]))


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
    chosen = [(label, row) for label, _, row in chosen_of(rows)]
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
    return drawing(
        y + 38,
        [
            '<text x="8" y="20" font-weight="bold">Times as fast as Go libcni: a longer bar is better</text>',
            *parts,
            f'<text class="note" x="{axis}" y="{y + 12}" text-anchor="middle">1.0: Go libcni</text>',
            f'<text class="note" x="8" y="{y + 30}">{html.escape(short(note))}</text>',
        ],
    )


def short(note: str) -> str:
    return re.sub(r", (\d+ cores|Linux|load)[^,]*", "", note)


def growth(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return the milliseconds of each work of the group of growth, by the number of containers."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if match := _SIZE.match(row.what if row.group == group_growth.NAME else ""):
            found.setdefault(match[2], {})[int(match[1].replace(",", ""))] = row.median
    return found


def growth_svg(grown: dict[str, dict[int, float]], note: str) -> str:
    """Draw how the time of each work grows with the number of containers, both relative to the smallest number."""
    sizes = sorted(next(iter(grown.values())))
    left, top, width, height = 24, 40, 220, 240
    most = max(sizes[-1] / sizes[0], *(max(times.values()) / times[sizes[0]] for times in grown.values()))
    labels: list[tuple[float, str]] = []

    def line(name: str, factors: dict[int, float]) -> str:
        points = [
            (left + width * size / sizes[-1], top + height * (1 - value / most)) for size, value in factors.items()
        ]
        labels.append((points[-1][1], f"{name}: {factors[sizes[-1]]:.1f}"))
        return " ".join(f"{x:.0f},{y:.0f}" for x, y in points)

    parts = [f'<polyline class="linear" points="{line("linear", {size: size / sizes[0] for size in sizes})}"/>']
    for name, times in grown.items():
        factors = {size: times[size] / times[sizes[0]] for size in sizes}
        parts.append(f'<polyline points="{line(name, factors)}"/>')
    last = -99.0
    for y, text in sorted(labels):
        last = max(last + 14, y)
        parts.append(f'<text class="note" x="{left + width + 6}" y="{last + 4:.0f}">{html.escape(text)}</text>')
    for size in sizes:
        x, y = left + width * size / sizes[-1], top + height + 16
        parts += [f'<text class="note" x="{x:.0f}" y="{y}" text-anchor="middle">{size:,}</text>']
    bottom = max(top + height + 16, int(last))
    return drawing(
        bottom + 44,
        [
            f'<text x="8" y="20" font-weight="bold">Time with more containers: times that of {sizes[0]:,}</text>',
            *parts,
            f'<text class="note" x="8" y="{bottom + 18}">containers with bridge, host-local and portmap</text>',
            f'<text class="note" x="8" y="{bottom + 36}">{html.escape(short(note))}</text>',
        ],
    )


def drawing(height: float, parts: Sequence[str]) -> str:
    """Return a picture of parts that lie below each other."""
    style = (
        "text { font: 13px system-ui, sans-serif; fill: #1f2328 } .note { font-size: 11px; fill: #59636e }"
        " rect { fill: #3a6ea5 } .page { fill: #ffffff } line, .linear { stroke: #59636e; stroke-dasharray: 3 3 }"
        " polyline { fill: none; stroke: #3a6ea5; stroke-width: 1.5 }"
        " @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9da7b1 }"
        " rect { fill: #79a9dc } .page { fill: #0d1117 } }"
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 1.5:g}">',
        f'<style>{style}</style><rect class="page" width="100%" height="100%"/>',
        *parts,
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
