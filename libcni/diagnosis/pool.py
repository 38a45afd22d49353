"""Count the addresses of host-local's pools: used, free, and those that a repair would free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libcni.config.host_local import AddressRange, range_sets, reservation_directories
from libcni.diagnosis.mends import id_of, merged
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import NodeFinding, by_cause
from libcni.errors import counted
from libcni.store.model import LIVING

_FREES = {"release", "detach"}
_LOW = 10
"""A pool is low if fewer than one in ten addresses is free."""


class _Pool(NamedTuple):
    """The addresses of one range set of a network.

    Attributes:
        network: the network's name.
        addresses: the number of addresses.
        reserved: the number of reserved addresses.
        dead: the number reserved for containers that no longer exist.
        unknown: the number reserved for containers of which nothing is known.
    """

    network: str
    addresses: int
    reserved: int
    dead: int
    unknown: int

    @property
    def free(self) -> int:
        return max(0, self.addresses - self.reserved)


def check_pools(node: NodeState, findings: Sequence[NodeFinding]) -> list[NodeFinding]:
    """Return ``findings`` with new ones about host-local's pools that are full or have few free addresses.

    A finding whose mend frees an address of such a pool becomes part of the pool's finding.
    """
    low = [pool for pool in _pools(node, findings) if pool.free * _LOW < pool.addresses]
    low.sort(key=lambda pool: bool(pool.free))
    others = [finding for finding in findings if not any(_frees(finding, pool) for pool in low)]
    return [*(_finding(pool, findings) for pool in low), *by_cause(others)]


def _pools(node: NodeState, findings: Sequence[NodeFinding]) -> Iterator[_Pool]:
    """Yield the pool of each range set.

    A reservation counts as one of a dead container if a mend of the findings frees it and interrupts nobody.
    """
    mends = [mend for finding in findings for mend in finding.mends if mend.kind in _FREES and not mend.interrupts]
    released = {f"{mend.target}/{address}" for mend in mends if mend.kind == "release" for address in mend.details}
    detached = {(mend.network, name) for mend in mends if mend.kind == "detach" for name in mend.containers}
    living = {
        (attachment.network, id_of(attachment))
        for attachment in node.attachments
        if attachment.state in LIVING and node.space_of(attachment)
    }
    for (network, directory), reservations in sorted(node.reservations.items()):
        for ranges in _range_sets(node, network, directory):
            reserved = [reservation for reservation in reservations if reservation.is_in(ranges)]
            dead = unknown = 0
            for reservation in reserved:
                key = (network, f"{reservation.container_id}:{reservation.ifname}")
                if reservation.path in released or key in detached:
                    dead += 1
                elif reservation.address not in node.holders and key not in living:
                    unknown += 1
            yield _Pool(network, sum(pool.size for pool in ranges), len(reserved), dead, unknown)


def _range_sets(node: NodeState, network: str, directory: str) -> list[list[AddressRange]]:
    """Return the range sets of the network that reserves in a directory, from its configuration or a record."""
    for net in reversed(node.different_networks):
        if directory in reservation_directories(net):
            return list(range_sets(net, network))
    return []


def _frees(finding: NodeFinding, pool: _Pool) -> bool:
    return any(mend.network == pool.network and mend.kind in _FREES and not mend.interrupts for mend in finding.mends)


def _finding(pool: _Pool, findings: Sequence[NodeFinding]) -> NodeFinding:
    free = counted(pool.free, "free address") if pool.free else "no free address"
    seen = f"network {pool.network} has {free}: {pool.reserved} of {pool.addresses} are reserved"
    seen += f", {pool.dead} for containers that no longer exist" if pool.dead else ""
    seen += f", {pool.unknown} for containers of which nothing is known" if pool.unknown else ""
    mends = merged(mend for finding in findings if _frees(finding, pool) for mend in finding.mends)
    return NodeFinding(
        "ipam", "warning" if pool.free else "error", "pool-low" if pool.free else "pool-full",
        f"network {pool.network}", seen,
        "soon no container can be attached to it" if pool.free else "no container can be attached to it",
        "" if mends else "remove containers, or give the network more addresses",
        mends, tuple(dict.fromkeys(name for mend in mends for name in mend.containers)),
    )  # fmt: skip
