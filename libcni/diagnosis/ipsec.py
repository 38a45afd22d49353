"""Find policies of IPsec that block the packets of containers."""

from __future__ import annotations

import ipaddress

from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations
from libcni.errors import counted
from libcni.kernel.ipsec import IPsecPolicy


def check_ipsec(node: NodeState) -> Observations:
    """Find policies of the kernel (xfrm) that drop packets from or to containers."""
    live = [attachment for attachment, _ in node.live if attachment.path not in node.elsewhere]
    unread = node.unread.get("the policies of IPsec")
    if unread and live:
        yield NotChecked("rules", "policies of IPsec (ip xfrm policy)", unread)
    others = 0
    blocking: list[IPsecPolicy] = []
    for policy in node.ipsec:
        blocking += [policy] * policy.blocks
        others += not policy.blocks
    for (source, destination), policies in grouped(((one.source, one.destination), one) for one in blocking).items():
        networks = [ipaddress.ip_network(end, strict=False) for end in (source, destination)]
        # A policy for all packets of the other end is about the network of this end.
        about = [network for network in networks if network.prefixlen] or networks
        users = [
            id_of(attachment) for attachment in live
            if any(
                ipaddress.ip_address(address) in network
                for address in node.addresses_of(attachment) for network in about
            )
        ]  # fmt: skip
        # To single networks somebody may want it.
        is_whole = any(network.prefixlen == 0 for network in networks) and any(one.is_whole for one in policies)
        commands = "; ".join(
            f"ip xfrm policy delete src {source} dst {destination} dir {one.direction}" for one in policies
        )
        if users:
            yield NodeFinding(
                "rules", "error" if is_whole else "note", "dropped", f"policy of IPsec from {source} to {destination}",
                "this policy blocks packets of containers",
                f"{counted(len(users), 'container')} cannot reach some addresses, or be reached from there",
                f"{'find its creator (strongSwan makes some)' if is_whole else 'if nobody wants this'}, "
                f"{'and remove it' if is_whole else 'run'}: {commands}", (), tuple(users),
            )  # fmt: skip
    if others and live:
        reason = "only traffic can show whether the other end decrypts the packets"
        yield NotChecked("rules", f"{counted(others, 'policy')} of IPsec".replace("policys", "policies"), reason)
