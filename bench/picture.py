"""The ratios as one picture: a bar for each row, and a line at 1.0, the program that it is compared with."""

from __future__ import annotations

import html
from collections.abc import Sequence

from common import Row

WIDTH, BAR, LABEL, RIGHT = 860, 18, 330, 130
COLOUR = "#5b7fa6"


def svg(rows: Sequence[Row], note: str) -> str:
    """Draw each ratio as a bar."""
    chosen = [row for row in rows if row.ratio is not None and row.against not in {row.who, row.what}]
    chosen = [row for row in chosen if row.who != "Go" and not (row.who == "C" and row.against == "Go")]
    scale = (WIDTH - LABEL - RIGHT) / 2.0
    parts: list[str] = []
    y = 44
    group = ""
    for row in chosen:
        if row.group != group:
            group = row.group
            y += 14
            parts.append(f'<text x="8" y="{y + 12}" font-weight="bold">{html.escape(group)}</text>')
            y += BAR + 2
        parts.append(_bar(row, y, scale))
        y += BAR + 3
    axis = LABEL + scale
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 34}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="8" y="20" font-size="14" font-weight="bold">Ratios of medians: this library to what it is compared '
        f'with</text><text x="8" y="36" fill="#555">{html.escape(note)}; times: shorter is better; /s: longer is better'
        f"</text>"
    )
    line = f'<line x1="{axis}" x2="{axis}" y1="48" y2="{y}" stroke="#333" stroke-dasharray="3,3"/>'
    foot = f'<text x="{axis}" y="{y + 14}" text-anchor="middle">1.0</text></svg>'
    return "\n".join([head, *parts, line, foot]) + "\n"


def _bar(row: Row, y: int, scale: float) -> str:
    ratio = float(row.ratio or 0)
    width = min(ratio, 2.0) * scale
    label = html.escape(f"{row.what}: {row.who}" if row.who else row.what)
    more = " …" if ratio > 2 else ""
    return (
        f'<text x="{LABEL - 6}" y="{y + 13}" text-anchor="end">{label}</text>'
        f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOUR}" opacity="0.85"/>'
        f'<text x="{LABEL + width + 5:.1f}" y="{y + 13}">{ratio:.2f} x {html.escape(row.against)}{more}</text>'
    )
