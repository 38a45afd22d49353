"""One attachment of an examination: its calls, what it has made, and what it has lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from libcni.plugin import PluginResult, VerbError
from libcni.testing.calling import Answer
from libcni.testing.examination import ATTACHMENT, Examination, document_of, shown, without
from libcni.testing.namespaces import NetworkNamespace
from libcni.testing.snapshot import Snapshot, difference, settled, snapshot


class Attachment:
    """An attachment in an examination: one interface of a container.

    Attributes:
        container: its ID; no such container exists.
        namespace: its namespace, or None.
        previous: the result of the previous plugin, or None.
        result: the result of its last ADD; empty if that failed.
        made: the lines of state that ``attach`` has added.
    """

    def __init__(
        self,
        exam: Examination,
        container: str = "",
        ifname: str = "",
        namespace: NetworkNamespace | None = None,
        previous: Mapping[str, Any] | None = None,
    ) -> None:
        self.exam = exam
        self.container: str = container or f"conformance-{uuid4().hex[:8]}"
        self.ifname: str = ifname or exam.ifname
        self.namespace: NetworkNamespace | None = namespace or exam.namespace
        self.previous: Mapping[str, Any] | None = previous or exam.prev_result
        self.result: dict[str, Any] = {}
        self.made: Snapshot = frozenset()

    def __str__(self) -> str:
        return f"{self.container}/{self.ifname}"

    def config(self, verb: str = "") -> dict[str, Any]:
        """Return the configuration for a verb; except for ADD it contains the last ADD's result, if there is one."""
        return self.exam.config(self.result if verb != "ADD" else None, self.previous, self.namespace)

    def call(self, verb: str, config: Mapping[str, Any] | None = None, **changes: Any) -> Answer:
        """Run a verb for the attachment; the result of an ADD is stored in ``result``."""
        netns = {"netns": self.namespace.path} if self.namespace else {}
        given = {"container_id": self.container, "ifname": self.ifname, **netns, **changes}
        answer = self.exam.call(verb, config or self.config(verb), **given)
        if verb == "ADD":
            self.result = document_of(answer)[0]
            self.exam.has_attached = self.exam.has_attached or answer.status == 0
            self.exam.refused = shown(answer) if answer.status else self.exam.refused
        if verb == "ADD" and self.result:
            names = [part.get("name") for part in self.result.get("interfaces") or []]
            self.exam.makes_interface = self.ifname in names
        return answer

    def forwarded(self, verb: str, config: Mapping[str, Any] | None = None, **changes: Any) -> Answer:
        """Run a verb; if it succeeds, check that a plugin with an IPAM plugin has forwarded the verb to it."""
        recorder = self.exam.recorder
        if recorder is not None:
            recorder.forget()
        answer = self.call(verb, config, **changes)
        # A plugin may fail before it delegates. That is another finding.
        if recorder is not None and answer.status == 0:
            verbs = list(recorder.verbs)
            problem = "" if verb in verbs else f"it got {verbs or 'no call'}"
            self.exam.add_finding(f"{verb} is forwarded to the IPAM plugin", problem)
        return answer

    def gc(self, valid: Iterable[Attachment] | None, name: str = "", *, forwarded: bool = False) -> Answer:
        """Run GC with a list of valid attachments, or without a list; ``name``: a suffix of the network's name."""
        pairs = [{"containerID": one.container, "ifname": one.ifname} for one in valid or ()]
        lists = {} if valid is None else {"cni.dev/valid-attachments": pairs, "cni.dev/attachments": pairs}
        config = without({**self.config("GC"), **lists, "name": f"{self.exam.config_base['name']}{name}"}, "prevResult")
        return (self.forwarded if forwarded else self.exam.call)("GC", config, env=ATTACHMENT)

    def attach(self) -> Answer:
        """Run ADD, and store in ``made`` the state that the ADD has added."""
        before = self.see()
        answer = self.call("ADD")
        self.made = self.see() - before
        return answer

    def see(self) -> Snapshot:
        """Return the state of the attachment's namespace and of the host; empty without a namespace."""
        return snapshot(self.namespace) | {f"host {line}" for line in snapshot(None)} if self.namespace else frozenset()

    def left(self, before: Snapshot, *, host: bool = True) -> str:
        """Wait, at most a second, until the state is as before; return the difference.

        The host may lose state, because other programs change it too. A chained plugin may change routes of the
        namespace: the plugin that made the interface deletes them with it.

        Args:
            before: what ``see`` returned earlier.
            host: whether the host counts.
        """

        def counts(line: str) -> bool:
            if line.startswith("host "):
                return host
            return self.previous is None or not line.startswith("route ")

        def compare() -> str:
            now = self.see() | {line for line in before if line.startswith("host ")}
            return difference(frozenset(filter(counts, now)), frozenset(filter(counts, before)))

        return settled(compare)

    def lost(self, made: Snapshot | None = None, *, with_check: bool = True) -> str:
        """Return which lines of ``made`` are missing now, and the error of a failed CHECK; "" if there is neither."""
        problems = []
        if gone := (self.made if made is None else made) - self.see():
            problems.append(f"{self} has lost: {', '.join(sorted(gone))}")
        if with_check and (answer := self.call("CHECK")).status:
            problems.append(f"CHECK of {self} fails: {shown(answer)}")
        return "; ".join(problems)

    def addresses(self) -> list[str]:
        """Return the addresses in the attachment's result."""
        try:
            return [str(ip.get("address")) for ip in PluginResult.from_document(self.result, self.exam.version).ips]
        except VerbError:
            return []

    def has_fixed_addresses(self) -> bool:
        """Return whether the configuration or CNI_ARGS name all its addresses, as for Go's plugin ``static``."""
        text = json.dumps([self.exam.config_base, self.exam.args])
        return all(address in text for address in self.addresses())
