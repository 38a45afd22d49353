"""Print tables and fields, folded to the width of the terminal, with colours on a terminal; or as JSON."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from string import hexdigits
from typing import TYPE_CHECKING, Any, TextIO

from libcni._dataclass import dataclass, replace
from libcni.errors import printable

if TYPE_CHECKING:
    from libcni import Outcome, PluginError

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _MAGENTA, _CYAN = "1", "2", "1;31", "32", "33", "35", "36"
_STYLES = {
    "ready": _GREEN, "ok": _GREEN, "mended": _GREEN, "reloaded": _GREEN, "pending": _YELLOW,
    "detaching": _YELLOW, "stale-boot": _MAGENTA, "gone": _MAGENTA, "corrupt": _RED, "begun": _YELLOW,
    "refused": _YELLOW, "lost": _MAGENTA, "lost-path": _RED, "renamed": _MAGENTA, "unknown": _MAGENTA,
    "error": _RED, "failed": _RED, "missing": _RED, "not-ready": _RED, "warning": _YELLOW,
    "note": _CYAN, "not asked": _DIM, "known fault": _YELLOW, "error:": _RED, "warning:": _YELLOW, "missing:": _RED,
    "hint": _CYAN, "type": _BOLD, "default": _BOLD,
}  # fmt: skip
"""The parameters of the escape sequence SGR, by a cell's text or a field's name."""
_NARROWEST = 20
"""The smallest width of a folded text, in columns."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header. ``empty`` is printed instead if there are no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    empty: str = ""


SHORT = 12
"""The number of digits of a container's ID that tables show."""
_LENGTH_OF_ENGINES = 64
_GENERATED = re.compile(rf"(?<![\w/.-])[0-9a-fA-F]{{{_LENGTH_OF_ENGINES}}}(?![\w/?-]|\.\w)")
"""An ID of an engine in a text, but not as a part of a path or of a longer name, nor in "did you mean ...?"."""


class Verbatim(str):
    """A field's value that is never folded, because the user copies it: a command or a document."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values under a title. A value may have several lines; an empty value is not printed."""

    title: str
    rows: Sequence[tuple[str, str]]


Block = str | Table | Fields
_Line = list[tuple[str, str]]
"""A line as texts, each with its style."""


def is_of_engine(container: str) -> bool:
    """Return whether an engine generated an ID. Other IDs are names, and one name is often the beginning of another."""
    return len(container) == _LENGTH_OF_ENGINES and set(container) <= set(hexdigits)


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return a short form of each ID: its first digits if an engine generated it and no other ID begins with these."""
    short = {identifier: identifier[:SHORT] if is_of_engine(identifier) else identifier for identifier in ids}
    counts = Counter(short.values())
    return {identifier: start if counts[start] == 1 else identifier for identifier, start in short.items()}


def with_short_ids(block: Block) -> Block:
    """Return a block with short IDs, except in texts that the user copies: lines, and Verbatim values."""
    if isinstance(block, str):
        return block
    if isinstance(block, Fields):
        rows = [(_cut(name), text if isinstance(text, Verbatim) else _cut(text)) for name, text in block.rows]
        return Fields(_cut(block.title), rows)
    short = short_ids(row[0] for row in block.rows) if block.columns[0] == "container" else {}
    return replace(block, rows=[[short.get(cell) or _cut(cell) for cell in row] for row in block.rows])


def _cut(text: str) -> str:
    """Return a text in which each generated container ID is cut to its first digits. Parts of paths stay."""
    return _GENERATED.sub(lambda found: found[0][:SHORT], text)


def one_line(text: str) -> str:
    """Return ``printable(text)``, also with escapes for line feeds, which file names may contain."""
    return printable(text).replace("\n", "\\n")


def ended_by(call: PluginError | Outcome) -> str:
    """Return how a plugin call ended, such as "exit status 1", or "" if nothing ran."""
    if call.exit_status is not None:
        return f"exit status {call.exit_status}"
    return f"signal {call.signal}" if call.signal is not None else ""


def indented_json(data: Any) -> str:
    """Return data as JSON on several lines. An integer with more digits than Python decodes becomes a string."""
    return json.dumps(data, indent=2, ensure_ascii=False, default=str)


def print_data(data: Any, file: TextIO | None = None) -> None:
    """Print data as JSON. Lone surrogates and control characters from plugins become JSON's own escapes."""
    text = indented_json(data)
    if not text.isascii():
        text = "".join([char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text])
    print(text, file=file or sys.stdout)


def print_block(block: Block, file: TextIO | None = None) -> None:
    """Print a block: folded to COLUMNS or the width of a terminal, with colours on a terminal.

    Without COLUMNS, the lines in a pipe are not folded, because scripts read them.
    """
    out = file or sys.stdout
    # https://no-color.org
    has_colours = out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    # A text is not folded: it may be a command that the user copies.
    width = 0 if isinstance(block, str) else _width_of(out)
    safe = _printable(Fields(block, ()) if isinstance(block, str) else block)
    for line in _field_lines(safe, width) if isinstance(safe, Fields) else _table_lines(safe, width):
        parts = [f"\x1b[{style}m{text}\x1b[0m" if text and style and has_colours else text for text, style in line]
        print("".join(parts), file=out)


def note(text: str, **rows: str) -> None:
    """Print a note on stderr, and fields below it."""
    print_block(Fields(f"note: {text}", [*rows.items()]), sys.stderr)


def columns_wanted() -> int:
    """Return the number in the variable COLUMNS; 0 if the variable has no number."""
    columns = os.environ.get("COLUMNS", "").lstrip("0")
    if not columns.isdecimal() or not columns.isascii():
        return 0
    return int(columns[:4])


def _width_of(file: TextIO) -> int:
    """Return the columns to fold at; 0: do not fold."""
    if columns := columns_wanted():
        return columns
    try:
        return os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError):
        return 0


def _printable(block: Table | Fields) -> Table | Fields:
    if isinstance(block, Table):
        # A line feed in a cell would look like another row.
        rows = [[one_line(cell) for cell in row] for row in block.rows]
        return replace(block, rows=rows, title=printable(block.title), empty=printable(block.empty))
    return Fields(printable(block.title), [(printable(name), type(text)(printable(text))) for name, text in block.rows])


def _field_lines(fields: Fields, width: int) -> Iterator[_Line]:
    # Not broken after its first word, such as "error:", even if a long path follows.
    lines = fields.title.replace(" ", "\0", 1).split("\n")
    first, *rest = [
        part for line in lines for part in (_folded(line, max(width, _NARROWEST), indent=4) if width else [line])
    ]
    word, space, text = first.replace("\0", " ").partition(" ")
    style = _STYLES.get(word, "")
    bold = _BOLD if style else ""
    yield [(word, style), (space + text, bold)]
    yield from ([(line.replace("\0", " "), bold)] for line in rest)
    rows = [(name, text) for name, text in fields.rows if text]
    names = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        style = _STYLES.get(name) or _STYLES.get(text, "")
        lines = text.split("\n")
        if width and not isinstance(text, Verbatim):
            lines = [part for line in lines for part in _folded(line, max(width - names - 4, _NARROWEST))]
        for index, line in enumerate(lines):
            start = f"  {'' if index else name:{names}}  "
            yield [(start, _DIM), (line, style)] if line else [(start.rstrip(), _DIM)]


def _table_lines(table: Table, width: int) -> Iterator[_Line]:
    if not table.rows:
        yield from ([(table.empty, _DIM)] for _ in filter(None, [table.empty]))
        return
    if table.title:
        yield from ([(line, "")] for line in table.title.split("\n"))
    rows = [[column.upper() for column in table.columns], *table.rows]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    room = width - 2 * (len(columns) - 1)
    if width and sum(words) > room:
        # The terminal is too narrow for a table: each row becomes a list, with the rows that continue it.
        for whole in _joined(table.rows):
            yield from _field_lines(Fields(whole[0], list(zip(table.columns, whole, strict=True))[1:]), width)
        return
    while width and sum(widths) > room:
        widest = max(range(len(widths)), key=lambda index: widths[index] - words[index])
        widths[widest] -= 1
    for number, row in enumerate(rows):
        cells = [_folded(cell, wide) if len(cell) > wide else [cell] for cell, wide in zip(row, widths, strict=True)]
        styles = [_STYLES.get(cell, "") if number else _BOLD for cell in row]
        yield from (_table_line(parts, widths, styles) for parts in zip_longest(*cells, fillvalue=""))


def _joined(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return rows in which a row without a first cell is part of the row before it."""
    joined: list[list[str]] = []
    for row in rows:
        if row[0] or not joined:
            joined.append(list(row))
        else:
            joined[-1] = ["\n".join(filter(None, both)) for both in zip(joined[-1], row, strict=True)]
    return joined


def _table_line(parts: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> _Line:
    last = max((index for index, part in enumerate(parts) if part), default=0)
    line: _Line = []
    for index, (part, wide, style) in enumerate(zip(parts, widths, styles, strict=True)):
        if index <= last:
            line += [(part, style), (" " * (wide - len(part) + 2) if index < last else "", "")]
    return line


def _folded(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a text as lines that break between words. A longer word, such as a path, stays whole."""
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
