"""The rules and reservations that a DEL leaves behind, because a plugin did not find the interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from libcni._dataclass import dataclass
from libcni.config import jsontext
from libcni.store.model import Record
from libcni.store.recorded_interface import addresses_of
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim
from libcni.verbs.verb_run import VerbRun

__all__ = ["Leftover"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Rules or reservations that a plugin could not remove, because it did not find the interface at its DEL.

    Attributes:
        kind: ``masquerade``: the masquerade rules of the addresses; ``reservation``: the reserved addresses.
        plugin: the plugin's type.
        network, container_id, ifname: the attachment.
        addresses: the addresses of the attachment without prefix length; () if they are unknown.

    Examples:
        >>> str(Leftover("masquerade", "bridge", "net", "c1", "eth0", ("10.1.0.5",)))
        'bridge did not remove the masquerade rules of 10.1.0.5'
    """

    kind: Literal["masquerade", "reservation"]
    plugin: str
    network: str
    container_id: str
    ifname: str
    addresses: tuple[str, ...] = ()

    def __str__(self) -> str:
        resources = {"masquerade": "the masquerade rules", "reservation": "the reservation"}[self.kind]
        return f"{self.plugin} did not remove {resources} of {', '.join(self.addresses) or 'its addresses'}"


def left_behind(chain: Chain, index: int, claim: Claim) -> list[Leftover]:
    """Return the resources that a plugin of the CNI project does not remove if it does not find the interface.

    bridge and ptp read the addresses of their masquerade rules from the interface. host-device does not call its IPAM
    plugin without a namespace.
    """
    record, plugin = claim.record, chain.net.plugins[index]
    has_netns = chain.rt is not None and bool(chain.rt.netns)
    if record is None or (has_netns and not claim.is_missing()):
        return []
    kinds: list[Literal["masquerade", "reservation"]] = []
    # No rule survives a reboot. An ADD without any result has created no rule.
    may_be_masked = not record.is_of_earlier_boot and record.last_result is not None
    if plugin.type in {"bridge", "ptp"} and may_be_masked and jsontext.parse(plugin.text).get("ipMasq") is True:
        kinds.append("masquerade")
    if plugin.type == "host-device" and plugin.ipam_type and not has_netns:
        kinds.append("reservation")
    return [Leftover(kind, plugin.type, *record.identity, addresses_of(record)) for kind in kinds]


def still_there(run: VerbRun, record: Record, left: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Return the elements of ``left`` that exist, or may exist, after a repeated DEL.

    bridge and ptp remove the interface before the rules, and may fail after both. So at the second DEL the interface is
    missing, and only the rules themselves show whether they are left.
    """
    has_rules = any(one.kind == "masquerade" for one in left) and _may_be_masqueraded(run, record)
    return tuple(one for one in left if one.kind != "masquerade" or has_rules)


def _may_be_masqueraded(run: VerbRun, record: Record) -> bool:
    """Return whether a masquerade rule of an attachment exists, or cannot be asked for."""
    from libcni.kernel import rules  # with subprocess, which few DELs need

    addresses = set(addresses_of(record))
    chain, mark = rules.masquerade_chain(record.network, record.container_id), rules.masquerade_mark(*record.identity)
    for program in sorted({"nft", *map(rules.program_of, addresses)}):
        try:
            tables = rules.saved_rules(program, run.settings.environment(), about=(chain, mark))
        except FileNotFoundError:  # without the program, the plugins have no rules
            continue
        except OSError:
            return True
        if program == "nft":
            own = tables.get(rules.MASQUERADE, rules.Table()).find("masq_checks", mark)
        else:
            # The chain has the rules of all interfaces of the container on the network.
            leading = tables.get("nat", rules.Table()).leading_to(chain)
            own = [rule for rule in leading if not addresses.isdisjoint(rules.addresses_of(rule))]
        if own:
            return True
    return False
