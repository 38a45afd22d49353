"""Checks of an IPAM plugin's addresses: unique even under load, and free after DEL."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from libcni.plugin import Plugin
from libcni.testing.attachment import Attachment
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
    attached: list[Attachment] = []
    try:
        first, answer = _attach(exam, attached)
        if answer.status or first.has_fixed_addresses():
            return
        # Call one after the other before the calls at the same time: a failure here is not a race.
        exam.add_finding("two containers get different addresses", _shared([first, _attach(exam, attached)[0]]))
        _check_full_pool(exam, attached)
    finally:
        _delete_all(attached)
    if not isinstance(exam.plugin, Plugin):
        exam.add_finding("ADDs at the same time get different addresses", _shared_at_once(exam))


def _check_full_pool(exam: Examination, attached: list[Attachment]) -> None:
    """Use all addresses: STATUS must say so, and the DEL of one container must make one ADD possible."""
    deadline = time.monotonic() + _FILL_SECONDS
    while (refused := _attach(exam, attached)[1]).status == 0:
        if len(attached) >= _MOST or time.monotonic() >= deadline:
            return  # the pool is too large for that
    document, problem = document_of(refused, must_fail=True)
    exam.add_finding("an ADD that finds no address fails", problem or error_problems(document))
    if exam.has_verb("STATUS"):
        status = exam.call("STATUS", exam.config(), env=ATTACHMENT)
        text = f"no address is free (ADD: {shown(refused)}), but STATUS says that the plugin is ready"
        exam.add_finding("STATUS fails if no address is free", "" if status.status else text)
    # The CHECK of an attachment that is gone must not take the address.
    gone = attached.pop(0)
    for verb in ("DEL", "CHECK"):
        if exam.has_verb(verb):
            gone.call(verb)
    last = _attach(exam, attached)[1]
    text = f"no address was free; after the DEL of one of {len(attached)} containers ADD fails: {shown(last)}"
    exam.add_finding("DEL frees the address", text if last.status else "")


def _attach(exam: Examination, attached: list[Attachment]) -> tuple[Attachment, Answer]:
    one = Attachment(exam)
    attached.append(one)  # also if its ADD fails: it may have allocated
    return one, one.call("ADD")


def _delete_all(attached: list[Attachment]) -> None:
    while attached:
        attached.pop().call("DEL")


def _shared(attached: list[Attachment]) -> str:
    addresses = [address for one in attached for address in one.addresses()]
    twice = sorted({address for address in addresses if addresses.count(address) > 1})
    return f"{', '.join(twice)} was given more than once" if twice else ""


def _shared_at_once(exam: Examination) -> str:
    """Run ADDs at the same time; return the problem if several of them got the same address."""
    for _ in range(_ROUNDS):
        attached = [Attachment(exam) for _ in range(_AT_ONCE)]
        # Threads wait for processes here, so the plugins do run at the same time.
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda one: one.call("ADD"), attached))
        problem = _shared(attached)
        _delete_all(attached)
        if problem:
            return problem
    return ""
