"""Fake plugins on disk: executables that play a test's scenario and record their calls."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

from libcni.config.versions import ALL_VERSIONS
from libcni.testing import fake_script

__all__ = ["FakeCall", "FakePlugin", "FakePlugins"]

_VERBS = frozenset({"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"})
_KEYS = frozenset({"result", "error", "stdout", "stderr", "exit", "signal", "sleep", "linger", "versions"})
_KEYS |= {"ignoreTerm", "detach", "touch", "waitFor", "endless"}
StatefulKind = Literal["fake", "ipam", "bridge", "tuning", "portmap"]
_STATEFUL = {"fake": "Plugin", "ipam": "Ipam", "bridge": "Bridge", "tuning": "Tuning", "portmap": "Portmap"}
_LOG = ".calls"
_SHELL = """#!/bin/sh
stdin={home}/$$.stdin
calls={log}
cat > "$stdin"
export -p > {home}/$$.env
echo "$CNI_COMMAND" {name} $$ >> "$calls"
{body}
"""
_EXPORT = r"export (\w+)='([^']*)'\n"
_SHELL_ANSWERS = """case "$CNI_COMMAND" in
ADD) printf '%s\\n' {result} ;;
VERSION) printf '%s\\n' {versions} ;;
esac
"""


@dataclass(frozen=True)
class FakeCall:
    """A call that a fake plugin received.

    Attributes:
        verb: CNI_COMMAND.
        env: the whole environment. The shell of a shell plugin may have added PWD.
        stdin: the bytes that the plugin read.
        argv: the command line.
    """

    verb: str
    env: Mapping[str, str]
    stdin: bytes
    argv: tuple[str, ...]

    @property
    def plugin(self) -> str:
        """The plugin's type: the name of its executable."""
        return os.path.basename(self.argv[0])

    @property
    def config(self) -> dict[str, Any]:
        """The configuration on stdin.

        Raises:
            ValueError: stdin was not JSON.
        """
        config: dict[str, Any] = json.loads(self.stdin)
        return config


class FakePlugin:
    """A fake plugin on disk.

    Attributes:
        path (Path): the executable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def calls(self) -> tuple[FakeCall, ...]:
        """The calls so far, oldest first."""
        return tuple(call for call in _calls(self.path.parent) if call.plugin == self.path.name)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the calls so far, oldest first."""
        return tuple(call.verb for call in self.calls)

    def forget(self) -> None:
        """Drop the calls so far; steps of a scenario begin again."""
        for path in (_home(self.path) / "calls").iterdir():
            path.unlink()


class FakePlugins:
    """Fake plugins in one directory. A method that writes one raises FileExistsError if the name is another file's.

    Attributes:
        path: the directory, for CNI_PATH.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)

    def __iter__(self) -> Iterator[FakePlugin]:
        return (FakePlugin(path) for path in sorted(self.path.glob("[!.]*")) if path.is_file())

    @property
    def calls(self) -> tuple[FakeCall, ...]:
        """The calls of all plugins so far, oldest first."""
        return tuple(_calls(self.path))

    @property
    def verbs(self) -> list[tuple[str, str]]:
        """The (verb, plugin type) of each call so far, oldest first."""
        return [(call.verb, call.plugin) for call in self.calls]

    def scenario(self, name: str, steps: str | Mapping[str, Any] | None = None) -> FakePlugin:
        """Write a plugin that plays ``steps``: a mapping, or YAML of one, from a verb to its step or steps.

        A step has some of these keys, which act in this order:

        - ``ignoreTerm``: true to ignore SIGTERM.
        - ``linger``: seconds that a child keeps stdout open; ``detach``: true for a child in a session of its own.
        - ``touch``: a file to make, for "the plugin has acted"; with ``error`` the plugin fails after it has acted.
        - ``sleep``: seconds; ``waitFor``: a file to wait for.
        - ``stderr``: text.
        - ``result``: of ADD, in the form of 1.x, printed in that of the configuration; by default ``prevResult``.
        - ``error``: code, msg and details instead; ``stdout``: text instead of any document.
        - ``versions``, of VERSION: the supported versions; other configurations are refused with code 1.
        - ``endless``: ``stdout`` or ``stderr``, to print there without end.
        - ``signal``: a number, to send to itself; ``exit``: the exit status.

        Of a list of steps each call takes the next, and all later calls the last.

        Raises:
            ValueError: if a verb or a key is unknown.
        """
        loaded = _load(steps)
        _check(loaded)
        return self._python(name, "scenario.json", json.dumps(loaded))

    def python(self, name: str, body: str) -> FakePlugin:
        """Write a plugin that runs a few lines of Python, with ``verb``, ``env``, ``stdin`` and ``config`` at hand.

        The lines print all answers, those to VERSION included. STATUS of a manager asks for the versions.
        """
        return self._python(name, "body.py", dedent(body))

    def stateful(
        self, name: str, kind: StatefulKind | None = None, knobs: Mapping[str, Any] | None = None
    ) -> FakePlugin:
        """Write a plugin that keeps its addresses, interfaces or ports as files, like a real one.

        The files are in ``.state`` below ``path``, unless a knob or FAKE_CNI_STATE names another directory.

        Args:
            name: the plugin's type.
            kind: which real plugin it is like; ``fake`` passes ``prevResult`` on. None: the part of ``name`` after
                ``fake-``.
            knobs: faults to play, such as ``{"ADD": {"errorAfter": {"code": 11}}}``; plugins-fake/README.md has all.

        Raises:
            ValueError: if ``kind`` is unknown.
        """
        chosen: str = kind or name.removeprefix("fake-")
        if chosen not in _STATEFUL:
            raise ValueError(f"there is no stateful fake {chosen!r}: {', '.join(_STATEFUL)}")
        stateful = {"home": str(_stateful_home()), "class": _STATEFUL[chosen]}
        plugin = self._python(name, "stateful.json", json.dumps(stateful))
        state = os.environ.get("FAKE_CNI_STATE", str(self.path.absolute() / ".state"))
        text = json.dumps({"stateDir": state, **(knobs or {})})
        (_home(plugin.path) / f"{name}.json").write_text(text, encoding="utf-8")
        return plugin

    def shell(
        self,
        name: str,
        body: str = "",
        *,
        result: Mapping[str, Any] | str | None = "{}",
        versions: Sequence[str] = ALL_VERSIONS,
    ) -> FakePlugin:
        """Write a plugin that runs a few lines of shell and then answers; it starts ten times as fast as Python.

        A plugin that is written again keeps its calls.

        Args:
            name: the plugin's type.
            body: the lines. After ``exit`` nothing is printed any more. ``$stdin`` is the file with this call's
                stdin, ``$calls`` the file with a line ``<verb> <plugin type> <number>`` for each call in the directory.
            result: the result of ADD: a document, in whose strings ``$CNI_IFNAME`` and other CNI variables stand for
                their values, or text that is printed as it is. With None the body gives all answers; otherwise
                VERSION prints ``versions``, and the other verbs print nothing.
            versions: the supported versions.
        """
        calls = self._home_of(name) / "calls"
        calls.mkdir(parents=True, exist_ok=True)
        home, log = (shlex.quote(str(path.absolute())) for path in (calls, self.path / _LOG))
        text = _SHELL.format(home=home, name=shlex.quote(name), log=log, body=dedent(body))
        if result is not None:
            supported = shlex.quote(json.dumps({"cniVersion": versions[-1], "supportedVersions": [*versions]}))
            printed = shlex.quote(result) if isinstance(result, str) else _expanding(json.dumps(result))
            text += _SHELL_ANSWERS.format(result=printed, versions=supported)
        return self._write(name, text)

    def _python(self, name: str, file: str, text: str) -> FakePlugin:
        home = self._home_of(name)
        shutil.rmtree(home, ignore_errors=True)
        (home / "calls").mkdir(parents=True)
        (home / file).write_text(text, encoding="utf-8")
        # The plugin is a copy of the script and runs with -IS: it must not depend on the test's own packages and paths.
        source = Path(fake_script.__file__).read_text(encoding="utf-8")
        return self._write(name, f"#!{sys.executable} -IS\n{source}")

    def _home_of(self, name: str) -> Path:
        """Return the directory of a fake plugin; refuse a name that something else has.

        In the directory of the real plugins, or in a home directory, it would replace a file or remove a directory.
        """
        path = self.path / name
        home = _home(path)
        is_fake = (home / "calls").is_dir()
        if not is_fake and (os.path.lexists(path) or os.path.lexists(home)):
            raise FileExistsError(f"{path} or {home} exists and is no fake plugin: give FakePlugins an empty directory")
        return home

    def _write(self, name: str, text: str) -> FakePlugin:
        path, new = self.path / name, self.path / f".{name}.new"
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        # Not written in place: a shell reads its script while it runs, and would go on in the new text.
        new.rename(path)
        return FakePlugin(path)


def _stateful_home() -> Path:
    """Return the directory of the package fakecni: next to this module in the wheel, plugins-fake in the repository."""
    here = Path(__file__).resolve().parent
    return here if (here / "fakecni").is_dir() else here.parents[1] / "plugins-fake"


def _home(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _expanding(text: str) -> str:
    """Quote a text for the shell, except for the variables CNI_*."""
    return '"' + re.sub(r'[\\"`]|\$(?!CNI_)', r"\\\g<0>", text) + '"'


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
            if not isinstance(step, Mapping):
                raise ValueError(f"a step of a scenario is a mapping, {verb}: {step!r}")  # noqa: TRY004 - a document
            if unknown := set(step) - _KEYS:
                raise ValueError(f"unknown keys in a scenario, {verb}: {sorted(unknown)}")


def _calls(directory: Path) -> Iterator[FakeCall]:
    """Read the log of a directory's plugins; calls that were forgotten are passed over."""
    # Only the log has the order of the calls of all plugins.
    log = directory / _LOG
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        name, number = line.split(" ", 1)[1].rsplit(" ", 1)
        call = _home(directory / name) / "calls" / number
        if call.exists():
            document = json.loads(call.read_text(encoding="utf-8"))
            stdin = document["stdin"].encode("latin-1")
            yield FakeCall(document["verb"], document["env"], stdin, tuple(document["argv"]))
        elif (env_file := call.with_name(f"{number}.env")).exists():
            env = read_exported(env_file.read_text(encoding="utf-8", errors="surrogateescape"))
            stdin = call.with_name(f"{number}.stdin").read_bytes()
            yield FakeCall(env.get("CNI_COMMAND", ""), env, stdin, (str(directory / name),))


def read_exported(text: str) -> dict[str, str]:
    """Return the environment that the shell command ``export -p`` printed."""
    # shlex takes 10 ms for an environment, so it reads only what follows the first value that contains a quote.
    plain = re.match(f"(?:{_EXPORT})*", text)
    end = plain.end() if plain else 0
    words = shlex.split(text[end:])
    return dict(re.findall(_EXPORT, text[:end])) | dict(word.split("=", 1) for word in words if "=" in word)
