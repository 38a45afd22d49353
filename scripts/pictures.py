"""Draw docs/pictures/*.svg from the texts beside them; ``--check`` fails if one of them is not as its text says.

A line of a text draws one thing: ``size WIDTH HEIGHT``, ``box NAME X Y WIDTH HEIGHT KIND "LINE" ...``,
``text X Y "LINE"`` (or ``note``, smaller, or ``code``), ``arrow FROM TO ["LABEL"]``, ``legend X Y KIND "LINE"``. FROM
and TO are points, ``X,Y``, or sides of boxes: ``NAME.left``, ``.right``, ``.top``, ``.bottom``; ``NAME.left@0.25`` is a
quarter of the side down.

``event FROM TO EVENT`` is an arrow between states of the model's table: the table must have it, and each of its events
that leads to another state must be drawn.
"""

from __future__ import annotations

import html
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from libcni.store.model import READY, STATES

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SIDES = {"left": (0.0, None), "right": (1.0, None), "top": (None, 0.0), "bottom": (None, 1.0)}
# Both colour schemes are in the picture: a browser chooses by what its user prefers, in a page's <img> too.
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .code { font-family: ui-monospace, monospace; font-size: 12px }
  .note { font-size: 12px; fill: #59636e }
  rect { stroke: #59636e; fill: #ffffff }
  .record { fill: #dff3e4; stroke: #2d7d46 }
  .plugin { fill: #e2ecf9; stroke: #3a6ea5 }
  .danger { fill: #fdeceb; stroke: #b3372f }
  .frame { fill: none; stroke-dasharray: 4 3 }
  path { stroke: #59636e; fill: none; stroke-width: 1.4 }
  .page { fill: #ffffff; stroke: none }
  .head { fill: #59636e; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9da7b1 } rect { fill: #161b22; stroke: #9da7b1 }
    .record { fill: #12351f; stroke: #57b474 } .plugin { fill: #14283f; stroke: #79a9dc }
    .danger { fill: #43191a; stroke: #e5766f } .frame { fill: none } path { stroke: #9da7b1 }
    .page { fill: #0d1117 } .head { fill: #9da7b1 }
  }
"""


class Picture:
    """An SVG under construction."""

    def __init__(self) -> None:
        self.size = (420.0, 300.0)
        self.boxes: dict[str, tuple[float, float, float, float]] = {}
        self.parts: list[str] = []
        self.events: set[tuple[str, str, str]] = set()

    def draw(self, line: str) -> None:
        """Add what one line of the text says."""
        match shlex.split(line, comments=True):
            case []:
                pass
            case ["size", width, height]:
                self.size = (float(width), float(height))
            case ["box", name, x, y, width, height, kind, *lines]:
                self.box(name, (float(x), float(y), float(width), float(height)), kind, lines)
            case ["text" | "note" | "code" as kind, x, y, words]:
                self.text(float(x), float(y), words, kind)
            case ["arrow", start, end, *label]:
                self.arrow(start, end, " ".join(label))
            case ["legend", x, y, kind, words]:
                self.box("legend", (float(x), float(y), 16, 12), kind, [])
                self.text(float(x) + 22, float(y) + 11, words, "note")
            case ["event", start, end, event]:
                self.events.add((start.partition(".")[0], event, end.partition(".")[0]))
                self.arrow(start, end, event)
            case words:
                raise SystemExit(f"not understood: {words}")

    def box(self, name: str, where: tuple[float, float, float, float], kind: str, lines: list[str]) -> None:
        x, y, width, height = self.boxes[name] = where
        self.parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>')
        if kind == "frame":
            self.text(x + 8, y + 17, " ".join(lines), "note")
            return
        first = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
        for number, words in enumerate(lines):
            self.text(x + width / 2, first + 16 * number, words, "note" if number else "text", anchor="middle")

    def text(self, x: float, y: float, words: str, kind: str, *, anchor: str = "start") -> None:
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{html.escape(words)}</text>'
        )

    def arrow(self, start: str, end: str, label: str) -> None:
        (x1, y1), (x2, y2) = self.point(start), self.point(end)
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        back = (x2 - 8 * dx, y2 - 8 * dy)
        self.parts.append(f'<path d="M{x1:g} {y1:g} L{back[0]:g} {back[1]:g}"/>')
        corners = [(x2, y2), (back[0] + 4 * dy, back[1] - 4 * dx), (back[0] - 4 * dy, back[1] + 4 * dx)]
        self.parts.append(f'<polygon class="head" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>')
        if label:  # to the right of a vertical arrow, above a horizontal one, above and beside a slanted one
            x, y = (x1 + x2) / 2, (y1 + y2) / 2
            if x1 == x2:
                self.text(x + 7, y + 4, label, "note")
            elif y1 == y2:
                self.text(x, y - 6, label, "note", anchor="middle")
            else:
                rises = dx * dy < 0
                self.text(x - 6 if rises else x + 6, y - 6, label, "note", anchor="end" if rises else "start")

    def point(self, word: str) -> tuple[float, float]:
        if "," in word:
            x, y = word.split(",")
            return float(x), float(y)
        name, _, rest = word.partition(".")
        side, _, part = rest.partition("@")
        x, y, width, height = self.boxes[name]
        across, down = SIDES[side]
        share = float(part or 0.5)
        return x + width * (share if across is None else across), y + height * (share if down is None else down)

    def svg(self) -> str:
        width, height = self.size
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width * 1.5:g}">',
            f"<style>{STYLE}</style>",
            '<rect class="page" width="100%" height="100%"/>',
            *self.parts,
            "</svg>",
            "",
        ])  # fmt: skip


def picture(text: Path) -> str:
    """Return the SVG of a text."""
    made = Picture()
    for line in text.read_text(encoding="utf-8").splitlines():
        made.draw(line)
    if made.events and made.events != events_of_the_model():
        differences = sorted(made.events ^ events_of_the_model())
        raise SystemExit(f"{text.name}: not the events of the model: {differences}")
    return made.svg()


def events_of_the_model() -> set[tuple[str, str, str]]:
    """Return (state, event, next state) of the table. A look's states have the events of ``ready``."""
    return {
        (state, event, target)
        for state, row in STATES.items()
        for event, target in row.after.items()
        if target != state and (state == READY or row.after is not STATES[READY].after)
    }


def main() -> int:
    stale = []
    for text in sorted(PICTURES.glob("*.txt")):
        target, made = text.with_suffix(".svg"), picture(text)
        if "--check" not in sys.argv:
            target.write_text(made, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != made:
            stale.append(target.name)
    for name in stale:
        print(f"docs/pictures/{name} is not as its text says: run scripts/pictures.py")
    return bool(stale)


if __name__ == "__main__":
    raise SystemExit(main())
