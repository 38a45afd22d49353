"""The ``prevResult`` of a DEL: the recorded result, without the addresses that another attachment has now."""

from __future__ import annotations

import logging

from libcni._dataclass import dataclass
from libcni.config import jsontext
from libcni.config.network import NetworkConfigList
from libcni.config.versions import supports
from libcni.errors import VersionError
from libcni.protocol.result import IPConfig, Result
from libcni.store.model import Record
from libcni.store.recorded_interface import last_result
from libcni.store.reservations import holder_of
from libcni.verbs.claim import Claim
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")


@dataclass(frozen=True, slots=True)
class PrevResult:
    """The ``prevResult`` for the plugins of a DEL.

    Attributes:
        run: finds out who has an address.
        net: the configuration of the DEL.
        record: the attachment's record, or None.
        result: the result of the ADD, or of its last plugin that ended; None: the plugins receive none.
    """

    run: VerbRun
    net: NetworkConfigList
    record: Record | None
    result: Result | None

    @classmethod
    def of(cls, claim: Claim, net: NetworkConfigList) -> PrevResult:
        """Return the PrevResult of an attachment; log a warning if its result cannot be used."""
        run, record = claim.run, claim.record
        result, problem = None, "the recorded result cannot be read"
        if record is not None and record.last_result is not None:
            try:
                if not supports(net.cni_version, "prevResult on DEL"):
                    return cls(run, net, record, None)
                result = last_result(record)
                result = result.as_version(net.cni_version) if result is not None else None
            # Go records versions that this library does not know, and any program may have written the file.
            except VersionError as error:
                result, problem = None, str(error)
            if result is None:
                logger.warning("%s: DEL goes on without prevResult: %s", record.path, problem)
        return cls(run, net, record, result)

    def text(self) -> str | None:
        """Return ``prevResult`` for the next plugin, without the addresses that another attachment has now; or None.

        An earlier DEL may have freed the addresses, or somebody removed the reservations. The plugin firewall deletes
        all rules of an address, whichever container has it. Another attachment can get an address while a plugin runs.
        """
        record, result = self.record, self.result
        if record is None or result is None:
            return None
        if record.is_of_earlier_boot:
            # No rule has survived a reboot, and another container may have the addresses by now.
            return jsontext.merge(result.text, {"ips": []})
        holders = self._holders(record, result)
        left = self._unclaimed(record, {address for address, holder in holders.items() if holder == "unknown"})
        own = [ip for ip in result.ips if holders[_bare(ip)] == "this" or _bare(ip) in left]
        if len(own) == len(result.ips):
            return result.text
        logger.warning("%s: DEL does not free addresses that another attachment may use now", record.path)
        return jsontext.merge(result.text, {"ips": [ip.to_json() for ip in own]})

    def asks_others(self) -> bool:
        """Return whether ``text`` reads the records of all attachments."""
        if self.record is None or self.result is None or self.record.is_of_earlier_boot:
            return False
        return "unknown" in self._holders(self.record, self.result).values()

    def _holders(self, record: Record, result: Result) -> dict[str, str]:
        """Return which attachment has each address, by host-local's reservations."""
        addresses = {_bare(ip) for ip in result.ips}
        return {address: holder_of(self.net, record.container_id, record.ifname, address) for address in addresses}

    def _unclaimed(self, record: Record, addresses: set[str]) -> set[str]:
        """Return those of the addresses that no other attachment has by record."""
        left = addresses
        for other in self.run.others.with_addresses(addresses, record):
            if not other.is_same_interface(record):
                left = left - other.addresses
                if not left:  # thousands of records may have an address
                    break
        return left


def _bare(ip: IPConfig) -> str:
    """Return an address without its prefix length."""
    return ip.address.partition("/")[0]
