"""CHECK: allowed only between a successful ADD and its DEL, and always with the result of that ADD."""

from __future__ import annotations

from operator import attrgetter

from libcni._dataclass import dataclass
from libcni.config.identifiers import validate_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import SINCE, supports
from libcni.errors import Hint, NotAttachedError, RecordError, VersionError
from libcni.store.attachments import recorded_conf, recorded_result
from libcni.store.model import STATES, Identity, Record, State, is_interrupted_reload
from libcni.store.recorded_interface import place_of
from libcni.verbs.chain import Chain
from libcni.verbs.configurations import network_to_use
from libcni.verbs.delete import lock_if_possible
from libcni.verbs.path_to_use import checked_conf, path_to_use
from libcni.verbs.target import Damaged, Recorded, find_target, not_attached
from libcni.verbs.verb_run import VerbRun

__all__ = ["CheckReport"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of a CHECK without an error.

    Attributes:
        plugins: the types of the plugins that found the attachment in order, in the order of the calls; () if the
            configuration has ``disableCheck``: then nothing was run, and nothing is known of the attachment.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> cni.check_network_list(net, rt).plugins
        ('bridge',)
    """

    plugins: tuple[str, ...]


async def check(
    run: VerbRun, network: str, net: NetworkConfigList | None, rt: RuntimeConf, *, use_given: bool = False
) -> CheckReport:
    """Check an attachment (spec 1.1.0, section 3, Checking an attachment); the arguments are those of ``delete``."""
    validate_network_name(network)
    rt = checked_conf(rt)
    net = run.configured(network) if net is None else net
    if net is not None and net.disable_check:
        return CheckReport(())
    # CHECK only reads, so a read-only disk must not stop it.
    await lock_if_possible(run, [network], rt.container_id)
    identity = (network, rt.container_id, rt.ifname)
    record = _find_record(run, identity)
    used = net if record is None else network_to_use(record, net, use_given=use_given)
    if used is not None and used.disable_check:
        return CheckReport(())
    if used is not None and not supports(used.cni_version, "CHECK"):
        raise VersionError(
            f'network "{network}": configuration version "{used.cni_version}" does not support the CHECK command',
            version=used.cni_version,
            hint=f"CHECK exists since version {SINCE['CHECK']}",
        )
    if record is None or used is None:
        raise not_attached(identity, "there is no record of an ADD")
    path = path_to_use(run, record, rt.netns, use_given=use_given)
    _check_state(run, record, path, use_given=use_given)
    # A plugin compares the live state with this result (spec 1.1.0, section 2, CHECK).
    result = recorded_result(record, used.cni_version)
    rt = recorded_conf(record, rt.with_netns(path), use_given=use_given)
    chain = Chain(run, used, rt, run.find_all(used), record.is_own_netns)
    for index in range(len(used.plugins)):
        then = index + 1 if index + 1 < len(used.plugins) else None
        await chain.call(chain.invocation("CHECK", index, result.text), then=then)
    return CheckReport(tuple(map(attrgetter("type"), used.plugins)))


def _find_record(run: VerbRun, identity: Identity) -> Record | None:
    target = find_target(run, identity)
    if isinstance(target, Damaged):
        raise RecordError(
            f"{target.file.path}: the record cannot be used: {target.file.problem}",
            path=target.file.path,
            hint="detach the container (libcni del NETWORK NETNS), then attach it again",
        )
    return target.record if isinstance(target, Recorded) else None


def _check_state(run: VerbRun, record: Record, path: str, *, use_given: bool) -> None:
    """Raise NotAttachedError if CHECK cannot check a recorded attachment."""
    # With ``use_given`` the caller decides on the namespace, and the plugins compare the result with what is there. So
    # the record alone counts: whether an ADD of this boot has ended and no DEL has begun.
    state = record.state if use_given else run.sight.state_of(record, path)
    if not STATES[state].check:
        raise _error_of(run, record, path, state)


def _error_of(run: VerbRun, record: Record, path: str, state: State) -> NotAttachedError:
    problem = STATES[state].meaning
    if state == "renamed":
        present = run.sight.find(record, place_of(record), path, record.ifname, everywhere=True)
        problem = f"the interface {record.ifname} is now {present.found_as}" if present.found_as else problem
    error = not_attached(record.identity, problem, state)
    if is_interrupted_reload(record, state):
        error.suggest(Hint.about(error, "the reload was interrupted: reload the container again", "reload"))
    # The container lives, so do not advise to detach it.
    elif state == "lost-path":
        error.suggest(Hint("see how to restore the path", "doctor"))
    elif state == "renamed":
        error.suggest(Hint("rename the interface back, or move it back"))
    return error
