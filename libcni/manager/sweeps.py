"""What goes over all networks, or all attachments of a container: CHECK, status and GC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config.identifiers import check_container_id
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, VersionError
from libcni.manager.container_result import Attached, ContainerResult
from libcni.manager.events import Event
from libcni.manager.networks import NetworkSet
from libcni.manager.reports import (
    AttachmentCheck,
    CheckReport,
    GCSummary,
    ManagerStatus,
    NetworkState,
    raise_errors,
)
from libcni.manager.steps import Ask, Call, Plan, Turn
from libcni.manager.teardown import in_order
from libcni.store.attachments import Attachment, recorded_network
from libcni.store.record import READY
from libcni.verbs.gc import valid_pairs
from libcni.verbs.reports import GCReport, NetworkStatus, ValidationReport

__all__ = ["Live", "check_plan", "container_result", "gc_plan", "status_plan"]

Live = Iterable[Any] | Callable[[], Any]
"""What lives: container IDs, attachments or (container ID, interface name) pairs; or what returns them when asked."""


def check_plan(container_id: str, networks: NetworkSet, timeout: float | None) -> Plan[CheckReport]:
    """Check every attachment of a container; raise what is wrong as one CNIErrorGroup, with the report in it."""
    yield Turn(check_container_id(container_id), timeout)
    attachments: list[Attachment] = yield Call("get_cached_attachments", (container_id,))
    report = CheckReport(container_id)
    for attachment in in_order([one for one in attachments if one.network]):
        check = yield from _check(attachment, networks, _options(timeout))
        report = replace(report, checks=(*report.checks, check))
    raise_errors(f"check of container {container_id}", report, report.errors)
    return report


def _check(attachment: Attachment, networks: NetworkSet, options: dict[str, Any]) -> Plan[AttachmentCheck]:
    net = networks.find(attachment.network) or recorded_network(attachment.record) or attachment.network
    rt = RuntimeConf(attachment.container_id, None, attachment.ifname)
    try:
        yield Call("check_network_list", (net, rt), options)
    except VersionError:
        return AttachmentCheck(attachment.network, attachment.ifname, "unsupported")
    except CNIError as error:
        yield Event("problem", attachment.network, attachment.container_id, attachment.ifname, str(error), error)
        return AttachmentCheck(attachment.network, attachment.ifname, "failed", error)
    return AttachmentCheck(attachment.network, attachment.ifname, "ok")


def container_result(container_id: str, attachments: Sequence[Attachment]) -> ContainerResult | None:
    """Return what the records say of a container, as its set-up returned it; None where nothing is attached."""
    ready = in_order([one for one in attachments if one.state == READY and one.record.result is not None])
    if not ready:
        return None
    attached = tuple(Attached(one.network, one.ifname, result) for one in ready if (result := one.result) is not None)
    return ContainerResult(container_id, ready[0].netns, attached)


def status_plan(
    networks: NetworkSet, defaults: Sequence[NetworkConfigList] | CNIError, timeout: float | None
) -> Plan[ManagerStatus]:
    """Ask all networks whether they can serve ADD; ``defaults``: the default networks, or why there are none."""
    names = set() if isinstance(defaults, CNIError) else {net.name for net in defaults}
    states: list[NetworkState] = []
    for net in networks.all:
        state = yield from _network_state(net, _options(timeout))
        states.append(replace(state, is_default=net.name in names, kept=net.name in networks.kept))
    unready = [f"network {state.name}: {state.reason}" for state in states if state.is_default and not state.ready]
    reason = str(defaults) if isinstance(defaults, CNIError) else "; ".join(unready)
    return ManagerStatus(not reason, reason, tuple(states), networks.problems)


def _network_state(net: NetworkConfigList, options: dict[str, Any]) -> Plan[NetworkState]:
    validation: ValidationReport = yield Call("validate_network_list", (net,), options)
    status: NetworkStatus = yield Call("network_status", (net,), options)
    wrong = [*validation.problems, *status.errors]
    return NetworkState(net.name, net.file, not wrong, str(wrong[0]) if wrong else "", plugins=status.plugins)


def _options(timeout: float | None, **more: Any) -> dict[str, Any]:
    return more if timeout is None else {**more, "timeout": timeout}


@dataclass(frozen=True, slots=True)
class _Lives:
    """What lives: whole containers, and single attachments."""

    containers: frozenset[str]
    pairs: tuple[tuple[str, str], ...]

    def valid_of(self, network: str, attachments: Sequence[Attachment]) -> list[tuple[str, str]]:
        """Return the pairs that are valid on a network: those recorded of live containers, and those given."""
        recorded = [
            (one.container_id, one.ifname)
            for one in attachments
            if one.network == network and one.container_id in self.containers
        ]
        return list(dict.fromkeys([*recorded, *self.pairs]))


def gc_plan(networks: NetworkSet, live: Live, *, dry_run: bool, timeout: float | None) -> Plan[GCSummary]:
    """Run GC of every network, while no container is set up or torn down; raise errors as one CNIErrorGroup."""
    yield Turn("", timeout)
    lives = _lives((yield Ask(live)) if callable(live) else live)
    attachments: list[Attachment] = yield Call("get_cached_attachments")
    reports: dict[str, GCReport] = {}
    errors: list[CNIError] = []
    options = _options(timeout, dry_run=dry_run)
    for name, net in _every_network(networks, attachments).items():
        call = Call("gc_network_list", (net, lives.valid_of(name, attachments)), options)
        reports[name], wrong = yield from _collect(call)
        errors += wrong
    summary = GCSummary(reports, tuple(errors))
    raise_errors("GC", summary, errors)
    return summary


def _collect(call: Call) -> Plan[tuple[GCReport, list[CNIError]]]:
    network = call.args[0].name if isinstance(call.args[0], NetworkConfigList) else call.args[0]
    errors: list[CNIError] = []
    report = GCReport()
    try:
        report = yield call
    except CNIErrorGroup as group:
        report = group.report if isinstance(group.report, GCReport) else report
        errors = [one for one in group.exceptions if isinstance(one, CNIError)]
    except CNIError as error:
        errors = [error]
    for one in report.detached:
        yield Event("attachment-removed", network, one.container_id, one.ifname, "garbage")
    for problem in errors:
        yield Event("problem", network, detail=str(problem), error=problem)
    return report, errors


def _every_network(networks: NetworkSet, attachments: Sequence[Attachment]) -> dict[str, NetworkConfigList | str]:
    """Return the networks in force, and those that only records know any more, by name."""
    found: dict[str, NetworkConfigList | str] = {net.name: net for net in networks.all}
    for one in attachments:
        if one.network and one.network not in found:
            found[one.network] = recorded_network(one.record) or one.network
    return found


def _lives(live: Any) -> _Lives:
    """Sort what lives; raises TypeError for None, which could only mean that everything is to be deleted."""
    if live is None or isinstance(live, str | bytes):
        raise TypeError("live must be container IDs, attachments or (container ID, interface name) pairs; [] for none")
    given = list(live)
    containers = frozenset(check_container_id(one) for one in given if isinstance(one, str))
    return _Lives(containers, tuple(valid_pairs(one for one in given if not isinstance(one, str))))
