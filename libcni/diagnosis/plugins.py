"""Check the executables of plugins, ask them for VERSION and STATUS, and run CHECK of attachments."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain as joined
from shutil import which

from libcni._known_faults import Fault, fault_of
from libcni.client import CNIConfig
from libcni.config.delegates import delegated
from libcni.config.distribution_directories import other_plugin_dirs
from libcni.config.host_local import range_sets
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.versions import supports
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.executable import plugin_problem
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.mounts import mount_of
from libcni.diagnosis.needed_programs import missing_programs, program_not_found
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import lacking_of
from libcni.diagnosis.reading import grouped, plugin_names
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, finding_about, name_of
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import (
    CNIError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    VersionError,
    counted,
    some,
)
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING
from libcni.verbs.version import PluginValidation

__all__ = ["ask_plugins"]

_error = partial(NodeFinding, "plugins", "error")


_SECONDS = 10.0
"""The longest time for VERSION and STATUS: a plugin that is a script takes seconds on an overloaded machine."""
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_AT_ONCE = 8
"""The number of networks whose plugins are asked at the same time."""


def ask_plugins(cni: CNIConfig, net: NetworkConfigList) -> tuple[PluginValidation, ...]:
    """Find each plugin of a network, IPAM plugins included, and ask it for its versions. A call may take 10 s."""
    validations = []
    for name in plugin_names(net):
        path = ""
        versions: tuple[str, ...] = ()
        problem: CNIError | None = None
        try:
            path = cni.find_plugin(name)
            versions = cni.get_version_info(name, timeout=_SECONDS).supported_versions
        except CNIError as error:
            problem = error
        else:
            if net.cni_version not in versions:
                text, hint = f'plugin "{name}" does not support spec version {net.cni_version}', ", ".join(versions)
                problem = VersionError(text, version=net.cni_version, hint=f"it supports {hint}")
        validations.append(PluginValidation(name, path, versions, problem=problem))
    return tuple(validations)


def check_plugins(node: NodeState) -> Observations:
    """Check the plugins of all configured networks: executables, VERSION, STATUS."""
    directories = [directory for directory in node.cni.path if os.path.isdir(directory)]
    if not directories:
        where = ", ".join(node.cni.path) or "CNI_PATH"
        seen = "there is no such directory" if node.cni.path else "it is empty"
        others = other_plugin_dirs(node.cni.path)
        remedy = "install CNI plugins, or set CNI_PATH"
        if others:
            remedy = f"plugins may be in {others}: choose one with --path"
        yield _error("no-plugins", where, seen, "no plugin can be run", remedy)
        return
    names = plugin_names(*node.networks)
    for directory in directories:
        yield from writable_by_others("plugins", directory)
        yield from _not_executed(directory, names)
    paths = {os.path.join(directory, name) for directory in directories for name in names}
    for path in sorted(filter(os.path.isfile, paths)):
        yield from writable_by_others("plugins", path)
    # With 2,000 networks the calls one after the other take 12 s.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for observations in pool.map(lambda net: list(_network(node.cni, net)), node.networks):
            yield from observations
    yield from _missing_programs(node)
    # containerd has no file for this network, and runs its plugin for each pod.
    loopbacks = [node.recorded(attachment) for attachment in node.attachments if node.is_loopback(attachment)]
    for net in {net.name: net for net in loopbacks if net is not None and not node.configured(net.name)}.values():
        yield from _unusable_ones(node.cni, net, ask_plugins(node.cni, net))


def _is_noexec(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def _not_executed(directory: str, names: Iterable[str]) -> Iterator[NodeFinding]:
    """Find a directory whose file system is mounted noexec, once for all its plugins."""
    plugins = [name for name in names if os.path.isfile(os.path.join(directory, name))]
    if plugins and _is_noexec(directory):
        point = shlex.quote(mount_of(directory).point)
        yield _error(
            "unusable-plugin", directory, f"its file system is mounted noexec; there: {some(plugins)}",
            "no plugin can be started there, whatever the modes of the files",
            f"correct /etc/fstab, or the unit that mounts it, and run: mount -o remount,bind,exec {point}",
        )  # fmt: skip


def _is_named_by_directory(error: CNIError) -> bool:
    """Return whether a plugin is missing only because its directory is mounted noexec."""
    places = (
        [os.path.join(one, error.plugin) for one in error.searched] if isinstance(error, PluginNotFoundError) else []
    )
    return any(os.path.isfile(place) and _is_noexec(place) for place in places)


def _missing_programs(node: NodeState) -> Iterator[NodeFinding]:
    """Find programs that plugins run and that their PATH lacks."""
    missing: dict[str, dict[str, list[str]]] = {}
    living = grouped((attachment.network, attachment) for attachment, _ in node.live)
    for net in node.networks:
        # A delegate of Multus has a network of its own.
        documents = [ran for one in plugin_documents(net) for _, ran in delegated(net.name, one)]
        addresses = [str(span.start) for spans in range_sets(net) for span in spans]
        addresses += [one for attachment in living.get(net.name, ()) for one in node.addresses_of(attachment)]
        for program, plugins in missing_programs(node, documents, addresses, has_ports=True).items():
            missing.setdefault(program, {})[net.name] = plugins
    for program, nets in missing.items():
        users = [*dict.fromkeys(joined.from_iterable(nets.values()))]
        seen = f"{some(users)} of {some(list(nets))} {'need' if len(users) > 1 else 'needs'} it"
        meaning = "no container can be attached" + (" that publishes ports" if users == ["portmap"] else "")
        about = partial(NodeFinding, check="plugins", name="program-missing", subject=f"program {program}")
        if path := which(program, path=_USUAL_PATH):
            # A runtime that is a service has another environment than this shell.
            yield about(
                severity="note", seen=f"{seen}, and {path} is not in its PATH", meaning=f"{meaning} by this program",
                remedy=f"add {os.path.dirname(path)} to PATH",
            )  # fmt: skip
        else:
            places = [f"{part}/{program}" for part in _USUAL_PATH.split(":")]
            broken = [place for place in places if os.path.lexists(place)]
            why = f"{broken[0]} cannot be executed" if broken else "it is not in the plugins' PATH"
            remedy = f"install {program}{' again' * bool(broken)}"
            yield about(severity="error", seen=f"{seen}, and {why}", meaning=meaning, remedy=remedy)


def _network(cni: CNIConfig, net: NetworkConfigList) -> Observations:
    answers = ask_plugins(cni, net)
    yield from _unusable_ones(cni, net, answers)
    names = ", ".join(answer.plugin for answer in answers)
    yield Checked("plugins", f"executables and VERSION of network {net.name}: {names}")
    if not supports(net.cni_version, "STATUS"):
        yield NotChecked("plugins", f"network {net.name}", f"spec version {net.cni_version} has no STATUS")
    # A plugin that cannot be started or hangs at VERSION is not called with STATUS: it would fail or hang again.
    elif not any(answer.problem for answer in answers):
        yield from _status(cni, net)


def _unusable_ones(
    cni: CNIConfig, net: NetworkConfigList, answers: Iterable[PluginValidation]
) -> Iterator[NodeFinding]:
    for answer in answers:
        if answer.problem is not None and not _is_named_by_directory(answer.problem):
            yield _unusable(cni, net, answer, answer.problem)


def _unusable(cni: CNIConfig, net: NetworkConfigList, validation: PluginValidation, error: CNIError) -> NodeFinding:
    problem = plugin_problem(cni, validation.plugin)
    hint = error.hint.words("--path") if error.hint else "install the plugin again"
    if isinstance(error, PluginError) and error.signal:
        hint = "install the plugin again: its file may be damaged"
    if isinstance(error, PluginTimeoutError):
        hint = "if this machine is overloaded, call doctor again; else find out what the plugin waits for"
    seen, remedy = problem or (error.text, hint)
    return _error(
        "unusable-plugin", f"network {net.name}, plugin {validation.plugin}", seen, "ADD of this network fails", remedy
    )


def _status(cni: CNIConfig, net: NetworkConfigList) -> Observations:
    try:
        status = cni.network_status(net, timeout=_SECONDS)
    except CNIError as error:
        yield NotChecked("plugins", f"network {net.name}", f"STATUS: {error}")
        return
    yield Checked("plugins", f"STATUS of network {net.name}")
    for plugin in status.plugins:
        if plugin.error is not None:
            yield _error(
                "status", f"network {net.name}, plugin {plugin.plugin}", f"STATUS: {plugin.error}",
                "ADD of this network may fail",
                f"{plugin.error.hint or 'correct the cause'}; then: {shlex.join(['libcni', 'status', net.name, '-v'])}",
            )  # fmt: skip


def ask_before_add(cni: CNIConfig, net: NetworkConfigList) -> None:
    """Ask the plugins of a network for VERSION and STATUS; raises CNIError if its ADD would fail."""
    problems = [answer.problem for answer in ask_plugins(cni, net)]
    if not any(problems) and supports(net.cni_version, "STATUS"):
        problems += [plugin.error for plugin in cni.network_status(net, timeout=_SECONDS).plugins]
    for problem in filter(None, problems):
        raise problem


def run_checks(node: NodeState, explained: set[str], checked: Collection[str] | None) -> Observations:
    """Run CHECK of the live attachments in ``checked`` (None: of all).

    Those in ``explained`` already have a finding.
    """
    attachments = [
        attachment for attachment in node.attachments if attachment.state in LIVING and os.path.exists(attachment.netns)
    ]
    if attachments and checked is not None and not checked:
        yield NotChecked("interfaces", "the plugins' own checks", "CHECK was not run; libcni doctor --check runs it")
    attachments = [attachment for attachment in attachments if checked is None or attachment.path in checked]
    if not attachments:
        return
    passed = known = 0
    faults: dict[Fault, list[str]] = {}
    lacking: dict[tuple[str, str], list[str]] = {}
    for attachment in attachments:
        try:
            asked = node.cni.check_attachment(attachment).plugins
            passed += bool(asked)
            yield from _unasked(attachment, asked)
        except CNIError as error:
            fault = fault_of(error) if isinstance(error, PluginError) and error.known_fault else None
            # It says nothing of the container, and its ADD would fail as well.
            program = program_not_found(error)
            if program and program not in lacking_of(node, attachment):
                lacking.setdefault((getattr(error, "plugin", ""), program), []).append(id_of(attachment))
            elif fault is not None:
                faults.setdefault(fault, []).append(id_of(attachment))
            elif id_of(attachment) in explained:
                known += 1
            else:
                yield _failed_check(node, attachment, error)
    also = f", {known} failed because of the findings above" if known else ""
    yield Checked("interfaces", f"CHECK of {counted(len(attachments), 'attachment')}, {passed} passed{also}")
    for (plugin, program), containers in lacking.items():
        yield NodeFinding(
            "plugins", "error", "program-missing", f"program {program}, for CHECK",
            f"plugin {plugin} did not find it at CHECK of {counted(len(containers), 'attachment')}",
            "nothing is known of these containers, and an ADD may fail as well",
            f"install {program}, or correct PATH", containers=tuple(containers),
        )  # fmt: skip
    for fault, containers in faults.items():
        newer = ". A newer plugin does not have the fault" if fault.is_corrected else ""
        yield NodeFinding(
            "interfaces", "note", "known-fault", f"plugin {fault.plugin}",
            f"CHECK failed for {counted(len(containers), 'attachment')} by a known fault of the plugin",
            f"{fault.meaning}; the containers may be healthy",
            f"do nothing: attaching the containers again does not help{newer}",
            containers=tuple(containers),
        )  # fmt: skip


def _unasked(attachment: Attachment, asked: Collection[str]) -> Iterator[NotChecked]:
    if not asked:
        yield NotChecked("interfaces", name_of(attachment), "CHECK: the configuration has disableCheck")


def _failed_check(node: NodeState, attachment: Attachment, error: CNIError) -> NodeFinding | NotChecked:
    if changed := _changed_mac(node, attachment):
        return changed
    # Without a program that a plugin needs its CHECK says nothing of the container.
    if lacking_of(node, attachment) or not _is_answer(error):
        return NotChecked("interfaces", name_of(attachment), f"CHECK: {error}")
    # The doctor's own checks found no fault, so the container may work.
    return finding_about(
        "interfaces", "error", attachment, "check-failed", f"CHECK failed: {error.text}",
        "a plugin finds the container's network damaged", *reloads(node, attachment, interrupts=True),
    )  # fmt: skip


def _changed_mac(node: NodeState, attachment: Attachment) -> NodeFinding | None:
    """Return the finding for an interface that has another hardware address than the plugins reported."""
    space, recorded = node.space_of(attachment), node.summary_of(attachment).macs
    link = space.network.links.get(attachment.ifname) if space is not None and space.network is not None else None
    if link is None or not link.mac or not recorded or link.mac in recorded:
        return None
    command = command_in(attachment.netns, f"ip link set {attachment.ifname} address {recorded[0]}")
    return finding_about(
        "interfaces", "error", attachment, "check-failed",
        f"CHECK failed: {attachment.ifname} has the hardware address {link.mac}, but had {recorded[0]} after its ADD",
        "CHECK, DEL and reload take it for another interface", f"if nobody wants the new address: {command}",
    )  # fmt: skip


def _is_answer(error: CNIError) -> bool:
    """Return whether a CHECK found a fault. A plugin that crashed or hung says nothing about the attachment."""
    says_so = isinstance(error, PluginError) and error.code is not None and not error.retryable
    return says_so or isinstance(error, NotAttachedError)
