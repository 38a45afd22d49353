"""Checks along the life of one attachment: ADD, CHECK, GC and DEL, and the state after each."""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

from libcni.plugin import PluginResult, VerbError
from libcni.testing.calling import Answer
from libcni.testing.document_checks import result_problems
from libcni.testing.examination import ATTACHMENT, Examination, document_of, without
from libcni.testing.reality_checks import check_reality
from libcni.testing.snapshot import difference, settled, snapshot, without_routes
from libcni.testing.surroundings import run_ip


def check_attachment(exam: Examination) -> None:
    """Check one attachment from ADD to DEL."""
    _Life(exam).run()


def check_host(exam: Examination) -> None:
    """Check that an attachment leaves nothing on the host.

    An earlier attachment has created the objects that attachments share, such as a bridge or a chain of rules.
    """
    if exam.namespace is None:
        return
    before = snapshot(None)
    container = new_container()
    added = exam.call("ADD", exam.config(), container_id=container)
    exam.call("DEL", exam.config(result=document_of(added)[0]), container_id=container)
    exam.add_finding("DEL leaves nothing on the host", sorted(settled(None, before) - before))


def gives_fixed_addresses(exam: Examination, result: dict[str, Any]) -> bool:
    """Return whether the configuration or CNI_ARGS name all addresses of ``result``, as for Go's plugin ``static``."""
    text = json.dumps([exam.config_base, exam.args])
    return all(str(ip.get("address")) in text for ip in PluginResult.from_document(result, exam.version).ips)


def new_container() -> str:
    """Return the ID of a container that does not exist."""
    return f"conformance-{uuid4().hex[:8]}"


class _Life:
    """One attachment, and the checks along its life."""

    def __init__(self, exam: Examination) -> None:
        self.exam = exam
        self.container = new_container()
        self.result: dict[str, Any] = {}
        self.has_state = bool(exam.keeps_state)
        self.before = exam.snapshot()

    def run(self) -> None:
        exam = self.exam
        if exam.has_verb("STATUS"):
            config = without(exam.config(), "prevResult")
            exam.expect_success("STATUS", self._call_forwarded("STATUS", config, env=ATTACHMENT))
        try:
            self._added(self._call_forwarded("ADD", exam.config()))
        finally:
            # Also after an ADD that failed or hung: the plugin may have allocated an address before.
            self._deleted()
        exam.add_finding("DEL leaves nothing", self._left())
        never = exam.call("DEL", exam.config(), container_id=new_container())
        exam.expect_success("DEL without an earlier ADD", never)
        if self.result and exam.prev_result is None:
            again = self._call("ADD", exam.config())
            exam.expect_success("ADD after DEL", again)
            self.result = document_of(again)[0]
            if self.result and exam.has_verb("GC"):
                self._gc_everything()
            self._call("DEL", self._config())
        if self.result and exam.makes_interface and exam.prev_result is None and exam.check_works:
            self._gone_before_check()
        exam.add_finding("DEL creates no namespace file", self._created_file())

    def _call(self, verb: str, config: dict[str, Any], **changes: Any) -> Answer:
        return self.exam.call(verb, config, container_id=self.container, **changes)

    def _config(self) -> dict[str, Any]:
        """Return the configuration with the result of ADD, if there is one."""
        return self.exam.config(result=self.result)

    def _call_forwarded(self, verb: str, config: dict[str, Any], **changes: Any) -> Answer:
        """Call the plugin, and check that a success has reached the IPAM plugin of a plugin that delegates."""
        recorder = self.exam.recorder
        if recorder is not None:
            recorder.forget()
        answer = self._call(verb, config, **changes)
        # A plugin may fail before it delegates. That is another finding.
        if recorder is not None and answer.status == 0:
            verbs = list(recorder.verbs)
            problem = "" if verb in verbs else f"it got {verbs or 'no call'}"
            self.exam.add_finding(f"{verb} is forwarded to the IPAM plugin", problem)
        return answer

    def _check(self) -> Answer:
        return self._call("CHECK", self._config())

    def _expect_failed_check(self, check: str) -> None:
        self.exam.add_finding(check, "CHECK still succeeds" if self._check().status == 0 else "")

    def _added(self, answer: Answer) -> None:
        exam = self.exam
        result, problem = document_of(answer)
        exam.add_finding("ADD", problem or result_problems(result, exam.version, abbreviated=exam.ipam))
        if problem:
            return
        self.result = result
        # Whether ADD has changed state that DEL restores. Then CHECK must succeed before DEL, and fail after DEL.
        if exam.keeps_state is None and exam.ipam:
            self.has_state = not gives_fixed_addresses(exam, result)
        elif exam.keeps_state is None:
            self.has_state = exam.snapshot() != self.before
        exam.makes_interface = any(part.get("name") == exam.ifname for part in result.get("interfaces") or [])
        exam.add_finding("ADD keeps prevResult", self._lost_of_prev_result())
        check_reality(exam, result)
        if exam.has_verb("CHECK"):
            checked = self._call_forwarded("CHECK", self._config())
            exam.expect_success("CHECK", checked)
            exam.check_works = checked.status == 0
            if exam.has_verb("GC"):
                self._gc_valid(checked)
        # A chained plugin is attached only once. Other plugins get a second attachment for this GC, because a DEL after
        # it would have nothing left to free.
        if exam.has_verb("GC") and exam.prev_result is not None:
            self._gc_everything()

    def _gc_valid(self, checked: Answer) -> None:
        config = self._gc_config([{"containerID": self.container, "ifname": self.exam.ifname}])
        answer = self._call_forwarded("GC", config, env=ATTACHMENT)
        self.exam.expect_success("GC", answer)
        if checked.status:
            return  # a CHECK that always fails cannot tell whether a GC has freed something
        self.exam.expect_success("GC keeps valid attachments", self._check())
        bare = {key: value for key, value in self._gc_config([]).items() if not key.startswith("cni.dev/")}
        self._call("GC", bare, env=ATTACHMENT)
        self.exam.expect_success("GC without a list of attachments frees nothing", self._check())
        other = {**self._gc_config([]), "name": f"{self.exam.config_base['name']}-other"}
        self._call("GC", other, env=ATTACHMENT)
        self.exam.expect_success("GC keeps other networks", self._check())

    def _gc_everything(self) -> None:
        self.exam.expect_success("GC without valid attachments", self._call("GC", self._gc_config([]), env=ATTACHMENT))
        # An interface may stay until its namespace ends, but nothing else frees an address.
        if self.exam.keeps_state or (self.exam.ipam and self.has_state):
            self._expect_failed_check("GC without valid attachments frees all")
            self.exam.gc_frees = not self.exam.report.findings[-1].problem

    def _gc_config(self, valid: list[dict[str, str]]) -> dict[str, Any]:
        lists = {"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid}
        return without({**self.exam.config(), **lists}, "prevResult")

    def _deleted(self) -> None:
        config = self._config()
        self.exam.expect_success("DEL", self._call_forwarded("DEL", config))
        if self.result and self.has_state and self.exam.has_verb("CHECK"):
            self._expect_failed_check("CHECK fails after DEL")
        # A runtime repeats DEL after a crash or a reboot, when the namespace and the result may be lost.
        self.exam.expect_success("DEL again", self._call("DEL", config))
        for check, env in (
            ("DEL without CNI_NETNS", {"CNI_NETNS": None}),
            ("DEL without namespace", {"CNI_NETNS": self.exam.missing_netns}),
        ):
            self.exam.expect_success(check, self._call("DEL", config, env=env))
        self.exam.expect_success("DEL without prevResult", self._call("DEL", without(config, "prevResult")))

    def _gone_before_check(self) -> None:
        """Take the addresses and then the interface away from an attachment: CHECK must see both."""
        exam, namespace = self.exam, self.exam.namespace
        if namespace is None or exam.needs_host:  # a device of the host would be lost
            return
        self.result = document_of(self._call("ADD", exam.config()))[0]
        where = ("-netns", namespace.name)
        if self.result.get("ips") and run_ip(*where, "address", "flush", "dev", exam.ifname, check=False):
            self._expect_failed_check("CHECK sees that the address is gone")
        if run_ip(*where, "link", "delete", exam.ifname, check=False):
            self._expect_failed_check("CHECK sees that the interface is gone")
        exam.expect_success("DEL of an interface that is gone", self._call("DEL", self._config()))

    def _left(self) -> str:
        if self.exam.namespace is None:
            return ""
        current = settled(self.exam.namespace, self.before)
        if self.exam.prev_result is None:
            return difference(current, self.before)
        # The plugin that created the interface deletes it next. This deletes the routes of a chained plugin too.
        return difference(without_routes(current), without_routes(self.before))

    def _created_file(self) -> str:
        if not os.path.exists(self.exam.missing_netns):
            return ""
        os.unlink(self.exam.missing_netns)
        return f"it created {self.exam.missing_netns}"

    def _lost_of_prev_result(self) -> list[str]:
        if self.exam.prev_result is None:
            return []
        document = self.exam.config()["prevResult"]
        try:
            before = PluginResult.from_document(document, self.exam.version)
            after = PluginResult.from_document(self.result, self.exam.version)
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
