"""The defaults of clients, of the command, and of the programs that container engines start."""

from __future__ import annotations

CONF_DIR = "/etc/cni/net.d"
PLUGIN_PATH = "/opt/cni/bin:/usr/lib/cni"
CACHE_DIR = "/var/lib/cni"
TIMEOUT = 60.0
CLEANUP_TIMEOUT = 30.0
MAX_VERBS = 128
