"""Fake plugins on disk: executables that play the steps of a test and record their calls."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from libcni._dataclass import dataclass
from libcni.config.versions import ALL_VERSIONS

__all__ = ["FakeCall", "FakePlugin", "FakePlugins"]

_LOG = ".calls"
_SHELL = """#!/bin/sh
number=$$
calls={log}
# -C: in another PID namespace a process may have the same number.
set -C
while ! true 2>/dev/null > {home}/$number.stdin; do number=$((number + 1)); done
set +C
stdin={home}/$number.stdin
cat > "$stdin"
# The shell opens the file, so it is the environment of this shell, also if /proc is another PID namespace's.
cat < /proc/self/environ > {home}/$number.env
echo "$CNI_COMMAND" {name} $number >> "$calls"
{body}
"""
_SHELL_ANSWERS = """case "$CNI_COMMAND" in
ADD) printf '%s\\n' {result} ;;
VERSION) printf '%s\\n' {versions} ;;
esac
"""


@dataclass(frozen=True)
class FakeCall:
    """A call that a fake plugin received.

    Attributes:
        plugin: the plugin's type: the name of its executable.
        verb: CNI_COMMAND.
        env: the whole environment.
        stdin: the bytes that the plugin read.

    Examples:
        >>> from libcni.testing import call_plugin
        >>> fake = FakePlugins("fakes").shell("mine")
        >>> answer = call_plugin(fake.path, "DEL", {"name": "net"}, ifname="eth1")
        >>> [(call.verb, call.env["CNI_IFNAME"], call.config) for call in fake.calls]
        [('DEL', 'eth1', {'name': 'net'})]
    """

    plugin: str
    verb: str
    env: Mapping[str, str]
    stdin: bytes

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

    Examples:
        >>> from libcni.testing import call_plugin
        >>> fake = FakePlugins("fakes").shell("mine", "exit 3")
        >>> call_plugin(fake.path, "DEL").status, fake.verbs
        (3, ('DEL',))
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
        """Forget the recorded calls; each list of steps starts again with its first step."""
        for path in (_home(self.path) / "calls").iterdir():
            path.unlink()


class FakePlugins:
    """Fake plugins in one directory. Writing a plugin raises FileExistsError if another file has its name.

    Attributes:
        path: the directory, for CNI_PATH.

    Examples:
        >>> from libcni.testing import call_plugin
        >>> fakes = FakePlugins("fakes")
        >>> busy = fakes.scenario("busy", "ADD: [{error: {code: 11, msg: later}}, {}]")
        >>> [call_plugin(busy.path, "ADD", {"cniVersion": "1.1.0", "name": "net"}).code for _ in range(2)]
        [11, None]
        >>> fakes.verbs
        [('ADD', 'busy'), ('ADD', 'busy')]
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
        """Write a plugin that plays ``steps``, a mapping or its YAML text; ``plugins-fake/README.md`` lists the keys.

        A verb has one step or a list of steps: each call plays the next step, and the last step is repeated. Example:
        ``ADD: [{error: {code: 11, msg: later}}, {result: {ips: [{address: 10.9.0.2/24}]}}]``.

        A plugin with the name ``fake-ipam`` or ``fake-bridge``, or with that ``kind`` in its steps, keeps its addresses
        and interfaces as files in ``.state`` below ``path``, unless the steps name another ``stateDir``.

        Raises:
            ValueError: if a key of the steps is unknown, or a value has the wrong type.
        """
        home = self._home_of(name)
        whole = {"stateDir": str(self.path.absolute() / ".state"), **_checked(steps)}
        shutil.rmtree(home, ignore_errors=True)
        (home / "calls").mkdir(parents=True)
        file = home.absolute() / "steps.json"
        file.write_text(json.dumps(whole), encoding="utf-8")
        # -IS: the plugin must not depend on the test's own packages and paths. The directory of its calls counts them.
        code = "import sys; sys.path.insert(0, sys.argv[1]); from fakecni.protocol import main; main(*sys.argv[2:])"
        words = [sys.executable, "-IS", "-c", code, str(_engine()), name, str(file), str(home.absolute() / "calls")]
        return self._write_shell(name, f'exec {shlex.join(words)} < "$stdin"')

    def shell(
        self,
        name: str,
        body: str = "",
        *,
        result: Mapping[str, Any] | str | None = "{}",
        versions: Sequence[str] = ALL_VERSIONS,
    ) -> FakePlugin:
        """Write a plugin that runs a few lines of shell and then answers; it starts ten times as fast as a scenario.

        If a plugin of this name exists, it is replaced; its recorded calls stay.

        Args:
            name: the plugin's type.
            body: the lines. After ``exit`` nothing is printed any more. ``$stdin`` is the file with this call's
                stdin, ``$calls`` the file with a line ``<verb> <plugin type> <number>`` for each call in the directory.
            result: the result of ADD: a document, in whose strings ``$CNI_IFNAME`` and other CNI variables stand for
                their values, or text that is printed as it is. With None the body gives all answers; otherwise
                VERSION prints ``versions``, and the other verbs print nothing.
            versions: the supported versions.
        """
        text = dedent(body) + "\n"
        if result is not None:
            supported = shlex.quote(json.dumps({"cniVersion": versions[-1], "supportedVersions": [*versions]}))
            printed = shlex.quote(result) if isinstance(result, str) else _expanding(json.dumps(result))
            text += _SHELL_ANSWERS.format(result=printed, versions=supported)
        return self._write_shell(name, text)

    def _home_of(self, name: str) -> Path:
        """Return the directory of a fake plugin; refuse the name of another file.

        In a directory with other files, such as that of the real plugins, writing would destroy one of them.
        """
        path = self.path / name
        home = _home(path)
        is_fake = (home / "calls").is_dir()
        if not is_fake and (os.path.lexists(path) or os.path.lexists(home)):
            raise FileExistsError(f"{path} or {home} exists and is no fake plugin: give FakePlugins an empty directory")
        return home

    def _write_shell(self, name: str, body: str) -> FakePlugin:
        calls = self._home_of(name) / "calls"
        calls.mkdir(parents=True, exist_ok=True)
        home, log = (shlex.quote(str(path.absolute())) for path in (calls, self.path / _LOG))
        path, new = self.path / name, self.path / f".{name}.new"
        new.write_text(_SHELL.format(home=home, name=shlex.quote(name), log=log, body=body), encoding="utf-8")
        new.chmod(0o755)
        # Rename, because a running shell reads its script step by step and would continue in the new text.
        new.rename(path)
        return FakePlugin(path)


def _engine() -> Path:
    """Return the directory of the package fakecni: next to this module in the wheel, plugins-fake in the repository."""
    here = Path(__file__).resolve().parent
    return here if (here / "fakecni").is_dir() else here.parents[1] / "plugins-fake"


def _checked(steps: str | Mapping[str, Any] | None) -> dict[str, Any]:
    document: Any = steps
    if isinstance(steps, str):
        import yaml

        try:
            document = yaml.safe_load(dedent(steps))
        except yaml.YAMLError as error:
            raise ValueError(f"the steps of a fake plugin are not YAML: {error}") from error
    document = dict(document or {}) if isinstance(document, Mapping | None) else document
    problem = runpy.run_path(str(_engine() / "fakecni/language.py"))["problem_of"](document)
    if problem:
        raise ValueError(f"wrong steps of a fake plugin: {problem}")
    return dict(document)


def _home(path: Path) -> Path:
    return path.with_name(f".{path.name}")


def _expanding(text: str) -> str:
    """Quote a text for the shell, except for the variables CNI_*."""
    return '"' + re.sub(r'[\\"`]|\$(?!CNI_)', r"\\\g<0>", text) + '"'


def _calls(directory: Path) -> Iterator[FakeCall]:
    """Read the log of a directory's plugins; skip forgotten calls."""
    # Only the log has the order of the calls of all plugins.
    log = directory / _LOG
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        name, number = line.split(" ", 1)[1].rsplit(" ", 1)
        env_file = _home(directory / name) / "calls" / f"{number}.env"
        if env_file.exists():
            env = read_environ(env_file)
            yield FakeCall(name, env.get("CNI_COMMAND", ""), env, env_file.with_suffix(".stdin").read_bytes())


def read_environ(path: Path) -> dict[str, str]:
    """Return the environment from a copy of a process's file /proc/PID/environ."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return dict(variable.split("=", 1) for variable in text.split("\0") if "=" in variable)
