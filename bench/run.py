"""Build the programs that this library is compared with, run the groups, print a table, and draw a picture.

Usage: run.py [--quick] [--only 1,4] [--write]. ``--write`` replaces docs/images/performance.svg, and the table in
docs/performance.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import re
import time

import group_chain
import group_parallel
import group_price
import group_real
import group_records
import group_size
import group_start
from common import BUILD, ROOT, Row, ext4_in_use, machinery
from picture import svg
from report import machine, markdown, table

GROUPS = (group_chain, group_parallel, group_real, group_records, group_size, group_start, group_price)
PAGE = ROOT / "docs/performance.md"
PICTURE = ROOT / "docs/images/performance.svg"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare this library with Go libcni and with a bare posix_spawn.")
    parser.add_argument("--quick", action="store_true", help="few rounds, for development")
    parser.add_argument("--only", help="numbers of groups, such as 1,4")
    parser.add_argument("--write", action="store_true", help="put table and picture into docs/")
    options = parser.parse_args()
    started = time.monotonic()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with machinery():
        disk = ext4_in_use()
        for group in GROUPS:
            if options.only is None or group.NAME[0] in options.only.split(","):
                print(f"... {group.NAME} ({time.monotonic() - started:.0f} s)", flush=True)
                rows += group.run(quick=options.quick)
    note = f"{machine()}, {disk}, {dt.datetime.now(dt.UTC).date()}, load of the machine before: {load:.1f}"
    print(table(rows))
    (BUILD / "rows.json").write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1), encoding="utf-8")
    picture = PICTURE if options.write else BUILD / "performance.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg(rows, note), encoding="utf-8")
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_TABLE.sub(lambda _: f"{note}\n\n{markdown(rows)}", text), encoding="utf-8")
    missed = [row for row in rows if row.met is False]
    print(f"\n{note}; {time.monotonic() - started:.0f} s; picture: {picture.relative_to(ROOT)}")
    for row in missed:
        print(f"not reached: {row.group}, {row.what}, {row.who}: {row.ratio:.2f} x {row.against}, bar {row.limit}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
