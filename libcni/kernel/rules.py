"""The rules that the CNI project's plugins create with iptables and nftables in this network namespace."""

from __future__ import annotations

import bisect
import hashlib
import ipaddress
import itertools
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

PROGRAMS = ("iptables", "ip6tables", "nft")

_CHAIN_CHARACTERS = 28
_SECONDS = 20.0
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPED = re.compile(r"\\(.)")
_NAME_OF_TABLE = re.compile(r"^\*(.*)", re.MULTILINE)
_QUOTED = re.compile(r'"[^"]*"?')
_HOOK = re.compile(r"type (\w+) hook (\w+)(?: devices? (.*?))? priority (\w*)(?: ?([+-]) ?(\d+))?")
_PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}
DEEPEST = 16
"""The limit of jumps to follow: the rules of a broken firewall may jump in a circle."""
MASQUERADE, PORTS = "inet cni_plugins_masquerade", ("ip cni_hostport", "ip6 cni_hostport")
"""The tables of bridge and ptp, and of portmap, in nftables."""

_OF_IPTABLES = {
    f"{family} {name}" for family in ("ip", "ip6") for name in ("filter", "mangle", "nat", "raw", "security")
}

_NO_CHAIN = 1
"""The exit status of iptables if a chain does not exist."""

Rule = tuple[str, ...]
"""A rule in the words of a command that adds it: of iptables ``-A CHAIN ...``, of nft ``add rule FAMILY TABLE ...``."""


class AddressSet:
    """The IP addresses of a named set of nft or ipset: single ones, and ranges as (version of IP, first, last)."""

    def __init__(self, hosts: Iterable[str] = (), ranges: Iterable[tuple[int, int, int]] = ()) -> None:
        self.hosts: frozenset[str] = frozenset(hosts)
        self._ranges: list[tuple[int, int, int]] = []
        for version, low, high in sorted(ranges):  # those of ipset may overlap
            last = self._ranges[-1] if self._ranges else (0, 0, 0)
            if last[0] == version and low <= last[2]:
                self._ranges[-1] = version, last[1], max(last[2], high)
            else:
                self._ranges.append((version, low, high))

    def __contains__(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        key = address.version, int(address)
        place = bisect.bisect(self._ranges, (*key, math.inf)) - 1
        version, low, high = self._ranges[place] if place >= 0 else (0, 0, 0)
        return str(address) in self.hosts or (version == key[0] and low <= key[1] <= high)


class Hook(NamedTuple):
    """The hook at which the kernel runs a chain of nft.

    Attributes:
        kind: ``filter``, ``nat`` or ``route``.
        name: the hook, such as ``forward``.
        devices: the interfaces of the hooks ``ingress`` and ``egress``.
        priority: the chain with the lowest priority runs first; iptables translates at -100.
    """

    kind: str
    name: str
    devices: tuple[str, ...] = ()
    priority: int = 0


class Table:
    """The chains and rules of a table, with a quick search by a target, the address of one host, or a mark.

    With 10,000 containers a chain has 10,000 rules. ``policies``: what happens to a packet at the end of a chain.
    ``hooks``: the hooks of nft's chains. ``handles``: the handles of nft's rules. ``sets``: the sets of
    addresses in rules that drop. ``unknown``: the lines of nft that are not understood. ``unread``: why sets of ipset
    are not in ``sets``.
    """

    def __init__(self) -> None:
        self.chains: dict[str, list[Rule]] = {}
        self.policies: dict[str, str] = {}
        self.hooks: dict[str, Hook] = {}
        self.handles: dict[Rule, str] = {}
        self.unknown: list[str] = []
        self.sets: dict[str, AddressSet] = {}
        self.unread: dict[str, str] = {}
        self._found: dict[tuple[str, str], list[Rule]] = {}
        self._jumps: dict[str, list[Rule]] = {}

    def add(self, chain: str, rule: Rule) -> None:
        """Add a rule at the end of a chain."""
        self.chains.setdefault(chain, []).append(rule)
        target = rule[rule.index("-j") + 1] if "-j" in rule else ""
        self._jumps.setdefault(target, []).append(rule)
        for word in (target or mark_of(rule), *(part for part in rule if part.endswith(("/32", "/128")))):
            self._found.setdefault((chain, word), []).append(rule)

    def find(self, chain: str, word: str) -> list[Rule]:
        """Return the rules of a chain with ``word`` as target, mark, or address with its prefix length."""
        return self._found.get((chain, word), [])

    def leading_to(self, chain: str) -> list[Rule]:
        """Return the rules of all chains whose target is ``chain``."""
        return self._jumps.get(chain, [])


def program_of(address: str) -> str:
    """Return the program for the iptables rules of an IP address: iptables or ip6tables."""
    return "ip6tables" if ":" in address else "iptables"


def programs() -> Iterator[str]:
    """Yield the programs whose rules act in this network namespace: PROGRAMS, and iptables' other variant.

    iptables-nft and iptables-legacy do not show each other's rules, and the kernel obeys both.
    """
    yield from PROGRAMS
    for program in PROGRAMS[:2]:
        with suppress(OSError):
            with open(f"/proc/thread-self/net/{program.replace('tables', '_tables')}_names", encoding="ascii") as file:
                has_legacy = bool(file.read().strip())
            is_nft = "nf_tables" in _run([f"{program}-save", "--version"], None)
            if has_legacy and is_nft:
                yield f"{program}-legacy"
            elif not is_nft:
                from shutil import which  # with modules of compression, which an ADD of the hook would load

                if which(f"{program}-nft-save"):
                    yield f"{program}-nft"


def masquerade_chain(network: str, container_id: str) -> str:
    """Return the chain in which bridge and ptp masquerade a container, for all its interfaces on the network."""
    return f"CNI-{_hash(network + container_id)}"[:_CHAIN_CHARACTERS]


def ports_chain(network: str, container_id: str) -> str:
    """Return portmap's chain for the published ports of a container, for all its interfaces on the network."""
    return f"CNI-DN-{_hash(network + container_id)}"[:_CHAIN_CHARACTERS]


def masquerade_mark(network: str, container_id: str, ifname: str) -> str:
    """Return the mark of the nftables rules in which bridge and ptp masquerade an attachment.

    portmap's mark is the container's ID alone: all its interfaces on all networks share it.
    """
    return f"{_hash(network)[:16]}-{_hash(f'{ifname}:{container_id}')[:16]}"


def _hash(text: str) -> str:
    return hashlib.sha512(text.encode()).hexdigest()


def mark_of(rule: Rule) -> str:
    """Return the start of the comment of an nftables rule, which identifies the rule's attachment, or ""."""
    return rule[-1].strip('"').partition(",")[0] if rule[-2] == "comment" else ""


class Listing(NamedTuple):
    """A table of iptables or nft as its program prints it.

    To read all rules takes 0.1 s if 2,000 containers publish ports. So a question about one container reads only the
    lines that can answer it.

    Attributes:
        name: the table. That of nft has its family before it.
        text: its lines.
    """

    name: str
    text: str

    def read(self, lines: Iterable[str] | None = None) -> Table:
        """Return the rules of these lines of ``text``, by default of all."""
        if " " in self.name:
            return nft_table(self.name, self.text if lines is None else "\n".join(lines))
        return _iptables_table(self.text.splitlines() if lines is None else lines)

    def about(self, words: Collection[str]) -> Table:
        """Return the rules whose text has one of these words, alone or as part of a longer word, and maybe others."""
        if " " in self.name:
            return self.read(line for line in self.text.splitlines() if any(map(line.__contains__, words)) or
                             not _is_whole_rule(line))  # fmt: skip
        return self.read(dict.fromkeys(line for word in words for line in _lines_with(self.text, word)))


def _lines_with(text: str, word: str) -> Iterator[str]:
    # A look at each of 10,000 lines would take ten times as long.
    end, place = 0, text.find(word)
    while place >= 0:
        start, end = text.rfind("\n", end, place) + 1 or end, text.find("\n", place)
        end = len(text) if end < 0 else end
        yield text[start:end]
        place = text.find(word, end)


def _is_whole_rule(line: str) -> bool:
    """Return whether a line of nft is a rule with a comment, and nothing begins, goes on or ends in it."""
    return ' comment "' in line and "{" not in line and "}" not in line and line.count('"') % 2 == 0


def saved_rules(
    program: str, env: Mapping[str, str] | None = None, *, seconds: float = _SECONDS, about: Collection[str] = ()
) -> dict[str, Table]:
    """Return the rules of all tables that exist, by table; with ``about`` those that ``Listing.about`` returns.

    Of nft only the plugins' own tables, such as ``ip cni_hostport``; see ``filtering_tables``.

    Changes nothing, and creates no table.

    Raises:
        OSError: the program is missing, or it failed; a PermissionError if only root may read the rules.
    """
    found = listings(program, env, seconds=seconds)
    return {one.name: one.about(about) if about else one.read() for one in found}


def listings(program: str, env: Mapping[str, str] | None = None, *, seconds: float = _SECONDS) -> list[Listing]:
    """Return the tables that ``saved_rules`` reads. Raises OSError as it does."""
    if program == "nft":
        # Not "list ruleset": it also lists the rules of iptables-nft, and it is long on a node with another firewall.
        names = {line.removeprefix("table ") for line in _run(["nft", "list", "tables"], env, seconds).splitlines()}
        wanted = [name for name in (MASQUERADE, *PORTS) if name in names]
        return [Listing(name, _run(["nft", "list", "table", *name.split()], env, seconds)) for name in wanted]
    # "iptables -S" would load the modules of a table that does not exist.
    parts = _run([f"{program}-save"], env, seconds).split("\nCOMMIT\n")
    return [Listing(found[1].strip(), part) for part in parts if (found := _NAME_OF_TABLE.search(part))]


def _iptables_table(lines: Iterable[str]) -> Table:
    table = Table()
    for line in lines:
        if line.startswith(":"):
            chain, policy = (*line[1:].split(), "", "")[:2]
            table.chains.setdefault(chain, [])
            table.policies[chain] = policy
        elif line.startswith("-A"):
            words = _iptables_rule(line)
            table.add(words[1], words)
    return table


def _iptables_rule(line: str) -> Rule:
    # shlex.split takes 10 s for the rules of 10,000 containers, and equal words that are not shared take 60 MB.
    if '"' not in line:
        return tuple(map(sys.intern, line.split()))
    return tuple(sys.intern(plain or _ESCAPED.sub(_escaped, text)) for text, plain in _WORD.findall(line))


def _escaped(found: re.Match[str]) -> str:
    return found[1]


def rules_in(program: str, table: str, chain: str) -> list[Rule]:
    """Return the rules of one chain of iptables or ip6tables; [] if it does not exist. Raises OSError."""
    try:
        listed = _run([program, "--wait", "5", "-t", table, "-S", chain], None)
    except OSError as error:
        if error.errno != _NO_CHAIN:  # for example a lock that another program holds: nothing is known then
            raise
        return []
    return [_iptables_rule(line) for line in listed.splitlines() if line.startswith("-A")]


def filtering_tables() -> dict[str, Table]:
    """Return the tables of nft that filter or translate packets, but not iptables-nft's and the plugins'.

    Elements of sets are read only for rules that drop packets. A table that cannot be listed is there without its
    chains. Raises OSError if none can be listed.
    """
    found: dict[str, Table] = {}
    name = ""
    for line in _run(["nft", "list", "chains"], None).splitlines():
        if line.startswith("table "):
            name = line.removeprefix("table ").removesuffix(" {")
        elif re.search("type (filter|nat) hook", line) and name not in {*_OF_IPTABLES, MASQUERADE, *PORTS, *found}:
            found[name] = Table()
            with suppress(OSError):  # its owner may have removed it meanwhile
                table = found[name] = nft_table(
                    name, _run(["nft", "-a", "--terse", "list", "table", *name.split()], None)
                )
                for wanted in _sets_of_drops(table):
                    table.sets[wanted] = address_set(_run(["nft", "list", "set", *name.split(), wanted], None))
    return found


def _sets_of_drops(table: Table) -> set[str]:
    """Return the names of the sets of addresses whose packets a rule drops."""
    drops = (rule for rules in table.chains.values() for rule in rules if {"drop", "reject"} & set(rule))
    pairs = (pair for rule in drops for pair in itertools.pairwise(rule))
    return {word[1:] for option, word in pairs if option in {"saddr", "daddr"} and word.startswith("@")}


def address_set(text: str) -> AddressSet:
    """Return the addresses of a set as ``nft list set`` prints it; those of pairs with a port are left out."""
    _, _, listed = _QUOTED.sub("", text).partition("elements = {")
    elements = (element.split() for element in listed.partition("}")[0].split(","))
    return _addresses(words[0] for words in elements if words and "." not in words)


def read_sets(tables: Mapping[str, Table]) -> None:
    """Store the ipsets that dropping rules of iptables name in the rules' tables; if unreadable, in ``unread``."""
    for table in tables.values():
        for rule in itertools.chain.from_iterable(table.chains.values()):
            if "--match-set" not in rule or {"DROP", "REJECT"}.isdisjoint(rule):
                continue
            for option, name in itertools.pairwise(rule):
                if option == "--match-set" and name not in {*table.sets, *table.unread}:
                    try:
                        table.sets[name] = ip_set(_run(["ipset", "save", name], None))
                    except OSError as error:
                        table.unread[name] = error.strerror or str(error)
                    except ValueError as error:
                        table.unread[name] = str(error)


def ip_set(text: str) -> AddressSet:
    """Return the addresses of a set as ``ipset save`` prints it. Raises ValueError if it has other elements."""
    lines = [line.split() for line in text.splitlines()]
    kind = lines[0][2] if lines and lines[0][2:] else ""
    if kind not in {"bitmap:ip", "hash:ip", "hash:net"} or any("nomatch" in words for words in lines):
        msg = f"the doctor reads only sets of addresses without nomatch; this one has the type {kind or '(none)'}"
        raise ValueError(msg)
    return _addresses(words[2] for words in lines if words[:1] == ["add"] and words[2:])


def _addresses(elements: Iterable[str]) -> AddressSet:
    hosts: set[str] = set()
    ranges: list[tuple[int, int, int]] = []
    for element in elements:
        low, _, high = element.partition("-")
        with suppress(ValueError):
            network = ipaddress.ip_network(low)
            if network.num_addresses == 1 and not high:
                hosts.add(str(network.network_address))
            else:
                end = ipaddress.ip_address(high) if high else network.broadcast_address
                ranges.append((network.version, int(network.network_address), int(end)))
    return AddressSet(hosts, ranges)


def nft_table(name: str, text: str) -> Table:
    """Return the rules of a table as ``nft list table`` prints them.

    Only chains matter, also those that stand within a rule; sets, maps and all other objects are passed over.
    """
    table = Table()
    chains = [""]  # the chains that are open, each within a rule of the one before; "" where no rules stand
    within: list[Rule] = []
    depth = 0  # of the braces that are open: those of the table, and of an object that is no chain
    for line, handle in _nft_lines(text):
        words = line.split()
        if depth == 1 and not chains[-1] and words[0] == "chain" and len(words) > 1:
            chains.append(words[1])
            table.chains.setdefault(words[1], [])
        elif not chains[-1]:
            braces = _QUOTED.sub("", line)
            depth = max(0, depth + braces.count("{") - braces.count("}"))
        elif words[0] == "}":
            chains.pop()
            if chains[-1]:
                table.handles.setdefault(within.pop(), handle)
        elif inner := _read_line(table, (name, chains[-1]), line, handle):
            within.append(table.chains[chains[-1]][-1])
            chains.append(inner)
    if depth or chains[-1]:
        table.unknown.append("its end")
    return table


def _read_line(table: Table, place: tuple[str, str], line: str, handle: str) -> str:
    """Read a line of a chain: a rule, or where the kernel asks the chain. Return the chain that begins there, or ""."""
    name, chain = place
    word = line.partition(" ")[0]
    if word == "type":
        if hook := _HOOK.match(line):
            devices = tuple(re.findall(r'[^\s{},"=]+', hook[3] or ""))
            start = int(hook[4]) if hook[4].isdecimal() else _PRIORITIES.get(hook[4], 0)
            table.hooks[chain] = Hook(hook[1], hook[2], devices, start + int(f"{hook[5]}{hook[6]}" if hook[6] else "0"))
            table.policies[chain] = "DROP" if "policy drop" in line else "ACCEPT"
        else:
            table.unknown.append(f"{chain}: {line}")
    elif word not in {"comment", "policy"}:
        inner = f"{chain}.{len(table.chains)}" if line.endswith(" {") else ""
        rule = _nft_rule(name, chain, line[:-1] + inner if inner else line)
        table.add(chain, rule)
        if inner:
            table.chains[inner] = []
        elif handle:
            table.handles.setdefault(rule, handle)
        return inner
    return ""


def _nft_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield (line, handle or "") of the lines that are not empty; a comment may have a line break."""
    whole = ""
    for line in (*text.splitlines(), '"'):
        whole = f"{whole} {line.strip()}" if whole else line.strip()
        if whole.count('"') % 2 == 0:
            listed, handle = _without_handle(whole)
            if listed.strip():
                yield listed, handle
            whole = ""


def _without_handle(line: str) -> tuple[str, str]:
    text, _, handle = line.rpartition(" # handle ")
    return (text, handle) if handle.isdecimal() else (line, "")


def _nft_rule(name: str, chain: str, line: str) -> Rule:
    # A comment stays one word with its quotation marks: nft reads it in this form.
    words, separator, comment = line.rpartition(" comment ")
    if not (separator and comment.startswith('"') and comment.count('"') == 2):  # noqa: PLR2004 - its marks
        words, comment = line, ""  # of an element of a set, or in a text
    rule = ("add", "rule", *name.split(), chain, *map(sys.intern, words.split()))
    return (*rule, "comment", sys.intern(comment)) if comment else rule


def port_rules(tables: Mapping[str, Table], container_id: str) -> Iterator[tuple[str, str, Rule]]:
    """Yield (table, chain, rule) of portmap's rules in nftables for a container, on any network."""
    for name in PORTS:
        table = tables.get(name, Table())
        for chain in table.chains:
            yield from ((name, chain, rule) for rule in table.find(chain, container_id))


def remove(program: str, table: str, rule: Rule) -> None:
    """Remove a rule as ``saved_rules`` returns it. Raises OSError, for example if the rule does not exist."""
    if program != "nft":
        _run([program, "--wait", "5", "-t", table, "-D", *rule[1:]], None)
        return
    chain = rule[4]
    # Look up the handle immediately before the call: after a flush it may be another rule's.
    for line in _run(["nft", "-a", "list", "chain", *table.split(), chain], None).splitlines():
        text, handle = _without_handle(line.strip())
        # The last word is the comment with the container's ID; to parse all rules of 2,000 containers takes 20 ms.
        if handle and rule[-1] in text and _nft_rule(table, chain, text) == rule:
            _run(["nft", "delete", "rule", *table.split(), chain, "handle", handle], None)
            return
    raise FileNotFoundError(2, "the rule does not exist", shlex.join(rule))


def addresses_of(rule: Rule) -> Iterator[str]:
    """Yield the addresses of single hosts in a rule: sources, and targets of a translation. Omit loopback."""
    for option, word in itertools.pairwise(rule):
        if option in {"-s", "saddr", "--to-destination", "to"}:
            address, _, length = word.partition("/")
            if length in {"", "32", "128"}:
                text = address if _is_address(address) else address.rpartition(":")[0].strip("[]")
                if _is_address(text):
                    yield text


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def restore(program: str, table: str, chains: Mapping[str, Iterable[Rule]], rules: Iterable[Rule]) -> None:
    """Replace the contents of chains of an iptables table, create missing chains, and carry out rules; all at once.

    Raises OSError, and changes nothing, if it fails.

    Args:
        program: iptables or ip6tables.
        table: the table.
        chains: the rules of each chain.
        rules: further rules, such as ``-A CHAIN ...``.
    """
    lines = [f"*{table}", *(f":{chain} - [0:0]" for chain in chains)]
    lines += [" ".join(map(_quoted, rule)) for rule in itertools.chain(*chains.values(), rules)]
    _run([f"{program}-restore", "--noflush", "--wait", "5"], None, given="\n".join([*lines, "COMMIT", ""]))


def _quoted(word: str) -> str:
    """Return a word for iptables-restore, which knows double quotation marks only."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if plain != word or " " in word or not word else word


def change(program: str, rule: Rule) -> None:
    """Run nft, or iptables on the table ``nat``. Raises OSError if it fails."""
    _run([program, *rule] if program == "nft" else [program, "--wait", "5", "-t", "nat", *rule], None)


def _run(command: list[str], env: Mapping[str, str] | None, seconds: float = _SECONDS, given: str = "") -> str:
    # subprocess searches this process's PATH. A plugin would search the PATH of its own environment.
    path = os.environ.get("PATH") if env is None else env.get("PATH")
    for directory in (path or os.defpath).split(os.pathsep):
        if os.access(executable := os.path.join(directory, command[0]), os.X_OK):
            break
    else:
        raise FileNotFoundError(2, "the program is not in PATH", command[0])
    # Of 2,000 containers iptables-save prints 2 MB. To read that from a pipe takes five times as long.
    with open(os.memfd_create("rules"), "w+b") as output:
        try:
            process = subprocess.run(  # noqa: S603 - iptables, iptables-save and nft
                [executable, *command[1:]],
                env=env,
                input=given.encode(errors="surrogateescape"),
                stdout=output,
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(110, f"the program did not end within {seconds:.0f} s", command[0]) from error
        output.seek(0)
        # The comments of other programs' rules may have bytes of any kind.
        text = output.read().decode(errors="replace")
    if process.returncode:
        said = process.stderr.decode(errors="replace").strip()
        kind = PermissionError if os.geteuid() else OSError
        raise kind(process.returncode, said or f"exit status {process.returncode}", shlex.join(command))
    return text
