"""Checks of ADDs that fail: the IPAM plugin refuses, the interface exists, prevResult is broken, or SIGKILL."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeAlias

from libcni.plugin import Plugin
from libcni.testing.attachment import Attachment
from libcni.testing.calling import Answer
from libcni.testing.document_checks import error_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, shown, without
from libcni.testing.reality_checks import check_reality
from libcni.testing.snapshot import Snapshot, link_names, links_of
from libcni.testing.surroundings import run_ip, surroundings_of

_MOMENTS = (0.25, 0.5, 0.75)
_HANG_SECONDS = 1.0
_PEER, _OTHER = "cnitaken0", "cniother0"
_REFUSAL = {"cniVersion": "1.0.0", "code": 11, "msg": "refused by the conformance check"}
_KUBERNETES = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1"

Trouble: TypeAlias = Callable[[str, Attachment], object]
"""A function that runs an ADD that must fail; its arguments are a description for findings, and the attachment."""


def check_failed_adds(exam: Examination) -> None:
    """Let ADDs fail, and check that nothing is left after their DEL."""
    with surroundings_of(exam):
        seconds = _measure(exam)
    for what, trouble in _troubles(exam, seconds) if seconds else ():
        with surroundings_of(exam):
            one = Attachment(exam)
            before = one.see()
            trouble(what, one)
            _take_down(what, one, before)


def _measure(exam: Examination) -> float:
    """Run two attachments without trouble; return the seconds of an ADD, and 0 if no ADD should fail on purpose.

    The first creates what attachments share on the host, such as a bridge or a chain of rules.
    """
    links, seconds = link_names(None) if exam.namespace else set(), 0.0
    first, second = Attachment(exam), Attachment(exam)
    refused = first.call("ADD", args=";".join(filter(None, (exam.args, _KUBERNETES))))
    first.call("DEL")
    before, began = second.see(), time.monotonic()
    # A plugin that moves a device of the host into the namespace may lose it when it fails.
    if second.call("ADD").status == 0 and not (exam.namespace and links - link_names(None)):
        seconds = time.monotonic() - began
        exam.expect_success("ADD with the CNI_ARGS of Kubernetes", refused)
    second.call("DEL")
    if before:
        exam.add_finding("DEL leaves nothing on the host", second.left(before))
    return seconds


def _troubles(exam: Examination, seconds: float) -> Iterator[tuple[str, Trouble]]:
    """Yield the troubles that this plugin can have."""
    if exam.recorder is not None:
        yield "an ADD whose IPAM plugin refuses", _ipam_refuses
        yield "an ADD with addresses that cannot be set", partial(_ipam_answers, _unusable(exam.recorder.answer))
        yield "an ADD with two addresses", partial(_ipam_answers, _two_addresses(exam.recorder.answer))
        yield "an attachment whose IPAM plugin refuses other verbs", _ipam_refuses_later
    if exam.prev_result is not None:
        yield "an ADD with a broken prevResult", _prev_result_is_broken
        yield "an ADD with two interfaces in prevResult", _is_beside
    # Only a plugin that makes the interface must refuse: "loopback" and chained plugins change an existing one.
    elif exam.namespace is not None and exam.makes_interface:
        yield "an ADD whose interface name is taken", _name_is_taken
    if not isinstance(exam.plugin, Plugin):
        hang = max(_HANG_SECONDS, 4 * seconds)
        for moment in [part * seconds for part in _MOMENTS] if exam.recorder is None else [hang]:
            yield "an ADD that is killed", partial(_is_killed, moment)


def _take_down(what: str, one: Attachment, before: Snapshot) -> None:
    """Run DEL, as a runtime does after a failed ADD, and check that nothing is left."""
    exam = one.exam
    exam.expect_success(f"DEL after {what}", one.call("DEL"))
    problems = [one.left(before)]
    if exam.namespace is None or exam.prev_result is None:
        again = one.call("ADD")
        if again.status != 0:
            problems.append(f"the next ADD of the same attachment fails: {shown(again)}")
        one.call("DEL")
    exam.add_finding(f"DEL leaves nothing of {what}", "; ".join(filter(None, problems)))


def _playing(one: Attachment, mode: str, document: object = None) -> AbstractContextManager[None]:
    recorder = one.exam.recorder
    assert recorder is not None
    return recorder.playing(mode, document)


def _expect_error(exam: Examination, check: str, answer: Answer) -> None:
    document, problem = document_of(answer, must_fail=True)
    exam.add_finding(check, problem or error_problems(document))


def _expect_undone(what: str, exam: Examination) -> None:
    """Spec 1.1.0, section 4: a plugin that fails after its delegate's ADD runs the delegate's DEL."""
    if exam.recorder is not None:
        verbs = [verb for verb in exam.recorder.verbs if verb in {"ADD", "DEL"}]
        is_kept = "ADD" in verbs and verbs[-1] != "DEL"
        problem = "it failed after the IPAM plugin's ADD, and did not run its DEL: the address stays allocated"
        exam.add_finding(f"{what} gives its address back", problem if is_kept else "")


def _ipam_refuses(what: str, one: Attachment) -> None:
    with _playing(one, "refuse ADD", _REFUSAL):
        _expect_error(one.exam, f"{what} fails", one.call("ADD"))


def _ipam_answers(document: dict[str, Any], what: str, one: Attachment) -> None:
    """Let the IPAM plugin give other addresses."""
    with _playing(one, "spoil", document):
        answer = one.call("ADD")
    # Without a namespace nothing sets the addresses, so an ADD with wrong ones may succeed.
    if answer.status != 0:
        _expect_error(one.exam, f"{what} fails", answer)
        _expect_undone(what, one.exam)
    elif "two" in what:
        check_reality(one.exam, one.result)


def _ipam_refuses_later(_what: str, one: Attachment) -> None:
    exam, recorder = one.exam, one.exam.recorder
    if recorder is None or one.call("ADD").status:
        return  # another finding
    for verb in ("STATUS", "CHECK", "DEL"):
        if exam.has_verb(verb):
            status = {"config": without(one.config(), "prevResult"), "env": ATTACHMENT} if verb == "STATUS" else {}
            with _playing(one, f"refuse {verb}", _REFUSAL):
                answer = one.call(verb, **status)
                is_asked = verb in recorder.verbs  # otherwise another finding
            problem = "it succeeds, although the IPAM plugin has failed" if is_asked and not answer.status else ""
            exam.add_finding(f"{verb} fails if that of the IPAM plugin fails", problem)


def _name_is_taken(what: str, one: Attachment) -> None:
    """Give the interface's name to another program's interface before the ADD."""
    exam, namespace, name = one.exam, one.namespace, one.ifname
    assert namespace is not None
    where = ("-netns", namespace.name, "link")
    if not run_ip(*where, "add", name, "type", "veth", "peer", "name", _PEER, check=False):
        return
    foreign = links_of(namespace)[name]["ifindex"]
    if exam.recorder is not None:
        exam.recorder.forget()
    answer = one.call("ADD")
    _expect_error(exam, f"{what} fails", answer)
    if answer.status:
        _expect_undone(what, exam)
    found = links_of(namespace).get(name, {}).get("ifindex")
    exam.add_finding(f"{what} keeps that interface", "" if found == foreign else f"{name} is gone or another one")
    # A DEL may remove an interface of this name, whoever made it. So the other program takes it away first.
    run_ip(*where, "delete", _PEER, check=False)


def _prev_result_is_broken(what: str, one: Attachment) -> None:
    broken = {"cniVersion": one.exam.version, "interfaces": "broken", "ips": 7}
    answer = one.call("ADD", {**one.config(), "prevResult": broken})
    if answer.status != 0:
        _expect_error(one.exam, f"{what} fails with an error document", answer)


def _is_beside(what: str, one: Attachment) -> None:
    """Put another interface of the container in front of the one of CNI_IFNAME."""
    exam, namespace, previous = one.exam, one.namespace, one.previous
    if namespace is None or not previous or not previous.get("interfaces"):
        return
    where = ("-netns", namespace.name, "link")
    run_ip(*where, "add", _OTHER, "type", "veth", "peer", "name", _PEER)
    for name in (_OTHER, _PEER):
        run_ip(*where, "set", name, "addrgenmode", "none", "up")
    try:
        before = _set_by_programs(links_of(namespace)[_OTHER])
        ips = [{**ip, "interface": (ip.get("interface") or 0) + 1} for ip in previous.get("ips") or []]
        interfaces = [{"name": _OTHER, "sandbox": namespace.path}, *previous["interfaces"]]
        one.previous = {**previous, "interfaces": interfaces, "ips": ips}
        one.call("ADD")
        after = _set_by_programs(links_of(namespace).get(_OTHER, {}))
        changed = sorted(key for key in before if after.get(key) != before[key])
        problem = f"CNI_IFNAME is {one.ifname}, and ADD has changed {_OTHER}: {', '.join(changed)}" if changed else ""
        exam.add_finding(f"{what} changes only its own interface", problem)
        one.call("DEL")
    finally:
        run_ip(*where, "delete", _OTHER, check=False)
        one.previous = previous


def _set_by_programs(link: Mapping[str, Any]) -> dict[str, Any]:
    """Return a link as ``ip`` shows it without what the kernel changes some time after the link was set up."""
    steady = {key: value for key, value in link.items() if key != "operstate"}
    return steady | {"flags": {*link.get("flags", ())} & {"ALLMULTI", "MULTICAST", "NOARP", "PROMISC", "UP"}}


def _is_killed(moment: float, _what: str, one: Attachment) -> None:
    """Kill the plugin's process group, as a runtime does at its deadline."""
    exam = one.exam

    def start() -> None:
        with suppress(subprocess.TimeoutExpired):
            exam.start("ADD", exam.config(), timeout=moment, container_id=one.container)

    if exam.recorder is None:
        start()
        return
    with _playing(one, "hang"):
        start()


def _unusable(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an IPAM result that can be read but not applied: an address twice, and a route over nowhere."""
    if "ips" not in answer:  # before 0.3.0
        return {**answer, "ip4": {**answer.get("ip4", {}), "routes": [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]}}
    return {**answer, "ips": answer["ips"] * 2, "routes": [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]}


def _two_addresses(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an IPAM result with one address more, of another subnet; before 0.3.0 there can be only one."""
    more = {key: value for key, value in (answer.get("ips") or [{}])[0].items() if key == "version"}
    return {**answer, "ips": [*answer["ips"], {**more, "address": "198.51.100.7/24"}]} if answer.get("ips") else answer
