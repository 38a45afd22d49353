"""The defaults of clients, of the command, and of the programs that container engines start."""

from __future__ import annotations

CONF_DIR = "/etc/cni/net.d"
PLUGIN_PATH = "/opt/cni/bin:/usr/lib/cni"
CACHE_DIR = "/var/lib/cni"
TIMEOUT = 60.0
CLEANUP_TIMEOUT = 30.0
MAX_VERBS = 128

_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def complete_path(path: str) -> str:
    """Return a PATH with the directories of iptables added: cron and su omit them, an engine may set no PATH at all."""
    given = [name for name in path.split(":") if name]
    return ":".join([*given, *(name for name in _PROGRAMS if name not in given)])
