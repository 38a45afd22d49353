"""The commands at the end of a remedy, which the user copies."""

from __future__ import annotations

import re

_PROGRAMS = (
    "bridge", "chmod", "ebtables", "ip", "ip6tables", "ip6tables-legacy", "ip6tables-nft", "ipset", "iptables",
    "iptables-legacy", "iptables-nft", "kubectl", "mkdir", "mount", "mv", "nft", "nsenter", "sysctl", "tc", "umount",
)  # fmt: skip
_COMMAND = re.compile(rf"(?:{'|'.join(_PROGRAMS)}) [\w/-]")
_PART = re.compile(r"""(?:[^;'"]|'[^']*'|"[^"]*"|;(?! ))+""")
"""A part of a text up to a semicolon outside of quotes."""


def with_commands(remedy: str) -> tuple[str, list[str]]:
    """Return a remedy without the commands at its end and without the colon before these, and the commands."""
    for start, end in ((0, 0), *(found.span() for found in re.finditer(": ", remedy))):
        commands = [part.strip() for part in _PART.findall(remedy[end:])]
        if commands and all(map(_COMMAND.match, commands)):
            return remedy[:start], commands
    return remedy, []
