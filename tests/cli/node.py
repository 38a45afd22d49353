"""A node in a directory of its own, and the installed command ``libcni`` run on it: in a pipe, or in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from forkserver import SECONDS, ForkServer
from nodes import FakeNode
from sight import VARIABLE

import libcni

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FAKE_PLUGINS = REPOSITORY / "plugins-fake"
DBNET: dict[str, Any] = {
    "cniVersion": "1.1.0",
    "name": "dbnet",
    "plugins": [
        {"type": "fake-bridge", "bridge": "cni0", "ipam": {"type": "fake-ipam", "subnet": "10.9.7.0/24"}},
        {"type": "fake-tuning", "capabilities": {"mac": True}, "runtimeConfig": {"mac": "on disk"}},
    ],
}
REFUSING = {"cniVersion": "1.1.0", "name": "refusing", "plugins": [{"type": "fake", "fake": {
    "ADD": {"error": {"code": 7, "msg": "no", "details": "not today"}, "stderr": "complaint\n"}}}]}  # fmt: skip
HANGING = {"cniVersion": "1.1.0", "name": "hanging", "plugins": [{"type": "fake", "fake": {"ADD": {"sleep": 300}}}]}
GOOD, GONE, KILLED, REBOOTED = (sha256(name.encode()).hexdigest() for name in ("good", "gone", "killed", "rebooted"))
"""The containers of a broken node, with IDs like those of container engines."""
FIRST = "3f4c1b2a9d8e7f60" * 4
SECOND = "3f4c1b2a9d8e1111" * 4
_DAYS_AGO = 2.5 * 86400


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed; in a terminal all of it is in ``out``."""

    code: int
    out: str
    err: str = ""

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class CommandNode(FakeNode):
    """A node with the stateful fake plugins and the command; its path always has the same length."""

    def __init__(self, server: ForkServer, command: list[str], env: Mapping[str, str]) -> None:
        root = Path(tempfile.mkdtemp(prefix="cli-", dir="/tmp"))
        self.env = {
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "NETCONFPATH": str(root / "net.d"),
            "CNI_PATH": str(root / "bin"),
            "LIBCNI_CACHE_DIR": str(root / "cache"),
            "FAKE_CNI_STATE": str(root / "state"),
            **env,
        }
        super().__init__(root, env={name: text for name, text in self.env.items() if not name.startswith("CNI_")})
        self.server = server
        self.command = command
        for plugin in FAKE_PLUGINS.glob("fake*"):
            if plugin.is_file():
                (self.bin / plugin.name).symlink_to(plugin)

    def add(self, container: str, netns: str = "", **more: Any) -> None:
        """Attach a container to dbnet two and a half days ago."""
        rt = libcni.RuntimeConf(container, self.netns(netns or container), "eth0", **more)
        self.cni.add_network_list("dbnet", rt)
        now = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        self.change_record(container, "dbnet", created=now[0] - _DAYS_AGO, uptime=now[1] - _DAYS_AGO)

    def run(self, *argv: str, stdin: str = "", **env: str) -> Ran:
        """Run a command in a pipe."""
        return Ran(*self.server.run(argv, {**self.env, VARIABLE: "1", **env}, self.root, stdin=stdin))

    def run_script(self, *argv: str, stdin: str = "", **env: str) -> Ran:
        """Run the installed script in a pipe, with all its imports."""
        ran = subprocess.run(
            [*self.command, *argv], input=stdin, env={**self.env, **env}, capture_output=True, text=True, check=False,
            cwd=self.root, timeout=60,
        )  # fmt: skip
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def run_in_terminal(self, *argv: str, width: int = 100, **env: str) -> Ran:
        """Run a command whose three streams are a terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        self.server.start(argv, [theirs] * 3, {**self.env, VARIABLE: "1", **env}, self.root)
        os.close(theirs)
        printed = _read_all(ours)
        os.close(ours)
        return Ran(self.server.wait(time.monotonic() + SECONDS), printed.decode().replace("\r\n", "\n"))

    def normal(self, text: str) -> str:
        """Return a text without what differs from run to run, each replaced by something of the same length."""
        text = re.sub(r"(\r[^\r\n]*)+\r", "", text)  # the progress line of a slow verb, which is erased again
        text = text.replace(str(self.root), "/tmp/cli-00000000")
        text = re.sub(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d", r"2026-01-01\g<1>00:00:00", text)
        text = re.sub(r"(T| )00:00:00\.\d{3}\b", r"\g<1>00:00:00.000", text)
        text = re.sub(r"\.\d{19}\b", ".0000000000000000000", text)
        return re.sub(r"\d\.\d{3} s", "0.000 s", text)


def attach_sharing(node: CommandNode) -> None:
    """Attach container a to a network with two interfaces. DEL of the first fails, as with the plugin ``bridge``."""
    node.plugin("sharing", """
        case $CNI_COMMAND in
            ADD) touch rule-$CNI_IFNAME;;
            DEL) rm -f rule-$CNI_IFNAME; ! ls rule-* 2>/dev/null || exit 1;;
        esac""")  # fmt: skip
    node.configure("sharing")
    for ifname in ("eth0", "net1"):
        assert node.run("add", "sharing", node.netns("a"), "-c", "a", "-i", ifname).code == 0


def containers(node: CommandNode) -> list[str]:
    return [one.container_id for one in node.cni.get_cached_attachments()]


def _read_all(descriptor: int) -> bytes:
    data = b""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # the other end of a terminal is closed
            return data
        if not more:
            return data
        data += more
