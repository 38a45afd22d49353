"""CHECK: only between a successful ADD and its DEL, and always with the result of that ADD."""

from __future__ import annotations

from collections.abc import Sequence

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import SINCE, supports
from libcni.errors import NotAttachedError, RecordError, VersionError
from libcni.store.attachments import network_to_use, recorded_conf, recorded_result
from libcni.store.locks import LockRequest
from libcni.store.record import CORRUPT, LEGACY, Record
from libcni.verbs.chain import Chain, RetryPolicy
from libcni.verbs.delete import lock_if_possible
from libcni.verbs.steps import Find, Flow, Lookup

__all__ = ["check_flow"]


def check_flow(  # noqa: PLR0913 - the options of the verb
    network: str,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    path: Sequence[str],
    *,
    use_given: bool = False,
    retry: RetryPolicy | None = None,
) -> Flow[None]:
    """Check an attachment (spec 1.1.0, section 3, Checking an attachment); the arguments are those of ``del_flow``."""
    check_network_name(network)
    rt.check()
    if net is not None and net.disable_check:
        return
    yield from lock_if_possible(LockRequest((network,), rt.container_id))
    record: Record | None = yield Lookup((network, rt.container_id, rt.ifname))
    if record is None and net is None:
        raise _not_attached(network, rt, "there is no record of an ADD")
    used = network_to_use(_readable(record), net, use_given=use_given)
    if used.disable_check:
        return
    if not supports(used.cni_version, "CHECK"):
        raise VersionError(
            f'network "{network}": configuration version "{used.cni_version}" does not support the CHECK command',
            version=used.cni_version,
            hint=f"CHECK came with {SINCE['CHECK']}",
        )
    if record is None or record.result is None:
        state = "its ADD has not ended" if record is not None else "there is no record of an ADD"
        raise _not_attached(network, rt, state)
    result = recorded_result(record, used.cni_version)
    if record.state != LEGACY:
        rt = recorded_conf(record, rt, use_given=use_given)
    executables = yield Find(tuple(plugin.type for plugin in used.plugins))
    yield from Chain(used, rt, executables, path, retry).check(result.text)


def _readable(record: Record | None) -> Record | None:
    if record is not None and record.state == CORRUPT:
        raise RecordError(
            f"{record.path}: {record.problem}", path=record.path, hint="detach the container and attach it again"
        )
    return record


def _not_attached(network: str, rt: RuntimeConf, state: str) -> NotAttachedError:
    return NotAttachedError(
        f"container {rt.container_id}, interface {rt.ifname}, network {network}: {state}",
        container_id=rt.container_id,
        ifname=rt.ifname,
        network=network,
        hint="a container that was never attached cannot be checked",
    )
