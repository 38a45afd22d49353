"""Checks of an IPAM plugin's addresses: unique even under load, and free after DEL."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from libcni.plugin import Plugin, PluginResult, VerbError
from libcni.testing.attachment_checks import gives_fixed_addresses
from libcni.testing.calling import Answer
from libcni.testing.document_checks import error_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, shown

_AT_ONCE = 6
_ROUNDS = 2
_MOST = 300
_FILL_SECONDS = 20.0


def check_addresses(exam: Examination) -> None:
    """Check that no address is given to two containers, and that DEL frees an address.

    If the configuration lists the addresses, check nothing.
    """
    if not exam.ipam:
        return
    pool = _Pool(exam)
    answer = pool.add("first")
    result, problem = document_of(answer)
    if problem or gives_fixed_addresses(exam, result):
        pool.delete_all()
        return
    # Call one after the other before the calls at the same time: a failure here is not a race.
    second = pool.addresses(pool.add("second"))
    shared = sorted(set(pool.addresses(answer)) & set(second))
    exam.add_finding("two containers get different addresses", f"both have {', '.join(shared)}" if shared else "")
    _check_full_pool(exam, pool)
    pool.delete_all()
    if not isinstance(exam.plugin, Plugin):
        exam.add_finding("ADDs at the same time get different addresses", pool.shared_addresses())


def _check_full_pool(exam: Examination, pool: _Pool) -> None:
    """Use all addresses: STATUS must say so, and the DEL of one container must make one ADD possible."""
    refused = pool.fill()
    if refused is None:
        return
    document, problem = document_of(refused, must_fail=True)
    exam.add_finding("an ADD that finds no address fails", problem or error_problems(document))
    if exam.has_verb("STATUS"):
        status = exam.call("STATUS", exam.config(), env=ATTACHMENT)
        text = f"no address is free (ADD: {shown(refused)}), and STATUS says that the plugin is ready"
        exam.add_finding("STATUS fails if no address is free", "" if status.status else text)
    container = pool.attached.pop(0)
    exam.call("DEL", exam.config(), container_id=container)
    last = pool.add("last")
    text = f"no address was free; after the DEL of one of {len(pool.attached)} containers ADD fails: {shown(last)}"
    exam.add_finding("DEL frees the address", text if last.status else "")


class _Pool:
    """The containers that this check has attached, and their addresses."""

    def __init__(self, exam: Examination) -> None:
        self.exam = exam
        self.attached: list[str] = []

    def add(self, label: str) -> Answer:
        container = f"conformance-{label}-{uuid4().hex[:8]}"
        self.attached.append(container)
        return self.exam.call("ADD", self.exam.config(), container_id=container)

    def delete_all(self) -> None:
        while self.attached:
            self.exam.call("DEL", self.exam.config(), container_id=self.attached.pop())

    def addresses(self, answer: Answer) -> list[str]:
        try:
            result = PluginResult.from_document(document_of(answer)[0], self.exam.version)
        except VerbError:
            return []
        return [str(ip.get("address")) for ip in result.ips]

    def fill(self) -> Answer | None:
        """Run ADDs until one fails, and return it; None if the pool is too large for that."""
        deadline = time.monotonic() + _FILL_SECONDS
        for _ in range(_MOST):
            answer = self.add("fill")
            if answer.status != 0:
                self.attached.pop()
                return answer
            if time.monotonic() >= deadline:
                break
        return None

    def shared_addresses(self) -> str:
        """Run ADDs at the same time; return the problem if several of them got the same address."""
        for _ in range(_ROUNDS):
            # Threads wait for processes here, so the plugins do run at the same time.
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                answers = list(threads.map(lambda number: self.add(f"at-once-{number}"), range(_AT_ONCE)))
            addresses = [address for answer in answers for address in self.addresses(answer)]
            self.delete_all()
            twice = sorted({address for address in addresses if addresses.count(address) > 1})
            if twice:
                return f"{', '.join(twice)} was given more than once"
        return ""
