"""Call a plugin once, in this process or as an executable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias

from libcni.plugin import Plugin
from libcni.testing.document_checks import result_problems

__all__ = ["Answer", "call_plugin"]

Target: TypeAlias = Plugin | str | os.PathLike[str]

_CHUNK = 65536
_AFTER_EXIT = 1.0
"""Seconds to wait for the end of the output after the plugin's exit: a thread that starts a process also holds it."""


@dataclass(frozen=True)
class Answer:
    """The answer of a plugin.

    Attributes:
        status: the exit status; negative for a signal.
        stdout: the plugin's whole stdout, undecodable bytes replaced.
        stderr: as ``stdout``.
        seconds: how long the plugin ran.
        stdout_held: whether another process kept stdout open after the plugin's exit.

    Examples:
        >>> answer = Answer(1, '{"cniVersion": "1.1.0", "code": 11, "msg": "full"}', "")
        >>> answer.code, answer.document["msg"]
        (11, 'full')
    """

    status: int
    stdout: str
    stderr: str
    seconds: float = field(default=0.0, compare=False)
    stdout_held: bool = field(default=False, compare=False)

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
            raise ValueError(f"the plugin's stdout is not a JSON object: {self.stdout!r}")  # noqa: TRY004 - one error for all bad output
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
    answer = call_unchecked(plugin, verb, config, env or {}, timeout, **parameters)
    if not isinstance(plugin, Plugin) or verb != "ADD" or answer.status:
        return answer
    version = answer.document["cniVersion"]
    problems = result_problems(answer.document, version)
    if not problems:
        return answer
    error = {"code": 6, "msg": "ADD returned no valid result", "details": "; ".join(problems)}
    return Answer(1, json.dumps({"cniVersion": version, **error}), answer.stderr)


def call_unchecked(
    plugin: Target,
    verb: str,
    config: Mapping[str, Any] | bytes,
    env: Mapping[str, str | None],
    timeout: float,
    **parameters: str,
) -> Answer:
    """Run one verb of ``plugin`` and return its answer as it is; otherwise as ``call_plugin``."""
    stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
    whole = environment(verb, env, **parameters)
    if isinstance(plugin, Plugin):
        stdout, stderr = StringIO(), StringIO()
        status = plugin.main(whole, BytesIO(stdin), stdout, stderr)
        return Answer(status, stdout.getvalue(), stderr.getvalue())
    return _call_executable(os.fspath(plugin), stdin, whole, timeout)


def _call_executable(path: str, stdin: bytes, env: Mapping[str, str], timeout: float) -> Answer:
    started = time.monotonic()
    with TemporaryFile() as stdin_file:
        stdin_file.write(stdin)
        stdin_file.seek(0)
        # A session of its own: at the timeout its children are killed with it.
        process = subprocess.Popen(  # noqa: S603 - the caller's own plugin
            [path], env=env, start_new_session=True, stdin=stdin_file, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    # Threads, because a child that the plugin leaves may hold its streams for ever. So the exit of the process decides,
    # and not the end of its streams.
    printed = bytearray(), bytearray()
    streams = zip((process.stdout, process.stderr), printed, strict=True)
    readers = [threading.Thread(target=_drain, args=pair, daemon=True) for pair in streams]
    for reader in readers:
        reader.start()
    try:
        process.wait(timeout)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    seconds = time.monotonic() - started
    readers[0].join(_AFTER_EXIT)
    stdout_held = readers[0].is_alive()
    readers[1].join(0 if stdout_held else _AFTER_EXIT)
    out, err = (bytes(text).decode(errors="replace") for text in printed)
    return Answer(process.returncode, out, err, seconds, stdout_held)


def _drain(stream: IO[bytes], printed: bytearray) -> None:
    with stream:
        while data := os.read(stream.fileno(), _CHUNK):
            printed += data


def environment(  # noqa: PLR0913 - one parameter per variable
    verb: str,
    env: Mapping[str, str | None],
    *,
    container_id: str = "test-container",
    netns: str = "/run/netns/test-namespace-that-is-not-there",
    ifname: str = "eth0",
    args: str = "",
    path: str = "",
) -> dict[str, str]:
    """Return the environment of a call: this process's own without CNI_*, and the variables of the specification."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CNI_")}
    values = {
        **inherited,
        # Every variable is set, as a runtime of this library does; shell plugins use "set -u".
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container_id,
        "CNI_NETNS": netns,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": args,
        "CNI_PATH": path,
        # Otherwise a plugin refuses the namespace of this process, which a test without root has to give.
        "CNI_NETNS_OVERRIDE": "1",
        **env,
    }
    return {name: value for name, value in values.items() if value is not None}
