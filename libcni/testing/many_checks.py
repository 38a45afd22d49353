"""Several attachments: two containers, two interfaces of one container, in mixed order and at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from ipaddress import ip_interface
from itertools import chain
from typing import Any

from libcni.plugin import Plugin
from libcni.testing.attachment import Attachment
from libcni.testing.examination import Examination, document_of, shown
from libcni.testing.namespaces import NetworkNamespace, network_namespace
from libcni.testing.surroundings import links_of_result, run_ip

_SECOND_IFNAME = "cnitest1"
_EARLIER, _THREADS, _LIVES = 30, 4, 12
_TRY_AGAIN_LATER = 11


def check_many(exam: Examination) -> None:
    """Check that several attachments do not disturb each other.

    Surroundings that a caller gives are for one attachment. If the configuration names a device of the host, such as
    a VLAN's master, only one attachment may be possible.
    """
    if exam.needs_host or (exam.prev_result is not None and exam.surroundings is not None):
        return
    with ExitStack() as stack:
        first = Attachment(exam)
        second = stack.enter_context(_another(exam, 1))
        third = stack.enter_context(_another(exam, 2, first.container, _SECOND_IFNAME))
        spare, kept = third.namespace, [one for one in (first, second) if one.namespace]
        if exam.prev_result is None:
            third.namespace = first.namespace  # two interfaces in one namespace, if that is possible
        before = [one.see() for one in kept]
        try:
            if first.attach().status == 0:  # otherwise another finding
                others = [one for one in (second, third) if _is_attached(exam, first, one, spare)]
                _check_order(exam, first, others)
        finally:
            for one in (third, second):
                exam.expect_success("DEL in another order than ADD", one.call("DEL"))
            first.call("DEL")  # it may be the second one
        left = [one.left(lines, host=False) for one, lines in zip(kept, before, strict=True)]
        exam.add_finding("DEL of several attachments leaves nothing", sorted({*filter(None, left)}))
        # A chained plugin may leave changes to the plugin that removes the interface: no second ADD on it.
        if not isinstance(exam.plugin, Plugin) and (exam.prev_result is None or exam.namespace is None):
            exam.add_finding("verbs of several containers at once", _side_by_side(exam, second))


@contextmanager
def _another(exam: Examination, number: int, container: str = "", ifname: str = "") -> Iterator[Attachment]:
    """Give one more attachment; for a chained plugin with links, names and addresses of its own."""
    previous = exam.prev_result and _renumbered(exam.prev_result, number, ifname)
    if exam.namespace is None:
        yield Attachment(exam, container, ifname, previous=previous)
        return
    with links_of_result(previous) if previous else network_namespace() as namespace:
        if not previous:
            # The kernel gives lo its address when it first goes up, and leaves it there.
            for state in ("up", "down"):
                run_ip("-netns", namespace.name, "link", "set", "lo", state)
        yield Attachment(exam, container, ifname, namespace, previous)


def _renumbered(previous: Mapping[str, Any], number: int, ifname: str) -> dict[str, Any]:
    """Return the previous plugin's result for another attachment."""
    interfaces = []
    for part in previous.get("interfaces") or []:
        name = part["name"] if part.get("sandbox") else f"{part['name'][:14]}{number}"
        interfaces.append({"name": ifname if part.get("sandbox") and ifname else name, **_only(part, "sandbox")})
    ips = []
    for ip in previous.get("ips") or []:
        address = ip_interface(ip["address"])
        ips.append({**ip, "address": f"{address.ip + number}/{address.network.prefixlen}"})
    return {**previous, "interfaces": interfaces, "ips": ips}


def _only(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: part[key]} if key in part else {}


def _is_attached(exam: Examination, first: Attachment, other: Attachment, spare: NetworkNamespace | None) -> bool:
    """Attach a second container or a second interface; return whether that has succeeded."""
    is_same = other.container == first.container
    answer = other.attach()
    if answer.status and other.namespace is first.namespace is not None:
        # Two interfaces on one network may need the same route: try without the routes of the first.
        other.call("DEL")
        other.namespace = spare
        answer = other.attach()
    if answer.status and exam.ipam and document_of(answer, must_fail=True)[0].get("code") == _TRY_AGAIN_LATER:
        return False  # the pool is full
    exam.expect_success("ADD of a second interface" if is_same else "ADD of a second container", answer)
    if answer.status == 0 and is_same and exam.ipam and not first.has_fixed_addresses():
        shared = sorted({*first.addresses()} & {*other.addresses()})
        exam.add_finding("two interfaces get different addresses", f"both have {', '.join(shared)}" if shared else "")
    return answer.status == 0


def _check_order(exam: Examination, first: Attachment, others: list[Attachment]) -> None:
    # With a namespace its lines say it: a CHECK may compare what attachments share, such as the address of a bridge.
    has_check = exam.namespace is None and exam.has_verb("CHECK") and first.call("CHECK").status == 0
    first.call("DEL")
    lost = [text for one in others if (text := one.lost(with_check=has_check))]
    exam.add_finding("DEL keeps other attachments", [f"after DEL of {first}, {text}" for text in lost])
    valid = [one for one in others if one.container == first.container]
    if not valid or not exam.has_verb("GC"):
        return
    if (exam.prev_result is None or exam.namespace is None) and first.call("ADD").status:
        return
    (third,) = valid
    third.gc(valid)
    exam.add_finding("GC keeps a valid interface", third.lost(with_check=has_check))
    # A GC that frees nothing at all is another finding.
    if has_check and (exam.keeps_state or exam.ipam) and exam.gc_frees and first.call("CHECK").status == 0:
        text = f"{first} is not valid, and was kept because of {third}"
        exam.add_finding("GC frees the other interface of a container", text)


def _side_by_side(exam: Examination, other: Attachment) -> str:
    """Attach, check and detach different containers at the same time; return the problem if a call fails."""
    earlier: list[Attachment] = []
    while exam.ipam and len(earlier) < _EARLIER:  # with many leases the moments are longer in which two calls meet
        earlier.append(Attachment(exam))
        if earlier[-1].call("ADD").status:
            # The pool is small: leave the half of it to the lives.
            for one in earlier[len(earlier) // 2 :]:
                one.call("DEL")
            break
    lives = _LIVES if exam.namespace is None else _LIVES // 3
    has_check = exam.namespace is None and exam.has_verb("CHECK") and exam.check_works
    verbs = ("ADD", "CHECK", "DEL") if has_check else ("ADD", "DEL")

    def live(like: Attachment) -> list[str]:
        ones = [Attachment(exam, "", like.ifname, like.namespace, like.previous) for _ in range(lives)]
        calls = [(verb, answer) for one in ones for verb in verbs if (answer := one.call(verb)).status]
        return [f"{verb}: {shown(answer)}" for verb, answer in calls]

    likes = [Attachment(exam), other] if exam.namespace else [Attachment(exam)] * _THREADS
    with ThreadPoolExecutor(len(likes)) as threads:
        failed = [*chain(*threads.map(live, likes))]
    for one in earlier:
        one.call("DEL")
    return f"{len(failed)} calls failed during calls of other containers, first {failed[0]}" if failed else ""
