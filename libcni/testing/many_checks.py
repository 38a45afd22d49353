"""Several attachments: two containers, two interfaces of one container, in mixed order and at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from libcni.plugin import Plugin, PluginResult, VerbError
from libcni.testing.attachment_checks import gives_fixed_addresses, new_container
from libcni.testing.calling import Answer
from libcni.testing.examination import ATTACHMENT, Examination, document_of, shown, without
from libcni.testing.namespaces import NetworkNamespace, network_namespace
from libcni.testing.snapshot import lines_of_link, settled, snapshot
from libcni.testing.surroundings import run_ip

_SECOND_IFNAME = "cnitest1"
_EARLIER, _THREADS, _LIVES = 30, 4, 12


class Attachment:
    """One of several attachments."""

    def __init__(self, exam: Examination, container: str, ifname: str, namespace: NetworkNamespace | None) -> None:
        self.exam = exam
        self.container = container
        self.ifname = ifname
        self.namespace = namespace
        self.result: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.container}/{self.ifname}"

    def call(self, verb: str) -> Answer:
        """Run a verb; ADD keeps its result."""
        netns = {"netns": self.namespace.path} if self.namespace else {}
        config = self.exam.config(result=None if verb == "ADD" else self.result)
        answer = self.exam.call(verb, config, container_id=self.container, ifname=self.ifname, **netns)
        if verb == "ADD":
            self.result = document_of(answer)[0]
        return answer

    def state(self) -> frozenset[str]:
        """Return the lines of its interface; empty without a namespace."""
        return lines_of_link(snapshot(self.namespace), self.ifname) if self.namespace else frozenset()

    def addresses(self) -> set[str]:
        """Return the addresses of its result."""
        try:
            return {str(ip.get("address")) for ip in PluginResult.from_document(self.result, self.exam.version).ips}
        except VerbError:
            return set()


def check_many(exam: Examination) -> None:
    """Check that attachments do not touch each other.

    A chained plugin has only the interface of ``prev_result``. If the configuration names a device of the host, such as
    a VLAN's master, only one attachment may be possible.
    """
    if exam.namespace is not None and (exam.prev_result is not None or exam.needs_host):
        return
    with ExitStack() as stack:
        other, spare = (stack.enter_context(network_namespace()) if exam.namespace else None for _ in range(2))
        for namespace in filter(None, (other, spare)):
            # The kernel gives lo its address when it first goes up, and leaves it there.
            for state in ("up", "down"):
                run_ip("-netns", namespace.name, "link", "set", "lo", state)
        one, two = new_container(), new_container()
        first = Attachment(exam, one, exam.ifname, exam.namespace)
        second = Attachment(exam, two, exam.ifname, other)
        third = Attachment(exam, one, _SECOND_IFNAME, exam.namespace)
        before = [snapshot(namespace) for namespace in (exam.namespace, other) if namespace]
        try:
            if _attached(exam, first, second, third, spare):
                _check_order(exam, first, second, third)
        finally:
            for attachment in (third, second, first):
                exam.expect_success("DEL in another order than ADD", attachment.call("DEL"))
        namespaces = [namespace for namespace in (exam.namespace, other) if namespace]
        left = [settled(namespace, state) - state for namespace, state in zip(namespaces, before, strict=True)]
        exam.add_finding("DEL of several attachments leaves nothing", sorted(frozenset().union(*left)))
        if not isinstance(exam.plugin, Plugin):
            exam.add_finding("ADD beside DEL", _side_by_side(exam, other))


def _attached(
    exam: Examination, first: Attachment, second: Attachment, third: Attachment, spare: NetworkNamespace | None
) -> bool:
    """Run the ADDs; return whether all have succeeded."""
    if first.call("ADD").status:
        return False  # another finding
    for check, attachment in (("ADD of a second container", second), ("ADD of a second interface", third)):
        answer = attachment.call("ADD")
        if answer.status and attachment is third and third.namespace is not None:
            # Two interfaces on one network may need the same route: try without the routes of the first.
            third.call("DEL")
            third.namespace = spare
            answer = attachment.call("ADD")
        if answer.status and exam.ipam and document_of(answer, must_fail=True)[0].get("code") == 11:  # noqa: PLR2004 - try again later
            return False  # the pool is full
        exam.expect_success(check, answer)
        if answer.status:
            return False
    if exam.ipam and not gives_fixed_addresses(exam, first.result):
        shared = sorted(first.addresses() & third.addresses())
        exam.add_finding("two interfaces get different addresses", f"both have {', '.join(shared)}" if shared else "")
    return True


def _check_order(exam: Examination, first: Attachment, second: Attachment, third: Attachment) -> None:
    # With a namespace its lines say it: a CHECK may compare what attachments share, such as the address of a bridge.
    has_check = exam.namespace is None and exam.has_verb("CHECK") and first.call("CHECK").status == 0
    states = [(other, other.state()) for other in (second, third)]
    first.call("DEL")
    problems = []
    for other, state in states:
        if gone := sorted(state - other.state()):
            problems.append(f"after DEL of {first}, {other} has lost: {', '.join(gone)}")
        if has_check and (answer := other.call("CHECK")).status:
            problems.append(f"after DEL of {first}, CHECK of {other} fails: {shown(answer)}")
    exam.add_finding("DEL keeps other attachments", problems)
    if first.call("ADD").status or not exam.has_verb("GC"):
        return
    valid = [{"containerID": third.container, "ifname": third.ifname}]
    lists = {"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid}
    exam.call("GC", without({**exam.config(), **lists}, "prevResult"), env=ATTACHMENT)
    lost = sorted(states[1][1] - third.state())
    if has_check and (kept := third.call("CHECK")).status:
        lost.append(f"CHECK of it fails: {shown(kept)}")
    exam.add_finding(
        "GC keeps a valid interface", f"{third}, the only valid one, lost: {', '.join(lost)}" if lost else ""
    )
    # A GC that frees nothing at all is another finding.
    if has_check and (exam.keeps_state or exam.ipam) and exam.gc_frees and first.call("CHECK").status == 0:
        text = f"{first} is not valid, and was kept because of {third}"
        exam.add_finding("GC frees the other interface of a container", text)


def _side_by_side(exam: Examination, other: NetworkNamespace | None) -> str:
    """Attach, check and detach different containers at the same time; return the problem if a call fails."""
    earlier: list[Attachment] = []
    while exam.ipam and len(earlier) < _EARLIER:  # with many leases the moments are longer in which two calls meet
        earlier.append(Attachment(exam, new_container(), exam.ifname, None))
        if earlier[-1].call("ADD").status:
            # The pool is small: leave the half of it to the lives.
            for attachment in earlier[len(earlier) // 2 :]:
                attachment.call("DEL")
            break
    lives = _LIVES if exam.namespace is None else _LIVES // 3
    namespaces = [exam.namespace, other] if exam.namespace else [None] * _THREADS

    has_check = exam.namespace is None and exam.has_verb("CHECK") and exam.check_works
    verbs = ("ADD", "CHECK", "DEL") if has_check else ("ADD", "DEL")

    def live(namespace: NetworkNamespace | None) -> list[str]:
        failed = []
        for _ in range(lives):
            attachment = Attachment(exam, new_container(), exam.ifname, namespace)
            for verb in verbs:
                answer = attachment.call(verb)
                if answer.status:
                    failed.append(f"{verb}: {shown(answer)}")
        return failed

    with ThreadPoolExecutor(len(namespaces)) as threads:
        failed = [*_joined(threads.map(live, namespaces))]
    for attachment in earlier:
        attachment.call("DEL")
    return f"{len(failed)} calls failed beside calls of other containers, first {failed[0]}" if failed else ""


def _joined(lists: Iterable[list[str]]) -> Iterable[str]:
    for part in lists:
        yield from part
