"""Fake plugins on disk: executables that do what a test tells them and write down what they received."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from libcni.testing import fake_script

__all__ = ["FakeCall", "FakePlugin", "FakePlugins"]

_VERBS = frozenset({"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"})
_KEYS = frozenset({"result", "error", "stdout", "stderr", "exit", "signal", "sleep", "linger", "versions"})


@dataclass(frozen=True)
class FakeCall:
    """Hold one call that a fake plugin received.

    Attributes:
        verb: CNI_COMMAND.
        env: its whole environment.
        stdin: what it read.
        argv: its command line.
    """

    verb: str
    env: Mapping[str, str]
    stdin: bytes
    argv: tuple[str, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The configuration on stdin.

        Raises:
            ValueError: stdin was not JSON.
        """
        config: dict[str, Any] = json.loads(self.stdin)
        return config


class FakePlugin:
    """Be one fake plugin on disk.

    Attributes:
        path (Path): the executable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._home = path.parent / f".{path.name}"

    @property
    def calls(self) -> tuple[FakeCall, ...]:
        """The calls so far, oldest first."""
        return tuple(_call(path) for path in sorted((self._home / "calls").iterdir()))

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the calls so far, oldest first."""
        return tuple(call.verb for call in self.calls)

    def forget(self) -> None:
        """Drop the calls so far; steps of a scenario begin again."""
        for path in (self._home / "calls").iterdir():
            path.unlink()


class FakePlugins:
    """Write fake plugins into one directory.

    Attributes:
        path: the directory, for CNI_PATH.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)

    def __iter__(self) -> Iterator[FakePlugin]:
        return (FakePlugin(path) for path in sorted(self.path.iterdir()) if path.is_file())

    def scenario(self, name: str, steps: str | Mapping[str, Any] | None = None) -> FakePlugin:
        """Write a plugin that plays ``steps``: a mapping, or YAML of one, from a verb to what to do.

        One step has some of: ``result`` (ADD; default: pass ``prevResult`` on), ``error`` (code, msg, details),
        ``stdout`` (raw text instead), ``stderr``, ``exit`` (status), ``signal`` (number, to itself), ``sleep``
        (seconds, before it answers), ``linger`` (seconds that a child keeps stdout open), ``versions`` (VERSION).
        A list of steps is played call by call, its last for ever.

        Raises:
            ValueError: an unknown verb or key.
        """
        loaded = _load(steps)
        _check(loaded)
        return self._write(name, "scenario.json", json.dumps(loaded))

    def python(self, name: str, body: str) -> FakePlugin:
        """Write a plugin that runs a few lines of Python, with ``verb``, ``env``, ``stdin`` and ``config`` at hand."""
        return self._write(name, "body.py", dedent(body))

    def _write(self, name: str, file: str, text: str) -> FakePlugin:
        home = self.path / f".{name}"
        shutil.rmtree(home, ignore_errors=True)
        (home / "calls").mkdir(parents=True)
        (home / file).write_text(text, encoding="utf-8")
        path = self.path / name
        source = Path(fake_script.__file__).read_text(encoding="utf-8")
        path.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
        path.chmod(0o755)
        return FakePlugin(path)


def _load(steps: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(steps, str):
        import yaml

        steps = yaml.safe_load(dedent(steps))
    if not isinstance(steps, Mapping | None):
        raise ValueError(f"a scenario is a mapping from verbs to steps, not {steps!r}")  # noqa: TRY004 - a document
    return steps or {}


def _check(steps: Mapping[str, Any]) -> None:
    if unknown := set(steps) - _VERBS:
        raise ValueError(f"unknown verbs in a scenario: {sorted(unknown)}")
    for verb, given in steps.items():
        for step in given if isinstance(given, list) else [given]:
            if unknown := set(step) - _KEYS:
                raise ValueError(f"unknown keys in a scenario, {verb}: {sorted(unknown)}")


def _call(path: Path) -> FakeCall:
    document = json.loads(path.read_text(encoding="utf-8"))
    return FakeCall(document["verb"], document["env"], document["stdin"].encode("latin-1"), tuple(document["argv"]))
