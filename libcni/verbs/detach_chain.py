"""Run DEL through an attachment's chain: each configuration in order, each plugin in reverse order."""

from __future__ import annotations

import logging
from functools import partial

from libcni._dataclass import replace
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, Hint, PluginError, PluginNotFoundError, PluginTimeoutError
from libcni.kernel.namespace import is_empty_file
from libcni.options import DelPolicy
from libcni.protocol.invocation import Invocation
from libcni.store.model import READY
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim
from libcni.verbs.configurations import configurations
from libcni.verbs.del_report import DelReport, PluginReport
from libcni.verbs.leftovers import Leftover, left_behind, still_there
from libcni.verbs.prev_result import PrevResult

logger: logging.Logger = logging.getLogger("libcni")

_NO_DEL = (
    "correct the cause and repeat the DEL; to use the network's current configuration, add {argument}; if no DEL can "
    "succeed, remove the record"
)


async def try_each_configuration(
    claim: Claim, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> DelReport:
    """Run DEL with each configuration in order, until one succeeds; raise the error of the first."""
    if claim.asks_others():
        await claim.run.read_others()
    return await _try_each_chain(_chains(claim, net, rt.with_netns(claim.prepare_del()), policy), claim, policy)


def _chains(claim: Claim, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy) -> list[Chain]:
    """Return the chains that DEL tries, one for each configuration, in order."""
    run, record = claim.run, claim.record
    chains: list[Chain] = []
    for tried in configurations(record, net, rt, run.configured, use_given=policy.use_given):
        conf = tried.rt
        # The mistake may be the path itself: plugins refuse a file that is not a namespace. It has no interface.
        # An empty file is what an unmounted namespace leaves.
        may_be_wrong = bool(conf.netns) and (tried.is_correction or is_empty_file(conf.netns or ""))
        if may_be_wrong and run.sight.is_no_namespace(conf.netns or ""):
            conf = conf.with_netns("")
        try:
            executables = run.find_all(tried.net, skip_missing=policy.skip_missing)
        except PluginNotFoundError as error:
            if tried.is_correction:
                continue
            text = "install the plugin, or skip it ({argument}); if you skip it, the resources that it created remain"
            error.suggest(Hint(text, argument="skip_missing"))
            raise
        chain = Chain(run, tried.net, conf, executables, record is not None and record.is_own_netns)
        if all(_calls(chain) != _calls(earlier) for earlier in chains):
            chains.append(chain)
    return chains


def _calls(chain: Chain) -> list[Invocation]:
    return [chain.invocation("DEL", index) for index in range(len(chain.executables))]


async def _try_each_chain(chains: list[Chain], claim: Claim, policy: DelPolicy) -> DelReport:
    """Run DEL of each chain in order, until one succeeds; raise the error of the first."""
    is_repeated = claim.record is not None and not claim.record.changes_state("detach")
    _begin_del(chains[0], claim)
    record = claim.record
    errors: list[CNIError] = []
    # After a reboot a plugin may fail at each DEL: its resources are gone. It must not stop the others.
    policy = replace(policy, keep_going=policy.keep_going or (record is not None and record.is_of_earlier_boot))
    for index, tried in enumerate(chains):
        try:
            report = await _try_chain(tried, claim, policy, sharers=len(chains) - index)
            return await _without_removed_leftovers(claim, report) if is_repeated or errors else report
        except (PluginError, CNIErrorGroup) as error:
            errors.append(error)
    first, *others = errors
    for other in others:
        if str(other) != str(first):
            first.add_note(f"with the current configuration or arguments: {other}")
    if record is not None:
        first.suggest(Hint.about(record, _NO_DEL, "forget", argument="use_given"))
    raise first


def _begin_del(chain: Chain, claim: Claim) -> None:
    """Record that a DEL begins. Its first plugin starts meanwhile."""
    run, record, last = chain.run, claim.record, len(chain.executables) - 1
    if record is None or not record.changes_state("detach"):
        return
    if record.state == READY and run.starts_ahead and chain.executables[last]:
        run.start_ahead(chain.invocation("DEL", last, ahead=True))
    # After one plugin's DEL the attachment is incomplete, even if it was ready.
    claim.record = run.records.mark_detaching(record)


async def _without_removed_leftovers(claim: Claim, report: DelReport) -> DelReport:
    """Return the report of a repeated DEL without leftovers that the DEL before has removed with the interface."""
    if claim.record is None or not report.left:
        return report
    return replace(report, left=await claim.run.on_disk(partial(still_there, claim.run, claim.record, report.left)))


async def _try_chain(chain: Chain, claim: Claim, policy: DelPolicy, *, sharers: int) -> DelReport:
    """Run DEL through the chain; raise the errors of its plugins, but not those that a reboot explains."""
    report, record = await _run_plugins(chain, claim, policy, sharers=sharers), claim.record
    errors = report.errors
    if record is not None and record.is_of_earlier_boot:
        for error in errors:
            logger.warning("%s: DEL goes on, because the attachment is of an earlier boot: %s", record.path, error)
        # Of all resources only the reservations of IPAM plugins survive a reboot: they are on disk.
        keeping = {plugin.type for plugin in chain.net.plugins if plugin.ipam_type}
        errors = [plugin.error for plugin in report.plugins if plugin.error and plugin.plugin in keeping]
    problem = f"DEL of network {chain.net.name}: {{}} of {len(report.plugins)} plugins failed"
    CNIErrorGroup.raise_any(problem, errors, report)
    return report


async def _run_plugins(chain: Chain, claim: Claim, policy: DelPolicy, *, sharers: int = 1) -> DelReport:
    """Run DEL through the chain in reverse order; raises at the first error unless ``policy.keep_going``.

    Args:
        chain: the plugins.
        claim: verified before each plugin, because the namespace or the interface can be replaced while a plugin runs.
        policy: see DelPolicy.
        sharers: how many tries share the remaining time, this try included.
    """
    results = PrevResult.of(claim, chain.net)
    reports: list[PluginReport] = []
    left: list[Leftover] = []
    if results.asks_others():
        await chain.run.read_others()
    for index in reversed(range(len(chain.net.plugins))):
        plugin = chain.net.plugins[index].type
        if not chain.executables[index]:
            logger.warning('DEL of network %s: plugin "%s" is missing and was skipped', chain.net.name, plugin)
            reports.append(PluginReport(plugin, "skipped"))
            continue
        try:
            text = results.text()
            if chain.rt is not None and chain.rt.netns:  # once it was empty, it stays empty
                chain = chain.with_netns(claim.prepare_del())
            left += left_behind(chain, index, claim)
            invocation = chain.invocation("DEL", index, text)
            then = index - 1 if index and chain.executables[index - 1] else None
            # With keep_going a plugin that hangs must not use up the time of those after it.
            parts = sharers * (index + 1 if policy.keep_going else 1)
            await chain.call(invocation, sharers=parts, then=then)
            reports.append(PluginReport(plugin, "done"))
        except (PluginError, PluginNotFoundError) as error:
            if not policy.keep_going:
                raise
            reports.append(PluginReport(plugin, "failed", error))
    return DelReport(tuple(reports), netns=(chain.rt.netns or "") if chain.rt else "", left=tuple(left))


def is_repeatable(error: CNIError) -> bool:
    """Return whether a second DEL may succeed: the plugin ended with an error, and did not hang."""
    if isinstance(error, CNIErrorGroup):  # with DelPolicy(keep_going=True)
        return all(isinstance(member, CNIError) and is_repeatable(member) for member in error.exceptions)
    return isinstance(error, PluginError) and not isinstance(error, PluginTimeoutError)


async def detach_chain_twice(chain: Chain, claim: Claim) -> DelReport:
    """Run DEL through the whole chain, and a second time if plugins fail, as ``detach_each`` does.

    Use it for a DEL that nobody repeats later: in a roll-back, and in a reload. If the container's masquerade chain was
    flushed, bridge removes everything and then fails.
    """
    policy = DelPolicy(keep_going=True)
    report = await _run_plugins(chain, claim, policy)
    if report.errors and all(map(is_repeatable, report.errors)) and not chain.run.is_interrupted:
        if claim.path and chain.run.sight.is_no_namespace(claim.path):
            # Plugins refuse a file that is no namespace. A later DEL gives them none either.
            claim = replace(claim, path="")
        report = await _run_plugins(chain, claim, policy)
    return report
