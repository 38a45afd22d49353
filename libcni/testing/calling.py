"""Call a plugin once, in this process or as an executable."""

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
    """The answer of a plugin.

    Attributes:
        status: the exit status; negative for a signal.
        stdout: everything that the plugin printed there, undecodable bytes replaced.
        stderr: as ``stdout``.
    """

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object on stdout.

        Raises:
            ValueError: if stdout does not hold exactly one JSON object.
        """
        if not self.stdout.strip():
            said = f"; stderr: {self.stderr.strip()[-500:]!r}" if self.stderr.strip() else ""
            raise ValueError(f"the plugin printed nothing on stdout (exit status {self.status}){said}")
        document = json.loads(self.stdout)
        if not isinstance(document, dict):
            raise ValueError(f"not a JSON object: {self.stdout!r}")  # noqa: TRY004 - one error for all bad output
        return document

    @property
    def code(self) -> int | None:
        """The code of the error document; None if the exit status is 0."""
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

    The result of a Plugin's ADD is compared with the specification; problems become an error document with code 6.

    Args:
        plugin: a Plugin, which is called in this process, or the path of an executable.
        verb: the value of CNI_COMMAND.
        config: the configuration on stdin, an object or bytes.
        env: variables to set, or with None to leave out.
        timeout: seconds that an executable may take.
        parameters: ``container_id``, ``netns``, ``ifname``, ``args``, ``path``; each has a default. The namespace
            of this process is accepted.

    Raises:
        subprocess.TimeoutExpired: if the executable takes longer than ``timeout``.
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
    status = plugin.main(env, BytesIO(stdin), stdout, stderr, check=True)
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
