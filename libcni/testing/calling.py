"""Call one plugin once, in this process or as the executable that it is, and look at its answer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any, TypeAlias

from libcni.plugin import Plugin

__all__ = ["Answer", "Target", "call_plugin"]

Target: TypeAlias = Plugin | str | os.PathLike[str]


@dataclass(frozen=True)
class Answer:
    """Hold what a plugin answered.

    Attributes:
        status: exit status; negative for a signal.
        stdout: all that it printed there, undecodable bytes replaced.
        stderr: likewise.
    """

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object on stdout.

        Raises:
            ValueError: stdout does not hold exactly one JSON object.
        """
        document = json.loads(self.stdout)
        if not isinstance(document, dict):
            raise ValueError(f"not a JSON object: {self.stdout!r}")  # noqa: TRY004 - one error for all bad output
        return document

    @property
    def code(self) -> int | None:
        """The code of the error document, or None for success."""
        return None if self.status == 0 else int(self.document["code"])


def call_plugin(
    plugin: Target,
    verb: str,
    config: Mapping[str, Any] | bytes = b"",
    *,
    env: Mapping[str, str | None] | None = None,
    timeout: float = 30.0,
    **parameters: str,
) -> Answer:
    """Run one verb of ``plugin`` and return its answer.

    Args:
        plugin: a Plugin, called in this process, or the path of an executable.
        verb: what goes into CNI_COMMAND.
        config: what goes to stdin, an object or bytes.
        env: variables to set, or with None to leave out.
        timeout: seconds that an executable may take.
        parameters: ``container_id``, ``netns``, ``ifname``, ``args``, ``path``; each has a default. A namespace
            that is this process's own is accepted.

    Raises:
        subprocess.TimeoutExpired: the executable took longer.
    """
    stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
    whole = _environment(verb, env or {}, **parameters)
    if isinstance(plugin, Plugin):
        return _call_here(plugin, stdin, whole)
    done = subprocess.run(  # noqa: S603 - the caller's own plugin
        [os.fspath(plugin)], input=stdin, env=whole, capture_output=True, timeout=timeout, check=False
    )
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _call_here(plugin: Plugin, stdin: bytes, env: Mapping[str, str]) -> Answer:
    stdout, stderr = StringIO(), StringIO()
    status = plugin.main(env, BytesIO(stdin), stdout, stderr)
    return Answer(status, stdout.getvalue(), stderr.getvalue())


def _environment(  # noqa: PLR0913 - one parameter per variable
    verb: str,
    env: Mapping[str, str | None],
    *,
    container_id: str = "test-container",
    netns: str = "/run/netns/test-namespace-that-is-not-there",
    ifname: str = "eth0",
    args: str = "",
    path: str = "",
) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CNI_")}
    values = {
        **inherited,
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container_id,
        "CNI_NETNS": netns,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": args,
        "CNI_PATH": path,
        "CNI_NETNS_OVERRIDE": "1",
        **env,
    }
    return {name: value for name, value in values.items() if value is not None}
