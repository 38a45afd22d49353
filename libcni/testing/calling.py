"""Call a plugin once, in this process or as an executable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from io import BytesIO, StringIO
from typing import Any, TypeAlias

from libcni._dataclass import dataclass, field
from libcni.plugin import Plugin

__all__ = ["Answer", "call_plugin"]

Target: TypeAlias = Plugin | str | os.PathLike[str]
SILENT_VERBS = frozenset({"DEL", "CHECK", "GC", "STATUS"})


@dataclass(frozen=True)
class Answer:
    """The answer of a plugin.

    Attributes:
        status: the exit status; negative for a signal.
        stdout: the plugin's whole stdout, undecodable bytes replaced.
        stderr: the plugin's whole stderr, undecodable bytes replaced.
        verb: the verb of the call.

    Examples:
        >>> answer = Answer(1, '{"cniVersion": "1.1.0", "code": 11, "msg": "full"}', "")
        >>> answer.code, answer.document["msg"]
        (11, 'full')
    """

    status: int
    stdout: str
    stderr: str
    verb: str = field(default="", compare=False)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object on stdout; {} after a CHECK, DEL, GC or STATUS that has succeeded.

        Raises:
            ValueError: if stdout does not hold exactly one JSON object.
        """
        if not self.stdout.strip():
            if self.status == 0 and self.verb in SILENT_VERBS:
                return {}
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

    Args:
        plugin: a Plugin, which is called in this process, or the path of an executable.
        verb: the value of CNI_COMMAND.
        config: the configuration on stdin, an object or bytes.
        env: variables to set; None removes a variable.
        timeout: seconds that an executable may take. Processes that it leaves count too, if they keep its stdout or
            stderr open: some runtimes, such as Go libcni, wait for them.
        parameters: ``container_id``, ``netns``, ``ifname``, ``args``, ``path``; each has a default. The namespace
            of this process is accepted.

    Raises:
        subprocess.TimeoutExpired: if the executable takes longer than ``timeout``.
    """
    stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
    variables = environment(verb, env or {}, **parameters)
    if isinstance(plugin, Plugin):
        stdout, stderr = StringIO(), StringIO()
        status = plugin.main(variables, BytesIO(stdin), stdout, stderr)
        return Answer(status, stdout.getvalue(), stderr.getvalue(), verb)
    return Answer(*_call_executable(os.fspath(plugin), stdin, variables, timeout), verb)


def _call_executable(path: str, stdin: bytes, env: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
    pipe = subprocess.PIPE
    # A session of its own: at the timeout its children are killed with it.
    with subprocess.Popen([path], env=env, start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe) as process:  # noqa: S603 - the caller's own plugin
        try:
            printed = process.communicate(stdin, timeout)
        except BaseException as error:
            # Only before wait(): afterwards another process group may have this number.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                if process.wait() != -signal.SIGKILL:
                    error.add_note("the plugin has ended, but a process that it started keeps its output open")
            raise
    out, err = (data.decode(errors="replace") for data in printed)
    return process.returncode, out, err


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
        # A test without root can only pass its own namespace, which a plugin refuses without this variable.
        "CNI_NETNS_OVERRIDE": "1",
        **env,
    }
    return {name: value for name, value in values.items() if value is not None}
