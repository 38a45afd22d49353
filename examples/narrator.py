"""Tell what happens between libcni and the plugins: an observer, and a few ways to print."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcni
import libcni.observe

WIDTH = min(110, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 110
LONGEST_STRING = 55
INSERTED = ("cniVersion", "name", "runtimeConfig", "prevResult")


@dataclass(frozen=True)
class Call:
    """One call of a plugin, and how it ended."""

    invocation: libcni.Invocation
    outcome: libcni.Outcome | None
    error: BaseException | None

    @property
    def seconds(self) -> float:
        """How long the plugin ran."""
        return self.outcome.seconds if self.outcome else 0.0


class Narrator(libcni.observe.Observer):
    """Tell each plugin call, and keep its time; give it to ``CNIConfig(observer=...)``."""

    def __init__(self, net: libcni.NetworkConfigList) -> None:
        self._plugins = net.plugins
        self._calls: list[Call] = []
        self._times: dict[str, dict[str, float]] = {}
        self._answers: list[tuple[str, Any]] = []

    def after_call(
        self,
        _operation: libcni.observe.Operation,
        invocation: libcni.Invocation,
        outcome: libcni.Outcome | None,
        error: BaseException | None,
    ) -> None:
        """Take note of a call."""
        self._calls.append(Call(invocation, outcome, error))

    @contextmanager
    def verb(self, name: str, what: str) -> Iterator[None]:
        """Run one verb in this block; tell its calls, and keep its times."""
        self._calls = []
        start = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - start
            headline(f"{name}  {what}")
            self._tell()
        self._times[name] = {call.invocation.plugin: call.seconds for call in self._calls} | {"whole verb": took}

    def _tell(self) -> None:
        env = self._calls[0].invocation.env if self._calls else {}
        print()
        wrapped("environment: " + " ".join(f"{name}={value}" for name, value in env.items()), 2)
        for call in self._calls:
            index, received = call.invocation.index, json.loads(call.invocation.stdin)
            print(f"\n  {index + 1}. {call.invocation.plugin}  {milliseconds(call.seconds)}")
            wrapped(f"received  ({self._difference(index, received)})", 5)
            print(folded(self._abridged(received), 8))
            print(f"     answered  {self._answer(call)}")

    def _difference(self, index: int, received: dict[str, Any]) -> str:
        """Return how the execution configuration differs from the file."""
        written = json.loads(self._plugins[index].text)
        added = [key for key in INSERTED if key in received and key not in written]
        removed = [key for key in written if key not in received]
        return f"put in: {', '.join(added)}" + (f"; taken out: {', '.join(removed)}" if removed else "")

    def _abridged(self, received: dict[str, Any]) -> dict[str, Any]:
        """Return the document with a prevResult that has been shown already only named."""
        for plugin, answer in reversed(self._answers):
            if received.get("prevResult") == answer:
                return {**received, "prevResult": f"<what {plugin} answered to ADD>"}
        return received

    def _answer(self, call: Call) -> str:
        if call.outcome is None:
            return str(call.error)
        if not call.outcome.stdout.strip():
            return f"nothing; exit status {call.outcome.exit_status}"
        answer = json.loads(call.outcome.stdout)
        self._answers.append((call.invocation.plugin, answer))
        return f"(exit status {call.outcome.exit_status})\n{folded(answer, 8)}"

    def print_times(self) -> None:
        """Print a table: plugins down, verbs across."""
        headline("How long each step took")
        names = [plugin.type for plugin in self._plugins]
        print(f"\n  {'':16}" + "".join(f"{verb:>12}" for verb in self._times))
        self._print_row("libcni itself", lambda took: took["whole verb"] - sum(took[name] for name in names))
        for name in (*names, "whole verb"):
            self._print_row(name, lambda took, name=name: took[name])

    def _print_row(self, title: str, cell: Callable[[dict[str, float]], float]) -> None:
        print(f"  {title:16}" + "".join(f"{milliseconds(cell(took)):>12}" for took in self._times.values()))


@contextmanager
def quiet_at_end_of_pipe() -> Iterator[None]:
    """End this block without a traceback if nobody reads the output any more, as in ``make demo | head``."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout at its end once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def headline(text: str) -> None:
    """Print a headline."""
    lines = textwrap.wrap(text, WIDTH)
    print("\n" + "\n".join([*lines, "-" * max(map(len, lines))]))


def wrapped(text: str, indent: int) -> None:
    """Print a paragraph."""
    space = " " * indent
    print(textwrap.fill(text, WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False))


def milliseconds(seconds: float) -> str:
    """Return a duration for people."""
    return f"{seconds * 1000:.1f} ms"


def print_file(path: Path, base: Path) -> None:
    """Print a file below ``base``: JSON folded, anything else in one line."""
    text = path.read_text()
    print(f"\n  {path.relative_to(base)}  ({len(text)} bytes)")
    print(folded(json.loads(text), 8) if text.startswith("{") else f"        {', '.join(text.split())}")


def print_tree(directory: Path, pattern: str = "*", *, empty: str) -> None:
    """Print all files below a directory except hidden ones (the fakes' log of calls), or ``empty``."""
    found = (path for path in directory.rglob(pattern) if path.is_file())
    files = sorted(
        path for path in found if not any(part.startswith(".") for part in path.relative_to(directory).parts)
    )
    for path in files:
        print_file(path, directory)
    if not files:
        print(f"\n  {empty}")


def folded(value: Any, indent: int) -> str:
    """Return JSON for people: one line if it fits, and long strings are cut."""
    return " " * indent + _folded(value, indent)


def _folded(value: Any, indent: int, key: str = "") -> str:
    line = key + json.dumps(_cut(value), ensure_ascii=False)
    if len(line) + indent < WIDTH or not isinstance(value, dict | list):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, list):
        return key + "[\n" + ",\n".join(inner + _folded(item, indent + 2) for item in value) + f"\n{' ' * indent}]"
    members = (inner + _folded(item, indent + 2, f"{json.dumps(name)}: ") for name, item in value.items())
    return key + "{\n" + ",\n".join(members) + f"\n{' ' * indent}}}"


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return f"{value[:32]}... ({len(value)} characters)"
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return {key: _cut(item) for key, item in value.items()} if isinstance(value, dict) else value
