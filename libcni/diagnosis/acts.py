"""Carry out each kind of mend. Each act first checks, under the lock that an ADD would hold, whether it is needed."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from libcni.client import CNIConfig
from libcni.config.host_local import flannel_directories
from libcni.config.network import plugin_documents
from libcni.diagnosis.mends import Mend, MendKind
from libcni.diagnosis.node_state import NodeState, id_of
from libcni.diagnosis.rules import removals
from libcni.errors import LockTimeoutError, RecordError
from libcni.kernel import netlink, rules
from libcni.kernel.namespace import bind, is_empty_file
from libcni.store.attachments import Attachment, network_to_use, recorded_conf, recorded_result
from libcni.store.locks import LockRequest, LockSet
from libcni.store.model import Place, same_namespace
from libcni.store.recorded_interfaces import place_of
from libcni.store.records import RecordStore
from libcni.verbs.chain import Chain
from libcni.verbs.client_base import attachment_operation
from libcni.verbs.delete import check_unchanged
from libcni.verbs.node import Node

_SECONDS = 30.0
"""Seconds to wait for a lock."""
_MULTICAST = {"iptables": "224.0.0.0/4", "ip6tables": "ff00::/8"}


class NotNeeded(Exception):  # noqa: N818 - no error
    """The mend is not needed any more: its cause is gone."""


class Task(NamedTuple):
    """A mend to carry out.

    Attributes:
        node: the state of the node at the diagnosis.
        mend: the mend.
        ask_again: returns the present state of the node and the part of the mend that is still needed, or raises
            NotNeeded.
    """

    node: NodeState
    mend: Mend
    ask_again: Callable[[], tuple[NodeState, Mend]]

    def attachment(self) -> Attachment:
        """Return the attachment whose record is the mend's target."""
        return next(attachment for attachment in self.node.attachments if attachment.path == self.mend.target)


def _reserve(task: Task) -> None:
    [address], [name], path = task.mend.details, task.mend.containers, f"{task.mend.target}/{task.mend.details[0]}"
    container_id, _, ifname = name.partition(":")
    attachment = next(attachment for attachment in task.node.recorded_addresses[address] if id_of(attachment) == name)
    os.makedirs(task.mend.target, exist_ok=True)
    with locked(task.node.cni, LockRequest((), container_id)), _host_local_lock(task.mend.target):
        # The container may have been detached meanwhile, and the address given to another one.
        store = RecordStore(task.node.cni.cache_dir)
        check_unchanged(
            store.read(os.path.basename(attachment.path)) or attachment.record.with_fields(owner=None),
            attachment.record,
        )
        expected = [
            (reservation.container_id, reservation.ifname)
            for reservation in task.node.reservations.get((task.mend.network, task.mend.target), ())
            if reservation.address == address
        ]
        with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
            holder, _, interface = file.read().strip().partition("\n")
            if [(holder.strip(), interface.strip())] != expected:
                raise FileExistsError(17, f"it is reserved for {holder.strip()} by now", path)
        # A kill must not leave an empty file, a reservation without an owner. host-local ignores this name.
        draft = f"{task.mend.target}/.libcni-{os.getpid()}"
        with open(draft, "w", encoding="utf-8", newline="") as file:
            file.write(f"{container_id}\r\n{ifname}")
        os.rename(draft, path)


def _release(task: Task) -> None:
    with _host_local_lock(task.mend.target):
        # No address can be allocated before the lock is released, so the answer stays true until then.
        node, mend = task.ask_again()
        # Before the reservation: after a kill only the reservation leads to flannel's file.
        _remove_files_of_flannel(node, mend)
        for address in mend.details:
            with suppress(FileNotFoundError):
                os.unlink(f"{task.mend.target}/{address}")


def _remove_files_of_flannel(node: NodeState, mend: Mend) -> None:
    """Remove flannel's file of each container that has no other reservation, nor a record, in the network."""
    nets = (*node.networks, *map(node.recorded, node.attachments))
    directories = {os.path.join(node.cni.cache_dir, "flannel")}.union(*map(flannel_directories, nets))
    known: dict[str, list[str]] = {}
    for directory in directories:
        with suppress(OSError):
            for name in os.listdir(directory):
                known.setdefault(name, []).append(os.path.join(directory, name))
    freed = set(mend.details)
    for container_id in known.keys() & {name.partition(":")[0] for name in mend.containers}:
        held = {reservation.address for reservation in node.reserved_for(mend.network, container_id)}
        if held <= freed and not node.attached(mend.network, container_id):
            for path in known[container_id]:
                with suppress(OSError, ValueError, AttributeError), open(path, encoding="utf-8") as file:
                    # The file belongs to another network if the container is attached to two networks of flannel.
                    if json.load(file).get("name") == mend.network:
                        os.unlink(path)


def _restore_path(task: Task) -> None:
    attachment = next(
        attachment
        for attachment in task.node.attachments
        if attachment.netns == task.mend.target and id_of(attachment) in task.mend.containers
    )
    space = task.node.spaces[attachment.record.netns_id or (0, 0)]
    with locked(task.node.cni, LockRequest((), attachment.container_id)):
        descriptor = os.open(f"/proc/{space.process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status, copy = os.fstat(descriptor), f"/proc/self/fd/{descriptor}"
            seen = Place((status.st_dev, status.st_ino), netlink.read_network(copy).cookie)
            # Another process, for example of the host, may have the PID now, and another namespace the inode number.
            if not same_namespace(place_of(attachment.record), seen):
                raise FileNotFoundError(2, f"process {space.process} has ended", attachment.netns)
            if is_empty_file(attachment.netns):
                os.unlink(attachment.netns)
            os.makedirs(os.path.dirname(attachment.netns), exist_ok=True)
            bind(copy, attachment.netns)
        finally:
            os.close(descriptor)


def _forward(task: Task) -> None:
    with open(task.mend.target, "w", encoding="ascii") as file:
        file.write("1")


def _change_link(task: Task) -> None:
    mend, network = task.mend, task.node.host
    descriptor = os.open(mend.netns or "/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if mend.netns:
            # By descriptor: the path may lead to another container's namespace at any time.
            status = os.fstat(descriptor)
            network = task.node.spaces[status.st_dev, status.st_ino].network
        assert network is not None
        # By index: a link that was created since with the same name is another one.
        index, netns = network.links[mend.target].index, f"/proc/self/fd/{descriptor}"
        if mend.kind == "set-up":
            netlink.change_link(netns, index)
        elif mend.kind == "join":
            netlink.change_link(netns, index, master=network.links[mend.details[0]].index)
        else:
            with suppress(FileExistsError):
                (netlink.add_address if mend.kind == "add-address" else netlink.add_route)(netns, index, *mend.details)
    finally:
        os.close(descriptor)


def _add_rules(task: Task) -> None:
    attachment, run = task.attachment(), task.node.cni._run  # noqa: SLF001 - a verb of its own
    run(attachment_operation("RELOAD", attachment), _SECONDS, _run_plugins, attachment, task.mend.details)


async def _run_plugins(node: Node, attachment: Attachment, missing: tuple[str, ...]) -> None:
    """Run ADD of the plugins that only create rules, and create the masquerade rules of bridge and ptp."""
    await node.lock([attachment.network], attachment.container_id)
    record = node.records.find(attachment.record.identity)
    check_unchanged(record or attachment.record.with_fields(owner=None), attachment.record)
    assert record is not None
    net, result = network_to_use(record, None, use_given=False), recorded_result(record)
    wanted = {"firewall": "firewall" in missing, "portmap": any(kind.startswith("port ") for kind in missing)}
    if "masquerade" in missing:
        await node.on_disk(lambda: _masquerade(record.network, record.container_id, [ip.address for ip in result.ips]))
    text = result.as_version(net.cni_version).text
    chain = Chain(node, net, recorded_conf(record).with_netns(attachment.netns), node.find_all(net))
    for index, document in enumerate(plugin_documents(net)):
        if wanted.get(str(document.get("type"))):
            await chain.call(chain.invocation("ADD", index, text))


def _masquerade(network: str, container_id: str, addresses: list[str]) -> None:
    chain, comment = rules.masquerade_chain(network, container_id), f'name: "{network}" id: "{container_id}"'
    about = ("-m", "comment", "--comment", comment)
    for full in addresses:
        program = rules.program_of(full)
        table = rules.saved_rules(program).get("nat", rules.Table())
        if chain not in table.chains:
            rules.change(program, ("-N", chain))
        for rule in (
            ("-A", chain, "-d", full, "-j", "ACCEPT"),
            ("-A", chain, "!", "-d", _MULTICAST[program], "-j", "MASQUERADE"),
            ("-A", "POSTROUTING", "-s", full.partition("/")[0], "-j", chain),
        ):
            try:
                rules.change(program, ("-C", *rule[1:], *about))
            except OSError:  # there is none
                rules.change(program, (*rule, *about))


def _remove_rules(task: Task) -> None:
    # The next container of this ID may have the chain by now.
    node, mend = task.ask_again()
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
                chain = rules.saved_rules(program).get(table, rules.Table()).chains.get(rule[1], ())
                if program == "nft" or rule in chain:
                    raise


def _reload(task: Task) -> None:
    task.node.cni.reload_attachment(task.attachment())


def _set_aside(task: Task) -> None:
    path, store = task.mend.target, RecordStore(task.node.cni.cache_dir)
    if os.path.dirname(path) != store.results:
        os.rename(path, f"{path}.{time.time_ns()}")
        return
    task.ask_again()
    record = store.read(os.path.basename(path))
    if record is not None:
        store.set_aside(record)


def _remove(task: Task) -> None:
    for path in task.mend.details:
        with suppress(FileNotFoundError):
            os.unlink(path)


ACTS: Final[Mapping[MendKind, Callable[[Task], None]]] = MappingProxyType({
    "reserve": _reserve, "restore-path": _restore_path, "forward": _forward, "set-up": _change_link,
    "join": _change_link, "add-address": _change_link, "add-route": _change_link, "add-rules": _add_rules,
    "remove-rules": _remove_rules, "reload": _reload, "set-aside": _set_aside, "remove": _remove, "release": _release,
})  # fmt: skip
"""The function of each kind of mend. ``detach`` has none: many attachments are detached in parallel."""


def lock_for(mend: Mend) -> LockRequest | None:
    """Return the lock that a repair holds for a mend; None if the act itself acquires its locks.

    A group of mends with such locks is checked again once, under all of the locks.
    """
    if mend.kind == "remove-rules":
        return LockRequest((), mend.target)
    # Any other file to move may be the lock file.
    is_record = mend.kind == "set-aside" and os.path.basename(os.path.dirname(mend.target)) == "results"
    return LockRequest(all_containers=True) if is_record else None


@contextmanager
def locked(cni: CNIConfig, request: LockRequest) -> Iterator[None]:
    """Hold locks of the records.

    Raises:
        LockTimeoutError: another verb held them for 30 seconds.
    """
    locks = LockSet(cni.cache_dir, request)
    try:
        for delay in locks.retry_delays(time.monotonic() + _SECONDS):
            time.sleep(delay)
        yield
    finally:
        locks.close()


@contextmanager
def _host_local_lock(directory: str) -> Iterator[None]:
    """Hold the lock that host-local holds while it allocates or frees an address."""
    path = os.path.join(directory, "lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RecordError(f"{path}: cannot be opened: {error.strerror}", path=path) from error
    try:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                # flock(2), like host-local: a lock of fcntl(2) would not exclude it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A hanging host-local must not block the repair.
                if time.monotonic() >= deadline:
                    text = f"{path}: a plugin held the lock for {_SECONDS:.0f} s"
                    raise LockTimeoutError(text, what=directory, path=path, seconds=_SECONDS) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
