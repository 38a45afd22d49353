"""ADDs that fail half way: refused by the IPAM plugin, a name that is taken, a broken prevResult, SIGKILL."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from libcni.plugin import Plugin
from libcni.testing.attachment_checks import new_container
from libcni.testing.calling import Answer
from libcni.testing.document_checks import error_problems
from libcni.testing.examination import Examination, document_of, shown
from libcni.testing.snapshot import Snapshot, difference, link_names, links_of, settled, snapshot, without_routes
from libcni.testing.surroundings import run_ip, surroundings_of

_MOMENTS = (0.25, 0.5, 0.75)
_HANG_SECONDS = 1.0
_PEER = "cnitaken0"


def check_failed_adds(exam: Examination) -> None:
    """Let ADDs fail, and check that nothing is left after their DEL.

    An earlier attachment has created the objects that attachments share, such as a bridge or a chain of rules.
    """
    _Failures(exam).run()


class _Failures:
    def __init__(self, exam: Examination) -> None:
        self.exam = exam
        self.container = new_container()
        self.host: Snapshot = frozenset()
        self.before: Snapshot = frozenset()
        self.moves_link = False
        self.seconds = 0.0

    def run(self) -> None:
        self._in_surroundings(self._measure)
        # A plugin that moves a device of the host into the namespace may lose it when it fails.
        if not self.seconds or self.moves_link:
            return
        exam, recorder = self.exam, self.exam.recorder
        if recorder is not None:
            refusal = {"cniVersion": exam.version, "code": 11, "msg": "refused by the conformance check"}
            answer = recorder.answer
            self._in_surroundings(lambda: self._fails("an ADD whose IPAM plugin refuses", "refuse", refusal))
            spoiled = _spoiled(answer)
            self._in_surroundings(lambda: self._fails("an ADD with addresses that cannot be set", "spoil", spoiled))
        if exam.prev_result is not None:
            self._in_surroundings(self._prev_result_is_broken)
        # Only a plugin that makes the interface must refuse: "loopback" and chained plugins change an existing one.
        elif exam.namespace is not None or exam.surroundings is not None:
            self._in_surroundings(self._name_is_taken)
        if not isinstance(exam.plugin, Plugin):
            moments = [max(_HANG_SECONDS, 4 * self.seconds)] if recorder else [part * self.seconds for part in _MOMENTS]
            for moment in moments:
                self._in_surroundings(partial(self._is_killed, moment))

    def _in_surroundings(self, check: Callable[[], None]) -> None:
        """Run a check. A chained plugin leaves its changes to the one that removes the interface, so renew that."""
        with surroundings_of(self.exam):
            self.before = self.exam.snapshot()
            self.host = snapshot(None) if self.exam.namespace else frozenset()
            check()

    def _measure(self) -> None:
        links = link_names(None) if self.exam.namespace else set()
        began = time.monotonic()
        answer = self._call("ADD")
        if answer.status == 0:
            self.seconds = time.monotonic() - began
        self.moves_link = bool(self.exam.namespace and links - link_names(None))
        self._call("DEL", self.exam.config(result=document_of(answer)[0]))

    def _call(self, verb: str, config: Mapping[str, Any] | None = None, **changes: Any) -> Answer:
        return self.exam.call(verb, config or self.exam.config(), container_id=self.container, **changes)

    def _fails(self, what: str, mode: str, document: object) -> None:
        """Let the IPAM plugin spoil an ADD of a plugin that asks it."""
        recorder = self.exam.recorder
        assert recorder is not None
        recorder.forget()
        recorder.play(mode, document)
        answer = self._call("ADD")
        recorder.play("")
        # Without a namespace nothing sets the addresses, so an ADD with wrong ones may succeed.
        if mode == "refuse" or answer.status != 0:
            self._expect_error(f"{what} fails", answer)
            self._expect_undone(what, mode)
        self._taken_down(what)

    def _expect_error(self, check: str, answer: Answer) -> None:
        document, problem = document_of(answer, must_fail=True)
        self.exam.add_finding(check, problem or error_problems(document))

    def _expect_undone(self, what: str, mode: str = "") -> None:
        """Spec 1.1.0, section 4: a plugin that fails after its delegate's ADD runs the delegate's DEL."""
        recorder = self.exam.recorder
        if recorder is None or mode == "refuse":
            return
        verbs = [verb for verb in recorder.verbs if verb in {"ADD", "DEL"}]
        is_kept = "ADD" in verbs and verbs[-1] != "DEL"
        problem = "it failed after the IPAM plugin's ADD, and did not run its DEL: the address stays allocated"
        self.exam.add_finding(f"{what} gives its address back", problem if is_kept else "")

    def _taken_down(self, what: str) -> None:
        """Run DEL, as a runtime does after a failed ADD, and check that nothing is left."""
        exam = self.exam
        exam.expect_success(f"DEL after {what}", self._call("DEL"))
        problems = []
        if exam.namespace is not None:
            kept = without_routes if exam.prev_result is not None else frozenset
            problems.append(difference(kept(settled(exam.namespace, self.before)), kept(self.before)))
            problems += sorted(settled(None, self.host) - self.host)
        if exam.namespace is None or exam.prev_result is None:
            again = self._call("ADD")
            if again.status != 0:
                problems.append(f"the next ADD of the same attachment fails: {shown(again)}")
            self._call("DEL", exam.config(result=document_of(again)[0]))
        exam.add_finding(f"DEL leaves nothing of {what}", "; ".join(filter(None, problems)))

    def _name_is_taken(self) -> None:
        """Give the interface's name to another program's interface before the ADD."""
        exam, namespace = self.exam, self.exam.namespace
        if namespace is None or not exam.makes_interface:
            return
        what, name = "an ADD whose interface name is taken", exam.ifname
        where = ("-netns", namespace.name, "link")
        if not run_ip(*where, "add", name, "type", "veth", "peer", "name", _PEER, check=False):
            return
        foreign = links_of(namespace)[name]["ifindex"]
        if exam.recorder is not None:
            exam.recorder.forget()
        self._expect_error(f"{what} fails", self._call("ADD"))
        self._expect_undone(what)
        found = links_of(namespace).get(name, {}).get("ifindex")
        exam.add_finding(f"{what} keeps that interface", "" if found == foreign else f"{name} is gone or another one")
        # A DEL may remove an interface of this name, whoever made it. So the other program takes it away first.
        run_ip(*where, "delete", _PEER, check=False)
        self._taken_down(what)

    def _prev_result_is_broken(self) -> None:
        what = "an ADD with a broken prevResult"
        config = {
            **self.exam.config(),
            "prevResult": {"cniVersion": self.exam.version, "interfaces": "broken", "ips": 7},
        }
        answer = self._call("ADD", config)
        if answer.status != 0:
            self._expect_error(f"{what} fails with an error document", answer)
        self._taken_down(what)

    def _is_killed(self, moment: float) -> None:
        """Kill the plugin's process group, as a runtime does at its deadline."""
        recorder = self.exam.recorder
        if recorder is not None:
            recorder.play("hang")
        with suppress(subprocess.TimeoutExpired):
            self.exam.start("ADD", self.exam.config(), timeout=moment, container_id=self.container)
        if recorder is not None:
            recorder.play("")
        self._taken_down("an ADD that is killed")


def _spoiled(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an IPAM result that can be read but not applied: an address twice, and a route over nowhere."""
    if "ips" not in answer:  # before 0.3.0
        return {**answer, "ip4": {**answer.get("ip4", {}), "routes": [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]}}
    return {**answer, "ips": answer["ips"] * 2, "routes": [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]}
