"""Print tables and fields: with colours on a terminal, as plain text in a pipe, or as JSON and YAML."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TextIO

from libcni import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from libcni import Outcome, PluginError

_STYLES = {
    "ready": "green", "ok": "green", "done": "green", "added": "green", "detached": "green", "pending": "yellow",
    "detaching": "yellow", "stale-boot": "magenta", "gone": "magenta", "corrupt": "bold red", "legacy": "dim",
    "error": "bold red", "failed": "bold red", "missing": "bold red", "not-ready": "bold red", "warning": "yellow",
    "note": "cyan", "not asked": "dim", "error:": "bold red", "warning:": "yellow",
    "missing:": "bold red", "hint": "cyan", "type": "bold", "default": "bold",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a header. ``empty`` is printed instead if there are no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Fields:
    """Names and values under a title. A value may have several lines."""

    title: str
    rows: Sequence[tuple[str, str]]


Block = str | Table | Fields


def one_line(text: str) -> str:
    """Return ``text`` as ``printable`` does, and with escapes for line feeds, which file names may contain."""
    return printable(text).replace("\n", "\\n")


def ended_by(call: PluginError | Outcome) -> str:
    """Say how a plugin call ended, or "" if nothing ran."""
    if call.exit_status is not None:
        return f"exit status {call.exit_status}"
    return f"signal {call.signal}" if call.signal is not None else ""


def indented_json(data: Any) -> str:
    """Return data as JSON on several lines. An integer with more digits than Python decodes becomes a string."""
    return json.dumps(data, indent=2, ensure_ascii=False, default=str)


def print_data(data: Any, output: Literal["json", "yaml"], file: TextIO | None = None) -> None:
    """Print data as JSON or YAML."""
    text = indented_json(data)
    if output == "json":
        # Characters of a plugin that no encoding carries, or that a terminal obeys, become JSON's own escapes.
        if not text.isascii():
            text = "".join([char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text])
    else:
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    print(text, file=file or sys.stdout)


def print_block(block: Block, file: TextIO | None = None) -> None:
    """Print a block: with rich on a terminal, else as plain lines."""
    out = file or sys.stdout
    block = _printable(block)
    # rich fits tables to the width of a terminal. In a pipe the lines must not depend on it, because scripts read them.
    if out.isatty() and os.environ.get("TERM") != "dumb" and (console := _console(out)) is not None:
        console.print(_rich(block, console.width), soft_wrap=isinstance(block, str | Fields))
    else:
        for line in _lines(block):
            print(line, file=out)


def _printable(block: Block) -> Block:
    if isinstance(block, str):
        return printable(block)
    if isinstance(block, Table):
        # Each row is one line.
        rows = [[one_line(cell) for cell in row] for row in block.rows]
        return replace(block, rows=rows, title=printable(block.title), empty=printable(block.empty))
    return Fields(printable(block.title), [(printable(name), printable(text)) for name, text in block.rows])


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield block
    elif isinstance(block, Fields):
        yield block.title
        width = max((len(name) for name, _ in block.rows), default=0)
        for name, text in block.rows:
            first, *rest = text.split("\n")
            yield f"  {name:{width}}  {first}"
            yield from (f"  {'':{width}}  {line}" for line in rest)
    else:
        yield from _table_lines(block)


def _table_lines(table: Table) -> Iterator[str]:
    if not table.rows:
        yield from filter(None, [table.empty])
        return
    yield from filter(None, [table.title])
    rows = [[column.upper() for column in table.columns], *table.rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _console(file: TextIO) -> Console | None:
    try:
        from rich.console import Console
    except ImportError:  # without the extra "cli" there are plain lines
        return None

    # https://no-color.org: rich still folds tables to the terminal's width, and writes no escape sequence at all.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=file, highlight=False, emoji=False, markup=False, color_system=system)


def _rich(block: Block, width: int) -> RenderableType:
    if isinstance(block, Table):
        return _rich_table(block, width)
    first, *rest = _lines(block)
    text = _styled_start(first)
    name_width = max((len(name) for name, _ in block.rows), default=0) + 2 if isinstance(block, Fields) else 0
    for line in rest:
        style = _STYLES.get(line[:name_width].strip(), "")
        text.append("\n").append(line[:name_width], "dim").append(line[name_width:], style)
    return text


def _styled_start(line: str) -> Text:
    from rich.text import Text

    word, _, rest = line.partition(" ")
    # Text(word, style) would apply the style to all text that is appended later.
    return (
        Text().append(word, _STYLES.get(word, "")).append(f" {rest}" if rest else "", "bold" if word in _STYLES else "")
    )


def _rich_table(table: Table, width: int) -> RenderableType:
    """Return a table whose columns break between words, or a list of its rows if the terminal is too narrow for it."""
    from rich.table import Table as RichTable
    from rich.text import Text

    if not table.rows:
        return Text(table.empty, "dim")
    header = [column.upper() for column in table.columns]
    columns = list(zip(header, *table.rows, strict=True))
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    room = width - 2 * len(words) + 2
    if sum(words) > room:
        return _cards(table, width)
    widths = [max((len(line) for cell in column for line in cell.splitlines()), default=0) for column in columns]
    # rich would narrow the widest column, even below its longest word, and then cut the ends of the rows.
    while sum(widths) > room:
        most = max(range(len(widths)), key=lambda index: widths[index] - words[index])
        widths[most] -= 1
    made = RichTable(title=table.title or None, box=None, title_justify="left", pad_edge=False, padding=(0, 2, 0, 0))
    for name, wide in zip(header, widths, strict=True):
        made.add_column(name, overflow="fold", width=wide, header_style="bold")
    for row in table.rows:
        made.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    return made


def _cards(table: Table, room: int) -> RenderableType:
    import textwrap

    from rich.text import Text

    width = max(len(column) for column in table.columns)
    # Folded here: rich would begin the next line at the left edge, where the rows begin.
    fold = partial(textwrap.wrap, width=max(room - width - 4, 1), break_on_hyphens=False)
    text = Text(table.title)
    for row in table.rows:
        text.append(("\n" if text else "") + row[0], "bold")
        for column, cell in list(zip(table.columns, row, strict=True))[1:]:
            if cell:
                lines = f"\n{'':{width + 4}}".join(fold(cell))
                text.append(f"\n  {column:{width}}  ", "dim").append(lines, _STYLES.get(cell, ""))
    return text
