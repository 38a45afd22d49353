"""Carry out the mends of a repair. Each first checks, under the lock that an ADD would hold, whether it is needed."""

from __future__ import annotations

import fcntl
import ipaddress
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final, NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import replace
from libcni.client import CNIConfig
from libcni.config.host_local import reservation_at
from libcni.config.network import plugin_documents
from libcni.config.port_mappings import published_in
from libcni.diagnosis.disk import POOL_LOCK_MODE
from libcni.diagnosis.lock_holders import users_in_words
from libcni.diagnosis.mends import Mend, MendKind
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.plugins import ask_before_add
from libcni.diagnosis.rules_left import removals
from libcni.errors import CNIError, CNIErrorGroup, LockTimeoutError, RecordError
from libcni.kernel import netlink, rules
from libcni.kernel.namespace import bind, is_empty_file
from libcni.kernel.rule_words import after, target_of, target_port_of
from libcni.options import DelPolicy
from libcni.store.attachments import Attachment, attachments_of, recorded_conf, recorded_result
from libcni.store.files import make_directory
from libcni.store.life_of_record import subject_of
from libcni.store.locks import LockRequest, LockSet
from libcni.store.model import Unreadable
from libcni.store.records import RecordStore, names_of
from libcni.verbs.chain import Chain
from libcni.verbs.client_base import attachment_operation
from libcni.verbs.configurations import network_to_use
from libcni.verbs.delete import check_unchanged
from libcni.verbs.verb_run import VerbRun

_Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_SECONDS = 30.0
"""Seconds to wait for a lock."""
_PROOF_SECONDS = 1.0
"""Seconds to wait for host-local's lock after the diagnosis: few, because the diagnosis becomes outdated."""
_AT_ONCE = 25
"""How many mends for dead containers share one examination of the node, which takes half a second."""
_MULTICAST = {"iptables": "224.0.0.0/4", "ip6tables": "ff00::/8"}


def _attachment(node: NodeState, mend: Mend) -> Attachment:
    """Return the attachment whose record is a mend's target."""
    return node.by_path[mend.target]


def _reserve(node: NodeState, mend: Mend) -> None:
    [address], [name] = mend.details, mend.containers
    container_id, ifname = name.split(":", 1)
    path = f"{mend.target}/{address}"
    with _host_local_lock(mend.target, _PROOF_SECONDS):
        _check_unchanged(node, path)
        # A kill must not leave an empty file, a reservation without an owner. host-local ignores this name.
        draft = f"{mend.target}/.libcni-{os.getpid()}"
        with suppress(FileNotFoundError):
            os.unlink(draft)
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644),
            "w",
            encoding="utf-8",
            newline="",
        ) as file:
            file.write(f"{container_id}\r\n{ifname}")
        os.rename(draft, path)


def _release(node: NodeState, mend: Mend) -> None:
    with _host_local_lock(mend.target, _PROOF_SECONDS):
        for address in mend.details:
            path = f"{mend.target}/{address}"
            _check_unchanged(node, path)
            with suppress(FileNotFoundError):
                os.unlink(path)


def _check_unchanged(node: NodeState, path: str) -> None:
    """Raise RecordError if a reservation is not the one that the diagnosis read, before it had host-local's lock."""
    known = node.reservation(*os.path.split(path))
    found = reservation_at(path)
    if found is not None and found != known:
        raise RecordError(f"{path}: the address was reserved for another container a moment ago", path=path)


def _mount(node: NodeState, mend: Mend) -> None:
    attachment = node.by_path[mend.netns]
    # Go records no identity: there the namespace is the one that has the container's address.
    answer = node.life_of(attachment)
    descriptor = node.life.open(replace(subject_of(attachment.record), netns=answer.netns, path=answer.path))
    try:
        bind(f"/proc/self/fd/{descriptor}", mend.target, onto=is_empty_file(mend.target))
    finally:
        os.close(descriptor)


def _forward(_: NodeState, mend: Mend) -> None:
    with open(mend.target, "w", encoding="ascii") as file:
        file.write("1")


def _change_link(node: NodeState, mend: Mend) -> None:
    network = node.host
    descriptor = os.open(mend.netns or "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if mend.netns:
            # By descriptor: the path may lead to another container's namespace at any time.
            status = os.fstat(descriptor)
            space = node.spaces.get((status.st_dev, status.st_ino))
            network = space.network if space is not None else None
        if network is None:
            raise FileNotFoundError(2, "the container's namespace has been replaced", mend.netns)
        # By index: another link may have the name by now.
        link, netns = network.links[mend.target], f"/proc/self/fd/{descriptor}"
        index = link.index
        if mend.kind == "set-up":
            netlink.change_link(netns, index)
        elif mend.kind == "join":
            netlink.change_link(netns, index, master=network.links[mend.details[0]].index)
            if "hairpin on" in mend.details:  # the port is new
                netlink.set_hairpin(netns, index)
        elif mend.kind == "remove-address":
            netlink.remove_address(netns, index, *mend.details)
            # With an address the kernel removes the later ones of its subnet (net.ipv4.conf.*.promote_secondaries).
            for other in [text for text in link.addresses if text not in mend.details and ":" not in text]:
                with suppress(FileExistsError):
                    netlink.add_address(netns, index, other)
        elif mend.kind == "add-address":
            address, _, gateway = mend.details[0].partition(" via ")
            with suppress(FileExistsError):
                netlink.add_address(netns, index, address, brings_route=not gateway)
            # As ptp makes them: nobody else is on the link, so the container's own network is behind the gateway, too.
            network_of = str(ipaddress.ip_interface(address).network)
            for route in ((str(ipaddress.ip_network(gateway)),), (network_of, gateway)) if gateway else ():
                with suppress(FileExistsError):
                    netlink.add_route(netns, index, *route)
        else:
            with suppress(FileExistsError):
                netlink.add_route(netns, index, *mend.details)
    finally:
        os.close(descriptor)


def _add_rules(node: NodeState, mend: Mend) -> None:
    attachment, start = _attachment(node, mend), node.cni._run  # noqa: SLF001 - a verb of its own
    chain = rules.masquerade_chain(attachment.network, attachment.container_id)
    jumps = {rule for program in _MULTICAST for rule in node.table(program, "nat").leading_to(chain)}
    start(attachment_operation("RELOAD", attachment), _SECONDS, _run_plugins, attachment, mend.details, jumps)


async def _run_plugins(run: VerbRun, attachment: Attachment, missing: tuple[str, ...], jumps: set[rules.Rule]) -> None:
    """Run ADD of the plugins that only create rules, and create the masquerade rules of bridge and ptp.

    ``jumps``: the present jumps to the container's chain of masquerade.
    """
    await run.lock([attachment.network], attachment.container_id)
    record = run.records.find(attachment.record.identity)
    check_unchanged(record or attachment.record.with_fields(owner=None), attachment.record)
    assert record is not None
    net, result = network_to_use(record), recorded_result(record)
    wanted = {"firewall": "firewall" in missing, "portmap": any(kind.startswith("port ") for kind in missing)}
    if "masquerade" in missing:
        addresses = [ipaddress.ip_interface(ip.address) for ip in result.ips]
        await run.on_disk(lambda: _masquerade(record.network, record.container_id, addresses, jumps))
    text = result.as_version(net.cni_version).text
    chain = Chain(run, net, recorded_conf(record).with_netns(attachment.netns), run.find_all(net))
    for index, document in enumerate(plugin_documents(net)):
        if wanted.get(str(document.get("type"))):
            await chain.call(chain.invocation("ADD", index, text))
    if wanted["portmap"]:
        await run.on_disk(lambda: _keep_ports(run.records, record.network, record.container_id))


def _keep_ports(records: RecordStore, network: str, container_id: str) -> None:
    """Remove the rules that portmap has not made from a container's chain of ports, all at once.

    portmap adds its rules behind those that are there, and the first one decides. All interfaces of the container on
    the network share the chain: it leads each one's ports to its own addresses.
    """
    chain = rules.ports_chain(network, container_id)
    own: set[tuple[str, str, str, str]] = set()
    # Read under the container's lock: an ADD of another interface may have ended since the diagnosis.
    for other in attachments_of(records.records(container_id), records):
        if other.network == network and other.result is not None:
            addresses = [str(ipaddress.ip_interface(ip.address).ip) for ip in other.result.ips]
            own |= {
                (address, port.protocol, f"{port.number:g}", inside)
                for port, inside in published_in(other.capability_args) for address in addresses
            }  # fmt: skip
    for program in sorted({rules.program_of(address) for address, *_ in own}):
        present = rules.rules_in(program, "nat", chain)
        made = [
            rule for rule in present
            if after(rule, "-j") == "CNI-HOSTPORT-SETMARK"
            or any(
                (target_of(rule), after(rule, "-p"), after(rule, "--dport"), port) in own
                for port in (target_port_of(rule), "")
            )
        ]  # fmt: skip
        if made != present:
            rules.restore(program, "nat", {chain: made}, ())


def _masquerade(network: str, container_id: str, addresses: list[_Address], jumps: set[rules.Rule]) -> None:
    """Fill the container's chain of ``ipMasq`` anew, with a jump to it from each address except those in ``jumps``.

    All at once: a packet in between would leave with the container's own address. Somebody may have put a rule before
    those of the plugin; those for the container's other interfaces on the network stay.
    """
    chain, comment = rules.masquerade_chain(network, container_id), f'name: "{network}" id: "{container_id}"'
    about = ("-m", "comment", "--comment", comment)
    for program in sorted({rules.program_of(str(address)) for address in addresses}):
        own = [address for address in addresses if rules.program_of(str(address)) == program]
        inside: list[rules.Rule] = [("-A", chain, "-d", str(one.network), *about, "-j", "ACCEPT") for one in own]
        # Only this chain is read again: of 10,000 containers all rules take a second, for each mend.
        inside += [rule for rule in rules.rules_in(program, "nat", chain) if rule[-1] == "ACCEPT" and comment in rule]
        inside = [*dict.fromkeys(inside), ("-A", chain, "!", "-d", _MULTICAST[program], *about, "-j", "MASQUERADE")]
        wanted = [("-A", "POSTROUTING", "-s", f"{one.ip}/{one.max_prefixlen}", *about, "-j", chain) for one in own]
        rules.restore(program, "nat", {chain: inside}, [jump for jump in wanted if jump not in jumps])


def _remove_rules(node: NodeState, mend: Mend) -> None:
    for program, table, rule in removals(node, mend):
        if rule[0] == "-X":
            # Do not flush the chain: a rule that was added meanwhile must make the chain's removal fail.
            for inside in node.table(program, table).chains[rule[1]]:
                rules.remove(program, table, inside)
            rules.change(program, rule)
        else:
            try:
                rules.remove(program, table, rule)
            except FileNotFoundError:
                continue
            except OSError:
                # Two mends of a group may be for the same address, and another program may remove its rules meanwhile.
                if program == "nft" or rule in rules.rules_in(program, table, rule[1]):
                    raise


def _remove_at_once(node: NodeState, mends: list[Mend]) -> bool:
    """Remove the rules of several mends in one transaction for each table of iptables; return whether that worked.

    Of 5,000 containers each command of iptables takes longer than the whole transaction.
    """
    wanted = dict.fromkeys(itertools.chain.from_iterable(removals(node, mend) for mend in mends))
    found: dict[tuple[str, str], list[rules.Rule]] = {}
    for program, table, rule in wanted:
        # As in _remove_rules the chain is not flushed.
        inside = node.table(program, table).chains[rule[1]] if rule[0] == "-X" else [rule]
        commands = found.setdefault((program, table), [])
        commands += [("-D", *one[1:]) for one in inside]
        commands += [rule] if rule[0] == "-X" else []
    if any(program == "nft" for program, _ in found):
        return False
    try:
        for (program, table), commands in found.items():
            rules.restore(program, table, {}, commands)
    except OSError:  # a rule is gone already, or a chain has a new one: the mends find out which
        return False
    return True


def _reload(node: NodeState, mend: Mend) -> None:
    attachment = _attachment(node, mend)
    if (net := node.recorded(attachment)) is not None:
        ask_before_add(node.cni, net)  # after its DEL the container works no longer if the ADD fails
    node.cni.reload_attachment(attachment)


def _set_aside(node: NodeState, mend: Mend) -> None:
    store = RecordStore(node.cni.cache_dir)
    name = os.path.basename(mend.target)
    record = store.read(name)
    # The diagnosis may have failed to read a record that is in order, for example because of too many open files.
    if isinstance(record, Unreadable) or (record is not None and name not in names_of(record.identity)):
        store.set_aside(record)


class Act(NamedTuple):
    """How a repair carries out one kind of mend (a change that solves a finding).

    All kinds have the same condition: a new diagnosis, made under the locks, still requires the mend.

    Attributes:
        change: the function that changes the node. None: attachments are detached, many in parallel.
        locks: the locks that are held from the check of the condition to the end of the mend. Verbs acquire their
            own locks. A string is a directory of host-local: its lock is acquired, released, and acquired again for
            the change alone. No namespace is read under this lock: a slow one would stop every ADD.
        at_once: the number of mends that share one examination of the node, if they interrupt nobody.
    """

    change: Callable[[NodeState, Mend], None] | None
    locks: Callable[[Mend], tuple[LockRequest | str, ...]] = lambda _: ()
    at_once: int = 1


def _container(mend: Mend) -> LockRequest:
    """Return the lock of the container that a mend is for."""
    return LockRequest((), mend.containers[0].partition(":")[0])


ACTS: Final[Mapping[MendKind, Act]] = MappingProxyType({
    "set-aside": Act(_set_aside, lambda _: (LockRequest(all_containers=True),), _AT_ONCE),
    "mount": Act(_mount, lambda mend: (_container(mend),)),
    "reserve": Act(_reserve, lambda mend: (_container(mend), mend.target)),
    "forward": Act(_forward),
    "set-up": Act(_change_link),
    "join": Act(_change_link),
    "remove-address": Act(_change_link),
    "add-address": Act(_change_link),
    "add-route": Act(_change_link),
    "add-rules": Act(_add_rules),
    "remove-rules": Act(_remove_rules, lambda mend: (_container(mend),), _AT_ONCE),
    "reload": Act(_reload),
    "release": Act(_release, lambda mend: (mend.target,), 10_000),
    "detach": Act(None, at_once=_AT_ONCE),
})  # fmt: skip
"""The acts in the order of a repair: those on which others depend come first, those that remove data come last."""


def carry_out(node: NodeState, mends: list[Mend], policy: DelPolicy | None) -> Iterator[str]:
    """Carry out mends (changes that solve findings) of one kind; yield for each its error as text, "" for success."""
    change = ACTS[mends[0].kind].change if mends else None
    if change is None:
        yield from _detach(node, mends, policy)
        return
    is_done = len(mends) > 1 and mends[0].kind == "remove-rules" and _remove_at_once(node, mends)
    for mend in mends:
        try:
            if not is_done:
                change(node, mend)
        except (CNIError, OSError) as error:
            yield _words_of(error)
        else:
            yield ""


def _detach(node: NodeState, mends: list[Mend], policy: DelPolicy | None) -> Iterator[str]:
    """Detach attachments, different containers in parallel."""
    outcomes: list[object]
    try:
        outcomes = [*node.cni.del_attachments([_attachment(node, mend) for mend in mends], policy=policy)]
    except CNIErrorGroup as error:
        outcomes = list(error.report)
    # If another repair or its runtime detached it meanwhile, DEL succeeds and runs nothing.
    yield from (_words_of(outcome) if isinstance(outcome, CNIError) else "" for outcome in outcomes)


def _words_of(error: CNIError | OSError) -> str:
    """Return an error in words; the argument of its hint is one of DEL, and a repair has none."""
    if isinstance(error, CNIError) and error.hint is not None and error.hint.argument == "use_given":
        return f"{error.text} ({error.hint.words('libcni del --use-given')})"
    return str(error)


@contextmanager
def held(cni: CNIConfig, lock: LockRequest | str) -> Iterator[None]:
    """Hold a lock of the records during the block; for host-local's lock (str), only wait until it is free.

    Raises:
        LockTimeoutError: another program held the lock until the client's timeout, or for 30 seconds.
        RecordError: the lock file cannot be opened.
    """
    seconds = min(_SECONDS, cni.timeout or _SECONDS)
    if isinstance(lock, str):
        with _host_local_lock(lock, seconds):
            pass
        yield
        return
    locks = LockSet(cni.cache_dir, lock)
    try:
        for delay in locks.retry_delays(system.monotonic() + seconds):
            system.sleep(delay)
        yield
    finally:
        locks.close()


@contextmanager
def _host_local_lock(directory: str, seconds: float) -> Iterator[None]:
    """Hold the lock that host-local holds while it allocates or frees an address."""
    path = os.path.join(directory, "lock")
    try:
        make_directory(directory, mode=0o755)  # as host-local does; somebody may have removed it
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, POOL_LOCK_MODE)
    except OSError as error:
        raise RecordError(f"{path}: cannot be opened: {error.strerror}", path=path) from error
    try:
        deadline = system.monotonic() + seconds
        while True:
            try:
                # flock(2), like host-local: a lock of fcntl(2) would not exclude it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A hanging host-local must not block the repair.
                if system.monotonic() >= deadline:
                    text = f"{path}: host-local's lock was held for {seconds:g} s by {users_in_words(path)}"
                    raise LockTimeoutError(text, what=directory, path=path, seconds=seconds) from None
                system.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
