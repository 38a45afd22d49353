"""Checks along the life of one attachment: ADD, CHECK, GC and DEL, and the state after each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from libcni.plugin import PluginResult, VerbError
from libcni.testing.attachment import Attachment
from libcni.testing.calling import Answer
from libcni.testing.document_checks import result_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, without
from libcni.testing.reality_checks import check_reality
from libcni.testing.snapshot import difference
from libcni.testing.surroundings import run_ip


def check_attachment(exam: Examination) -> None:
    """Check one attachment from ADD to DEL."""
    _Life(exam).run()


class _Life:
    """One attachment, and the checks along its life."""

    def __init__(self, exam: Examination) -> None:
        self.exam = exam
        self.one = Attachment(exam)
        self.has_state = bool(exam.keeps_state)
        self.before = self.one.see()

    def run(self) -> None:
        exam, one = self.exam, self.one
        if exam.has_verb("STATUS"):
            config = without(exam.config(), "prevResult")
            exam.expect_success("STATUS", one.forwarded("STATUS", config, env=ATTACHMENT))
        try:
            self._added(one.forwarded("ADD"))
        finally:
            # Also after an ADD that failed or hung: the plugin may have allocated an address before.
            self._deleted()
        # The first attachment may create what attachments share on the host, such as a bridge.
        exam.add_finding("DEL leaves nothing", one.left(self.before, host=False))
        exam.expect_success("DEL without an earlier ADD", Attachment(exam).call("DEL"))
        if one.result and exam.prev_result is None:
            exam.expect_success("ADD after DEL", one.call("ADD"))
            if one.result and exam.has_verb("GC"):
                self._gc_everything()
            one.call("DEL")
        if one.result and exam.makes_interface and exam.prev_result is None and exam.check_works:
            self._gone_before_check()
        created = os.path.exists(exam.missing_netns)
        exam.add_finding("DEL creates no namespace file", f"it created {exam.missing_netns}" if created else "")
        if created:
            os.unlink(exam.missing_netns)

    def _added(self, answer: Answer) -> None:
        exam, one = self.exam, self.one
        result, problem = document_of(answer)
        exam.add_finding("ADD", problem or result_problems(result, exam.version, abbreviated=exam.ipam))
        if problem:
            return
        # Whether ADD has changed state that DEL restores. Then CHECK must succeed before DEL, and fail after DEL.
        if exam.keeps_state is None:
            self.has_state = not one.has_fixed_addresses() if exam.ipam else one.see() != self.before
        exam.add_finding("ADD keeps prevResult", self._lost_of_prev_result())
        check_reality(exam, result)
        if not exam.ipam and exam.prev_result is None and result.get("ips") and not result.get("interfaces"):
            exam.add_note("ADD gives addresses and no interface: pass ipam=True (--ipam) for an IPAM plugin")
        if exam.has_verb("CHECK"):
            seen = one.see()
            checked = one.forwarded("CHECK")
            exam.expect_success("CHECK", checked)
            if seen:
                exam.add_finding("CHECK changes nothing", difference(one.see(), seen))
            exam.check_works = checked.status == 0
        if exam.has_verb("GC"):
            self._expect_kept("GC keeps valid attachments", self._gc_valid)
            self._expect_kept("GC without a list of attachments frees nothing", lambda: one.gc(None))
            self._expect_kept("GC keeps other networks", lambda: one.gc([], "-other"))
            # A chained plugin is attached only once. Other plugins get a second attachment for this GC, because a DEL
            # after it would have nothing left to free.
            if exam.prev_result is not None:
                self._gc_everything()

    def _gc_valid(self) -> None:
        self.exam.expect_success("GC", self.one.gc([self.one], forwarded=True))

    def _gc_everything(self) -> None:
        self.exam.expect_success("GC without valid attachments", self.one.gc([]))
        # An interface may stay until its namespace ends, but nothing else frees an address.
        if self.exam.keeps_state or (self.exam.ipam and self.has_state):
            self._expect_failed_check("GC without valid attachments frees all")
            self.exam.gc_frees = not self.exam.report.findings[-1].problem

    def _expect_kept(self, check: str, step: Callable[[], object]) -> None:
        """Check that the attachment is complete after a step."""
        seen = self.one.see()
        step()
        if seen or self.exam.check_works:  # otherwise nothing can be seen
            self.exam.add_finding(check, self.one.lost(seen, with_check=self.exam.check_works))

    def _expect_failed_check(self, check: str) -> None:
        self.exam.add_finding(check, "CHECK still succeeds" if self.one.call("CHECK").status == 0 else "")

    def _deleted(self) -> None:
        exam, one = self.exam, self.one
        exam.expect_success("DEL", one.forwarded("DEL"))
        if one.result and self.has_state and exam.has_verb("CHECK"):
            self._expect_failed_check("CHECK fails after DEL")
        # A runtime repeats DEL after a crash or a reboot, when the namespace and the result may be lost.
        repeated: dict[str, dict[str, Any]] = {
            "DEL again": {},
            "DEL without CNI_NETNS": {"env": {"CNI_NETNS": None}},
            "DEL without namespace": {"env": {"CNI_NETNS": exam.missing_netns}},
            "DEL without prevResult": {"config": without(one.config(), "prevResult")},
        }
        for check, changes in repeated.items():
            exam.expect_success(check, one.call("DEL", **changes))

    def _gone_before_check(self) -> None:
        """Remove the addresses and then the interface of an attachment: CHECK must fail each time."""
        exam, one = self.exam, self.one
        if one.namespace is None or exam.needs_host:  # a device of the host would be lost
            return
        one.call("ADD")
        where = ("-netns", one.namespace.name)
        if one.result.get("ips") and run_ip(*where, "address", "flush", "dev", exam.ifname, check=False):
            self._expect_failed_check("CHECK sees that the address is gone")
        if run_ip(*where, "link", "delete", exam.ifname, check=False):
            self._expect_failed_check("CHECK sees that the interface is gone")
        exam.expect_success("DEL of an interface that is gone", one.call("DEL"))

    def _lost_of_prev_result(self) -> list[str]:
        if self.exam.prev_result is None:
            return []
        document = self.exam.config()["prevResult"]
        try:
            before = PluginResult.from_document(document, self.exam.version)
            after = PluginResult.from_document(self.one.result, self.exam.version)
        except VerbError as error:
            return [str(error)]
        lost = [f"dns.{key} is lost" for key, value in before.dns.items() if after.dns.get(key) != value]
        for kind, keys in (("interfaces", ("name",)), ("ips", ("address", "gateway")), ("routes", ("dst", "gw"))):
            left = [tuple(part.get(key) for key in keys) for part in getattr(after, kind)]
            for part in getattr(before, kind):
                values = tuple(part.get(key) for key in keys)
                if values not in left:
                    lost.append(f"{kind}: {' by '.join(str(value) for value in values if value)} is lost")
        owners = [{str(ip["address"]): _owner(ip, result) for ip in result.ips} for result in (before, after)]
        for address, owner in owners[0].items():
            other = owners[1].get(address)
            if owner and other and other != owner:
                lost.append(f"ips: {address} is of {owner} in prevResult, and of {other} in the result")
        return lost


def _owner(ip: dict[str, Any], result: PluginResult) -> str:
    """Return the name of the interface that an address belongs to, or ""."""
    index = ip.get("interface")
    if not isinstance(index, int) or not 0 <= index < len(result.interfaces):
        return ""
    return str(result.interfaces[index].get("name"))
