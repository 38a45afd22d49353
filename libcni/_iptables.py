"""The chains that Go's plugins make with iptables, and the rules of this network namespace."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Mapping

_CHAIN_CHARACTERS = 28
_SECONDS = 20.0

Rule = tuple[str, ...]
"""A rule as ``iptables -S`` prints it, in words: ``-A CHAIN ...``."""


class Table:
    """The chains and rules of one table; its rules are found by a target, or by the address of one host.

    With 10,000 containers a chain has 10,000 rules.
    """

    def __init__(self) -> None:
        self.chains: dict[str, list[Rule]] = {}
        self._found: dict[tuple[str, str], list[Rule]] = {}
        self._jumps: dict[str, list[Rule]] = {}

    def add(self, rule: Rule) -> None:
        """Add a rule at the end of its chain."""
        chain = rule[1]
        self.chains.setdefault(chain, []).append(rule)
        target = rule[rule.index("-j") + 1] if "-j" in rule else ""
        self._jumps.setdefault(target, []).append(rule)
        for word in (target, *(one for one in rule if one.endswith(("/32", "/128")))):
            self._found.setdefault((chain, word), []).append(rule)

    def find(self, chain: str, word: str) -> list[Rule]:
        """Return the rules of a chain with this target, or with this address and its prefix length."""
        return self._found.get((chain, word), [])

    def leading_to(self, chain: str) -> list[Rule]:
        """Return the rules of all chains with this target."""
        return self._jumps.get(chain, [])


def program_of(address: str) -> str:
    """Return the program for the rules of an IP address: iptables or ip6tables."""
    return "ip6tables" if ":" in address else "iptables"


def masquerade_chain(network: str, container_id: str) -> str:
    """Return the chain in which bridge and ptp masquerade a container; all its interfaces on a network share it."""
    return _chain("CNI-", network, container_id)


def ports_chain(network: str, container_id: str) -> str:
    """Return the chain in which portmap has the ports of a container; all its interfaces on a network share it."""
    return _chain("CNI-DN-", network, container_id)


def _chain(prefix: str, network: str, container_id: str) -> str:
    return f"{prefix}{hashlib.sha512(f'{network}{container_id}'.encode()).hexdigest()}"[:_CHAIN_CHARACTERS]


def saved_rules(program: str, env: Mapping[str, str] | None = None) -> dict[str, Table]:
    """Return the rules of all tables that exist, by table. Changes nothing, and makes no table.

    Raises:
        OSError: the program is missing, or it failed; a PermissionError if only root may read the rules.
    """
    # "iptables -S" would load the modules of a table that does not exist.
    found: dict[str, Table] = {}
    table = Table()
    for line in _run([f"{program}-save"], env).splitlines():
        if line.startswith("*"):
            table = found.setdefault(line[1:].strip(), Table())
        elif line.startswith(":"):
            table.chains.setdefault(line[1:].split()[0], [])
        elif line.startswith("-A"):
            table.add(tuple(shlex.split(line)))
    return found


def change(program: str, *words: str, env: Mapping[str, str] | None = None) -> None:
    """Run iptables on the table ``nat``. Raises OSError if it fails."""
    _run([program, "--wait", "5", "-t", "nat", *words], env)


def _run(command: list[str], env: Mapping[str, str] | None) -> str:
    # subprocess looks for the program in this process's PATH. A plugin would use that of its own environment.
    path = os.environ.get("PATH") if env is None else env.get("PATH")
    for directory in (path or os.defpath).split(os.pathsep):
        if os.access(executable := os.path.join(directory, command[0]), os.X_OK):
            break
    else:
        raise FileNotFoundError(2, "there is no such program in PATH", command[0])
    try:
        done = subprocess.run(  # noqa: S603 - iptables and iptables-save
            [executable, *command[1:]], env=env, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(110, f"it did not end within {_SECONDS:.0f} s", command[0]) from error
    if done.returncode:
        kind = PermissionError if os.geteuid() else OSError
        raise kind(done.returncode, done.stderr.strip() or f"exit status {done.returncode}", shlex.join(command))
    return done.stdout
