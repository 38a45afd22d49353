"""Send packets between containers, their gateways and the node, and find out which do not arrive.

Very many things can stop packets. This check looks for the effect, whatever the cause is.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

import libcni.kernel.system as system
from libcni.diagnosis.namespaces import attachment_age
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.probes import SILENT, End, Kind, Probe, batches, calls_of, ends_of, is_silent, probes_of
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, Severity, name_of
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import counted, some
from libcni.kernel.echo import Echo, EchoRequest, send_echoes
from libcni.kernel.foreign import read_space
from libcni.kernel.namespace import open_known
from libcni.kernel.netlink import Conversation, open_netlink

_NOT_LOST = {
    "hairpin-off", "known-fault", "localnet-off", "lost-path", "mtu-changed", "other-way-out", "port-caught",
    "rules-left", "rules-missing", "unreserved",
}  # fmt: skip
"""Names of findings that cannot be the cause if an echo request has no answer."""

_SETTLED = 5.0
"""Seconds after an ADD from which packets must arrive: the kernel takes a second for a new link or IPv6 address."""
_OF_OTHERS = {"router", "gateway", "out"}
_WITH_NODE = {"node", "gateway"}
Fate = Literal["refused", "blocked", "unresolved", "rejected", "silent"]
_SEVERITIES: Mapping[Fate, Severity] = {"refused": "error", "unresolved": "error"}
_MEANINGS: Mapping[Fate, str] = {
    "refused": "a route or a routing rule drops the packets",
    "unresolved": "the two ends are cut off from each other: nobody answers ARP or neighbor solicitations",
    "blocked": "a rule or a policy at the sender drops the packets",
    "rejected": "packets are lost on this way, unless a policy is meant to refuse echo requests",
    "silent": "packets are lost on this way, unless a policy is meant to drop echo requests",
}
_OF_TCP = "echo requests get through, and connections of TCP to such ports do not; a policy may be meant to do this"
_REASONS = {
    errno.EPERM: "a rule or a policy of IPsec (xfrm) forbids it",
    errno.EACCES: "a route or a routing rule of the type prohibit",
    errno.EHOSTUNREACH: "a route or a routing rule of the type unreachable",
    errno.EINVAL: "a route or a routing rule of the type blackhole",
    errno.ENETUNREACH: "no route leads there",
}


class Failure(NamedTuple):
    """A request that had no answer."""

    probe: Probe
    echo: Echo
    fate: Fate


def check_traffic(node: NodeState, findings: Collection[NodeFinding], only: Collection[str] = ()) -> Observations:
    """Send echo requests and find those without an answer, unless another finding explains this.

    ``only``: the containers to or from which they are sent, as ``ID`` or ``ID:IFNAME``; (): all.
    """
    if node.host is None:
        yield NotChecked("traffic", "packets", node.unread.get("this node", "the node's interfaces are unknown"))
        return
    explained = {
        name for finding in findings
        if finding.check in {"interfaces", "rules", "namespaces"} and finding.name not in _NOT_LOST
        and not _is_about_node(finding) for name in finding.containers
    }  # fmt: skip
    unheard = {name for finding in findings if _is_about_node(finding) for name in finding.containers} - explained
    doubtful = {
        name for finding in findings if finding.check in {"interfaces", "rules"} and finding.name != "other-way-out"
        for name in finding.containers
    }  # fmt: skip
    every = list(ends_of(node))
    yield from _left_out(every, explained, unheard)
    ends = [end for end in every if end.name not in explained and not end.is_virtual]
    probes = [
        probe for probe in probes_of(node, ends, doubtful)
        if probe.kind not in _WITH_NODE or unheard.isdisjoint(end.name for end in probe.ends)
    ]  # fmt: skip
    has_gateway = any(probe.kind == "router" for probe in probes)
    for finding in findings if not has_gateway else ():
        if finding.name == "other-way-out":
            reason = f"{finding.seen}: no gateway there can be asked"
            yield NotChecked("traffic", "packets of containers to other networks", reason)
    probed = {end.name for probe in probes for end in probe.ends}
    for name in dict.fromkeys(name_of(end.attachment) for end in ends if end.name not in probed):
        yield NotChecked("traffic", name, "there is no gateway and no other container on this node to send packets to")
    if only:
        probes = [
            probe for probe in probes
            if probe.kind == "router" or any({end.name, end.attachment.container_id} & {*only} for end in probe.ends)
        ]  # fmt: skip
    if not probes:
        return
    failures: list[Failure] = []
    unknown: list[tuple[Probe, str]] = []
    answering: set[str] = set()
    silent: dict[str, Failure] = {}
    for batch in batches(probes):
        _send(batch, answering, failures, unknown, silent)
    failed = {end.name for failure in failures for end in failure.probe.ends}
    calls = list(calls_of([one for one in probes if failed.isdisjoint(end.name for end in one.ends)]))
    for batch in batches(calls):
        _send(batch, answering, failures, unknown, silent)
    probes = [probe for probe in probes if probe.kind != "out" or probe.request.target in answering]
    yield from map(_of_router, silent.values())
    for end, reason in {probe.ends[-1].name: (probe.ends[-1], reason) for probe, reason in unknown}.values():
        yield NotChecked("traffic", name_of(end.attachment), reason)
    yield from _counted(probes, calls)
    yield from _findings(failures, [*probes, *calls])


def _counted(probes: list[Probe], calls: list[Probe]) -> Iterator[Checked]:
    counts = {word: sum(probe.kind == kind for probe in probes) for kind, word in _COUNTED.items()}
    what = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    yield Checked("traffic", f"{counted(sum(counts.values()), 'echo request')}: {what}")
    if calls:
        yield Checked("traffic", f"{counted(len(calls), 'connection')} of TCP between containers")


def _is_about_node(finding: NodeFinding) -> bool:
    """Return whether a finding is the note about a firewall that keeps containers from the node, as many nodes have."""
    is_note = finding.severity == "note" and finding.name in {"dropped", "policy-drops"}
    return is_note and finding.subject.startswith("chain ")


def _left_out(ends: list[End], explained: Collection[str], unheard: Collection[str]) -> Iterator[NotChecked]:
    """Say of which packets nothing is known."""
    for names, to in ((explained, ""), (unheard, " to this node")):
        if found := {end.name for end in ends if end.name in names}:
            subject = f"packets of {counted(len(found), 'attachment')}{to}"
            yield NotChecked("traffic", subject, "another finding already explains why packets may be lost")
    for name in dict.fromkeys(name_of(end.attachment) for end in ends if end.is_virtual):
        yield NotChecked("traffic", name, "the packets of this container go to a virtual machine")
    for version in sorted({end.version for end in ends if end.is_on_node}):
        if is_silent(version):
            what = f"packets of IPv{version} to the node"
            yield NotChecked("traffic", what, f"the node answers no echo requests: {SILENT[version]} is 1")


_COUNTED: Mapping[Kind, str] = {
    "node": "from the node", "gateway": "to gateways", "same": "between containers of a network",
    "other": "between networks", "out": "to the node's gateway",
}  # fmt: skip


# What came back.


def _of_router(failure: Failure) -> NodeFinding | NotChecked:
    """Say that the node's gateway does not answer the node: no container can reach other networks through it then."""
    router = failure.probe.request.target
    if failure.fate != "unresolved":
        reason = "it does not answer the node's own echo requests, so nothing was sent to it from containers"
        return NotChecked("traffic", f"packets to the node's gateway {router}", reason)
    return NodeFinding(
        "traffic", "error", "no-reply", f"this node's gateway {router}",
        f"the node gets no answer to the question who has {router} ({'NDP' if ':' in router else 'ARP'})",
        "the node and its containers reach no other network through it",
        f"find out whether it is the right gateway, and what is between: ip route get {router}; ip neigh show {router}",
    )  # fmt: skip


def _send(
    batch: list[Probe],
    answering: set[str],
    failures: list[Failure],
    unknown: list[tuple[Probe, str]],
    silent: dict[str, Failure],
) -> None:
    echoes = send_echoes([probe.request for probe in batch])
    pairs = list(zip(batch, echoes, strict=True))
    # Another machine is expected to answer if it answers the node, or another container.
    answering |= {probe.request.target for probe, echo in pairs if echo.is_answered}
    unresolved: dict[str, set[str]] = {}
    for probe, echo in pairs:
        if probe.kind == "router" and not echo.is_answered:
            with suppress(OSError):
                silent[probe.request.target] = Failure(probe, echo, _fate(probe, echo, _unresolved(probe.request)))
        is_on_node = probe.kind == "gateway" and probe.source is not None and probe.source.is_on_node
        is_expected = probe.kind not in _OF_OTHERS or is_on_node or probe.request.target in answering
        if echo.is_answered or not is_expected or not all(map(_is_there, probe.ends)):
            continue
        netns = probe.request.netns
        try:
            if netns not in unresolved:
                unresolved[netns] = _unresolved(probe.request)
        except OSError as error:
            echo.problem = error.strerror or str(error)
        if not echo.problem and probe.target is not None and is_silent(probe.target.version, probe.target):
            echo.problem = f"{probe.target.name} answers no echo requests: {SILENT[probe.target.version]} is 1 there"
        if not echo.problem and any(map(_is_young, probe.ends)):
            echo.problem = f"the packets may not arrive yet: the ADD ended less than {_SETTLED:g} s ago"
        if echo.problem or echo.error in {errno.EAGAIN, errno.ENOBUFS}:
            unknown.append((probe, echo.problem or os.strerror(echo.error)))
        else:
            failures.append(Failure(probe, echo, _fate(probe, echo, unresolved[netns])))


def _is_there(end: End) -> bool:
    """Return whether a container still has its address: it may have ended meanwhile."""
    space = read_space(end.identity, end.path)
    link = space.network.links.get(end.link.name) if space is not None and space.network is not None else None
    return link is not None and link.is_up and link.has_address(end.address)


def _is_young(end: End) -> bool:
    age = attachment_age(end.attachment)
    if age is None:  # a record of Go libcni, which writes it at the end of the ADD
        with suppress(OSError):
            age = time.time() - os.stat(end.attachment.path).st_mtime
    return age is not None and age < _SETTLED


def _unresolved(request: EchoRequest) -> set[str]:
    """Return the neighbours in a request's namespace that have not answered for their hardware address."""
    if not request.netns or request.identity is None:
        with open_netlink() as connection:
            return Conversation(connection, is_own=True).unresolved()
    with (
        system.Closing(open_known(request.netns, request.identity)) as namespace,
        open_netlink(f"/proc/self/fd/{namespace}") as connection,
    ):
        return Conversation(connection).unresolved()


def _fate(probe: Probe, echo: Echo, unresolved: set[str]) -> Fate:
    if echo.sent and probe.next_hop in unresolved:
        return "unresolved"
    if echo.error == errno.EPERM:
        return "blocked"
    if echo.error:
        return "rejected" if echo.reporter else "refused"
    return "silent"


# The findings.


def _findings(failures: list[Failure], probes: list[Probe]) -> Iterator[NodeFinding]:
    """Yield a finding for each cause: what fails alike for several containers of a network is one."""
    # A container that the node does not reach is the cause of what fails between it and others.
    direct = grouped((failure.probe.ends[0].name, failure) for failure in failures if failure.probe.kind in _WITH_NODE)
    alike = grouped(
        (
            (group[0].probe.ends[0].attachment.network, *((failure.probe.kind, failure.fate) for failure in group)),
            group,
        )
        for group in direct.values()
    )
    for groups in alike.values():
        network = groups[0][0].probe.ends[0].attachment.network
        asked = {
            end.name for probe in probes if probe.kind in _WITH_NODE for end in probe.ends
            if end.attachment.network == network
        }  # fmt: skip
        yield _finding([*itertools.chain(*groups)], [group[0].probe.ends[0] for group in groups], asked)
    between = [
        failure for failure in failures
        if failure.probe.kind not in _WITH_NODE
        and direct.keys().isdisjoint(end.name for end in failure.probe.ends)
    ]  # fmt: skip
    for key, group in grouped((_group_of(failure.probe), failure) for failure in between).items():
        asked_alike = [probe for probe in probes if _group_of(probe) == key]
        if group[0].probe.kind != "out":
            yield from _between(group, asked_alike)
        elif len(group) == len(asked_alike):  # one alone may have a policy of its own
            yield _finding(group, [failure.probe.ends[0] for failure in group], set())


def _group_of(probe: Probe) -> tuple[str, ...]:
    """Return the kind of a request, and the networks of its ends."""
    return probe.kind, *(end.attachment.network for end in probe.ends)


def _between(group: list[Failure], probes: list[Probe]) -> Iterator[NodeFinding]:
    """Yield the findings about packets between containers: of those that reach neither neighbour, and of pairs."""
    asked = {end.name for probe in probes for end in probe.ends}
    fails = grouped((end.name, failure) for failure in group for end in failure.probe.ends)
    alone = {name for name, own in fails.items() if len(own) > 1} if len(group) < len(probes) else set()
    for name in sorted(alone):
        end = next(end for failure in fails[name] for end in failure.probe.ends if end.name == name)
        yield _finding(fails[name], [end], asked)
    pairs = [failure for failure in group if alone.isdisjoint(end.name for end in failure.probe.ends)]
    if pairs:
        ends = {end.name: end for failure in pairs for end in failure.probe.ends}
        yield _finding(pairs, list(ends.values()), asked)


def _finding(failures: list[Failure], ends: list[End], asked: set[str]) -> NodeFinding:
    is_tcp = all(failure.probe.kind == "tcp" for failure in failures)
    worst = min(failures, key=lambda failure: list(_MEANINGS).index(failure.fate))
    names = tuple(dict.fromkeys(end.name for end in ends))
    networks = list(dict.fromkeys(end.attachment.network for end in ends))
    of_networks = f"network{'s' * (len(networks) > 1)} {' and '.join(networks)}"
    subject = f"{counted(len(names), 'attachment')} of {of_networks}"
    if worst.probe.kind == "out":
        subject = f"{of_networks}, packets to other machines"
    elif len(names) == 1:
        subject = name_of(ends[0].attachment)
    elif asked <= set(names) and not is_tcp:  # one pair alone was asked
        subject = f"all {subject}"
    return NodeFinding(
        "traffic", "note" if is_tcp else _SEVERITIES.get(worst.fate, "warning"), "no-reply", subject,
        some([_words(failure) for failure in failures], "; "), _OF_TCP if is_tcp else _MEANINGS[worst.fate],
        f"find out what stops them: {'; '.join(_looks(worst))}", (), names,
    )  # fmt: skip


def _words(failure: Failure) -> str:
    """Say what was sent, and what came back."""
    probe, echo, fate = failure
    source = probe.source.label if probe.source is not None else "the node"
    target = f"its gateway {probe.request.target}"
    if probe.kind == "out":
        target = f"the node's gateway {probe.request.target}, which answers the node"
    if probe.target is not None:
        target = probe.target.label
    sent = f"a connection to port {probe.request.port} of TCP " if probe.request.port else ""
    sent = sent or (f"{counted(echo.sent, 'echo request')} " if echo.sent else "")
    text = f"{sent}from {source} to {target}: "
    reason = os.strerror(echo.error)
    if fate == "unresolved":
        question = "NDP" if ":" in probe.next_hop else "ARP"
        return f"{text}no answer, and none to the question who has {probe.next_hop} ({question})"
    if fate == "rejected":
        return f"{text}{echo.reporter} answers: {reason}"
    if fate in {"refused", "blocked"}:
        return f"{text}the kernel of the sender does not send them: {_REASONS.get(echo.error, reason)}"
    return f"{text}no answer"


def _looks(failure: Failure) -> Iterator[str]:
    """Yield the commands that show what may stop the packets; only those of programs that are installed."""
    probe, fate = failure.probe, failure.fate
    source, target = probe.request.source, probe.request.target
    begin = probe.source.path if probe.source is not None else ""
    places = list(dict.fromkeys([begin, "", *(end.path for end in probe.ends)]))
    for place in places[:1] if fate in {"refused", "blocked"} else places:
        # The kernel's own answer about the way, which table local, rules and policies decide, too.
        if place == begin and fate != "unresolved":
            yield command_in(place, f"ip route get {target}{f' from {source}' * bool(source)}")
        elif not place and source and probe.kind == "gateway":
            yield f"ip route get {source}"
        if not place and fate in {"rejected", "silent"}:
            yield f"ip {'-6 ' * (':' in target)}rule"  # a rule may lead packets with a mark to another table
        if fate == "refused" or (place and fate == "unresolved"):
            yield command_in(place, f"ip {'-6 ' * (':' in target)}rule")
        if fate == "unresolved" and place and ":" not in target:
            yield command_in(place, "sysctl net.ipv4.conf.all.arp_ignore")
        yield from (command_in(place, command) for command in _listings(fate, place))


def _listings(fate: Fate, place: str) -> Iterator[str]:
    # nft does not show the rules of the legacy variants, which the kernel obeys, too.
    commands = ["nft list ruleset", "ip xfrm policy", "iptables-legacy-save"]
    if fate == "unresolved":
        commands = ["nft list ruleset", "ebtables -L"][: 1 if place else 2]
    if fate != "refused":
        yield from (command for command in commands if shutil.which(command.split()[0]))
