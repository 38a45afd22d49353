"""Count the addresses of host-local's pools: used, free, and those that a repair would free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from libcni.config.host_local import AddressRange, Reservation, range_sets, reservation_directories
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.mends import merged
from libcni.diagnosis.node_state import NodeState, id_of
from libcni.diagnosis.report import AddressPool, NodeFinding, counted, grouped
from libcni.store.model import LIVING

_FREES = {"release", "detach"}
_LOW = 10
"""A pool is low if fewer than one in ten addresses is free."""


def pools_of(node: NodeState, findings: Iterable[NodeFinding]) -> Iterator[AddressPool]:
    """Yield the pool of each range set, and of each directory of a network without a known configuration.

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
        states: dict[str, list[Reservation]] = {"living": [], "dead": [], "unknown": []}
        for reservation in reservations:
            key = (network, f"{reservation.container_id}:{reservation.ifname}")
            is_dead = reservation.path in released or key in detached
            is_living = reservation.address in node.holders or key in living
            states["dead" if is_dead else "living" if is_living else "unknown"].append(reservation)
        for ranges in _range_sets(node, network, directory) or [[]]:
            counts = [
                sum(not ranges or reservation.is_in(ranges) for reservation in group) for group in states.values()
            ]
            yield AddressPool(network, directory, sum(pool.size for pool in ranges) or None, *counts)


def _range_sets(node: NodeState, network: str, directory: str) -> list[list[AddressRange]]:
    """Return the range sets of the network that reserves in a directory, from its configuration or a record."""
    nets: list[NetworkConfigList | None] = [*node.networks, *map(node.recorded, node.attachments)]
    for net in nets:
        if directory in reservation_directories(net):
            return list(range_sets(net, network))
    return []


def check_pools(pools: Iterable[AddressPool], findings: Sequence[NodeFinding]) -> list[NodeFinding]:
    """Return the findings of full pools, of pools with few free addresses, and the other findings.

    A finding whose mend frees an address of such a pool becomes part of the pool's finding.
    """
    low = [pool for pool in pools if pool.free is not None and pool.free * _LOW < (pool.addresses or 0)]
    low.sort(key=lambda pool: bool(pool.free))
    others = [finding for finding in findings if not any(_frees(finding, pool) for pool in low)]
    return [*(_finding(pool, findings) for pool in low), *grouped(others)]


def _frees(finding: NodeFinding, pool: AddressPool) -> bool:
    mends = (mend for mend in finding.mends if mend.kind in _FREES and not mend.interrupts)
    return any(mend.network == pool.network for mend in mends)


def _finding(pool: AddressPool, findings: Sequence[NodeFinding]) -> NodeFinding:
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
