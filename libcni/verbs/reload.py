"""Reload: detach a container and attach it again in its namespace, with the recorded configuration and addresses.

It restores the rules of containers after a program has flushed the tables of iptables, such as a firewall's reload.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from libcni._dataclass import dataclass, field, replace
from libcni.config.host_local import is_in_ranges
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, Hint, NamespaceMismatchError, PluginError, RecordError, name_client
from libcni.kernel import rules
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, recorded_conf
from libcni.store.journal import Journal
from libcni.store.model import PENDING, STATES, Identity, Record, Unreadable, can_reload
from libcni.store.place import ABSENT, UNKNOWN, Place
from libcni.store.recorded_interface import addresses_of, last_result, place_of, reported_macs
from libcni.verbs.attempt import Attempt
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim, mismatch, replaced_namespace
from libcni.verbs.configurations import network_to_use
from libcni.verbs.delete import check_unchanged
from libcni.verbs.detach_chain import detach_chain_twice
from libcni.verbs.each_container import all_or_raise, checked_attachments, each_container
from libcni.verbs.settings import SideBySide
from libcni.verbs.target import Recorded, find_target, not_attached
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")

_AGAIN = "correct the cause, then reload the container again"
_MASQUERADING, _PORTMAP = {"bridge", "ptp"}, "portmap"

Outcomes = dict[Identity, Result | CNIError]
"""The new result of each attachment that was reloaded, or its error."""


async def reload(run: VerbRun, attachment: Attachment) -> Outcomes:
    """Detach an attachment and attach it again, together with the container's attachments that share its rules.

    The locks are held from the first check to the end. Each record is replaced by a pending one with the old result and
    the old interface, so an interrupted reload can be repeated. If an address is no longer free, the attachment gets
    another address: that is better than no address.

    Raises:
        NotAttachedError: there is no completed ADD, or its namespace or interface was replaced; nothing was run.
        RecordError: rules of another runtime carry the container's ID, or a record cannot be written; nothing was run.
    """
    found = await run.lock_all(
        attachment.network,
        attachment.container_id,
        lambda: _find(run, attachment),
        lambda found: [record.network for record in found.to_reload],
    )
    # This examines namespaces, may read all records, and lists the rules: an event loop must not wait for it.
    parts = await run.on_disk(lambda: _checked_parts(run, found))
    with ExitStack() as stack:
        for number, part in enumerate(parts):
            pending = part.record.for_reload(place_of(part.record).interface)
            try:
                journal = await run.begin(pending, part.record, "reload", take_back=True)
            except BaseException as error:
                # Nothing was run. Working attachments must not stay pending because the record of another failed.
                _restore(run, parts[:number], error)
                raise
            part.journal = stack.enter_context(journal)
        outcomes: Outcomes = {}
        for part in reversed(parts):
            await _try(part, part.detach, outcomes)
        for part in parts:
            if part.record.identity not in outcomes:
                await _try(part, part.attach, outcomes)
    return outcomes


def _restore(run: VerbRun, parts: Iterable[_Part], error: BaseException) -> None:
    """Restore the records of attachments from before the reload; a failure becomes a note of ``error``."""
    for part in parts:
        try:
            run.records.rewrite(part.record, part.record.event_of_rewrite)
        except RecordError as problem:
            error.add_note(f"when its record was restored: {problem}")


async def _try(part: _Part, work: Callable[[], Coroutine[Any, Any, Result | None]], outcomes: Outcomes) -> None:
    """Run ``work`` and store its outcome. After an error the other attachments go on, but not after an interruption."""
    try:
        result = await work()
    except CNIError as error:
        if part.run.is_interrupted:
            raise
        name_client(error, part.run.settings.client)  # the caller raises it later, outside this run
        outcomes[part.record.identity] = error
    else:
        if result is not None:
            outcomes[part.record.identity] = result


def own_result(outcomes: Outcomes, attachment: Attachment) -> Result:
    """Return the new result of an attachment; raise the errors of all attachments that were reloaded with it."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, CNIError)]
    if len(errors) == 1:
        raise errors[0]
    CNIErrorGroup.raise_any(f"reload of container {attachment.container_id}: {{}} failed", errors, None)
    result = outcomes[attachment.record.identity]
    assert isinstance(result, Result)
    return result


async def reload_each(
    attachments: Iterable[Attachment], reload_one: Callable[[Attachment], Awaitable[Outcomes]], side_by_side: SideBySide
) -> list[Result]:
    """Reload each attachment once, different containers in parallel; see ``CNIConfig.reload_attachments``.

    Raises:
        CNIErrorGroup: all errors; its ``report`` has the outcomes.
    """

    async def reload_container(targets: Sequence[Attachment]) -> list[Result | CNIError]:
        outcomes: Outcomes = {}
        for attachment in targets:
            if attachment.record.identity not in outcomes:  # otherwise it was reloaded with an earlier attachment
                try:
                    outcomes |= await reload_one(attachment)
                except CNIError as error:
                    outcomes[attachment.record.identity] = error
        return [outcomes[attachment.record.identity] for attachment in targets]

    outcomes = await each_container(checked_attachments(attachments), reload_container, side_by_side)
    return all_or_raise("reloaded", outcomes)


# Find the attachments to reload.


class _Found(NamedTuple):
    """The records of the attachments to reload, and all readable records of the container."""

    to_reload: list[Record]
    of_container: list[Record]


def _find(run: VerbRun, attachment: Attachment) -> _Found:
    """Find the attachment and all that share rules with it."""
    identity = attachment.record.identity
    target = find_target(run, identity)
    if not isinstance(target, Recorded):
        raise not_attached(identity, "this attachment has no usable record")
    record = target.record
    check_unchanged(record, attachment.record)
    records = [other for other in run.records.records(record.container_id) if not isinstance(other, Unreadable)]
    others = [other for other in records if other.identity != identity]
    _refuse_shared_interface(record, others)
    # Repeat until nothing is added: the second attachment may share rules with a third.
    found = [record]
    while further := [other for other in others if other not in found and _is_further(run, found, other)]:
        found += further
    return _Found(found, records)


def _refuse_shared_interface(record: Record, others: Iterable[Record]) -> None:
    for path in [other.path for other in others if other.ifname == record.ifname]:
        problem = f"{path}: this record names the same interface, which a plugin of the other network may have created"
        raise RecordError(
            problem, path=path, hint="reload the attachment of that network, with the runtime that owns it"
        )


def _is_further(run: VerbRun, found: Iterable[Record], other: Record) -> bool:
    """Return whether another attachment shares rules with one that is reloaded, and can be reloaded too."""
    return can_reload(other, other.state) and any(_share_rules(run, record, other) for record in found)


def _share_rules(run: VerbRun, record: Record, other: Record) -> bool:
    """Return whether the DEL of one attachment can remove rules of another attachment of the same container.

    bridge, ptp and portmap use one iptables chain for all interfaces of a container on a network, and portmap marks its
    nftables rules with the container's ID alone.
    """
    if record.network == other.network:
        return True
    nets = [network_to_use(one, load=run.configured) for one in (record, other)]
    return all(_PORTMAP in [plugin.type for plugin in net.plugins] for net in nets)


def _checked_parts(run: VerbRun, found: _Found) -> list[_Part]:
    """Return the attachments to reload in the order of their ADDs, after all checks. Changes nothing on the node."""
    parts = [_part(run, record) for record in found.to_reload]
    _refuse_rules_of_others(run, parts, found.of_container)
    return sorted(parts, key=lambda part: (part.record.created or 0.0, part.record.ifname))


def _part(run: VerbRun, record: Record) -> _Part:
    """Return an attachment to reload, after all checks that can be made before it is detached."""
    state = run.sight.state_of(record)
    if not record.netns:
        raise not_attached(
            record.identity,
            "the container was attached without a namespace, so reload has no namespace to attach it in",
            state,
        )
    if not can_reload(record, state) and state != "renamed":  # the claim names its present place
        if STATES[state].reload:
            state = PENDING if record.last_result is None else "gone"
        raise not_attached(record.identity, STATES[state].meaning, state)
    place = run.sight.namespace(record.netns)
    if not place.exists:
        raise not_attached(record.identity, STATES["gone"].meaning, "gone")
    claim = Claim.of(run, record, record.netns)
    if claim.path and not claim.may_remove():
        raise not_attached(record.identity, "the interface or the namespace was replaced", "lost")
    net = network_to_use(record, load=run.configured)
    chain = Chain(run, net, recorded_conf(record), run.find_all(net), record.is_own_netns)
    for ipam_type in filter(None, (plugin.ipam_type for plugin in net.plugins)):
        run.find(ipam_type)
    return _Part(run, record, chain, claim, place)


def _refuse_rules_of_others(run: VerbRun, parts: list[_Part], records: Iterable[Record]) -> None:
    """Raise RecordError if rules of another runtime carry the container's ID: the plugins' DEL would remove them.

    Such rules have addresses that no record of this container has.
    """
    container_id = parts[0].record.container_id
    own = {address for record in records for address in addresses_of(record)}
    chains = {
        chain_of(part.record.network, container_id)
        for part in parts
        if part.types & (_MASQUERADING | {_PORTMAP})
        for chain_of in (rules.masquerade_chain, rules.ports_chain)
    }
    if not chains:
        return
    for program in rules.PROGRAMS:
        marked = _container_rules(run, program, container_id, chains)
        strangers = {address for rule in marked for address in rules.addresses_of(rule)} - own
        if strangers:
            raise RecordError(
                f"container {container_id}: {program} has rules with this ID for {', '.join(sorted(strangers))}, an "
                "address that no record of the container has; the rules may belong to a container of another runtime "
                "with this ID, and the reload would remove them",
                path=parts[0].record.path,
                hint="if no container has this address any longer, remove these rules by hand",
            )


def _container_rules(run: VerbRun, program: str, container_id: str, chains: set[str]) -> list[rules.Rule]:
    """Return a program's rules that the DEL removes: those of the container's chains, for nft those with its ID."""
    words = {container_id} if program == "nft" else chains
    try:
        tables = rules.saved_rules(program, run.settings.environment(), about=words)
    except FileNotFoundError:  # without the program, the plugins have no rules
        return []
    except OSError as error:
        logger.warning("cannot list the rules of %s: %s", program, error)
        return []
    if program == "nft":
        return [rule for _, _, rule in rules.port_rules(tables, container_id)]
    table = tables.get("nat", rules.Table())
    return [rule for chain in chains for rule in (*table.leading_to(chain), *table.chains.get(chain, ()))]


@dataclass(slots=True)
class _Part:
    """An attachment that is reloaded.

    Attributes:
        run: runs the plugins.
        record: its record before the reload.
        chain: the plugins, with the recorded configuration and arguments.
        claim: its claim to the interface, for the DEL.
        place: its namespace before the reload.
        journal: its record during the reload.
    """

    run: VerbRun
    record: Record
    chain: Chain
    claim: Claim
    place: Place
    journal: Journal = field(init=False)

    @property
    def types(self) -> set[str]:
        """The types of the plugins."""
        return {plugin.type for plugin in self.chain.net.plugins}

    async def detach(self) -> None:
        """Run DEL through the chain, twice at most. Ignore errors if the interface is gone."""
        report = await detach_chain_twice(self.chain, self.claim)
        if report.errors and self.run.sight.look(self.record.netns, self.record.ifname).interface is not ABSENT:
            for error in report.errors:
                error.suggest(Hint.about(self.record, _AGAIN, "reload"))
            CNIErrorGroup.raise_any(f"DEL of network {self.record.network}: {{}} failed", report.errors, report)
        for error in report.errors:
            logger.warning("%s: DEL failed, but removed the interface; reload goes on: %s", self.record.path, error)
        # From here on the new ADD creates the interface of this name.
        self.journal.write("step", interface=UNKNOWN)

    async def attach(self) -> Result:
        """Run ADD with the addresses that the attachment had; if that fails, with any addresses."""
        self._check_place()
        again, first = self._with_same_address(), ""
        try:
            try:
                return await self._attempt(again)
            except PluginError as error:
                if self.run.is_interrupted or again == self.chain.rt:
                    raise
                first = str(error)
            logger.warning("%s: ADD with the same address failed; trying with any address: %s", self.record.path, first)
            return await self._attempt(self.chain.rt)
        except CNIError as error:
            if first:
                error.add_note(f"before that, the ADD with the same addresses failed: {first}")
            error.suggest(Hint.about(self.record, _AGAIN, "reload"))
            raise

    def _check_place(self) -> None:
        """Raise the error if the namespace was replaced, or an interface of the name appeared, while the DEL ran.

        The attachment is detached then, so its record is removed.
        """
        claim = self._claim_of_add()
        obstacle = claim.obstacle(claim.look())
        if not obstacle:
            return
        error = replaced_namespace(self.record, "reload")
        if obstacle == "interface":
            problem = f"an interface {self.record.ifname} appeared during the reload; the attachment is detached"
            error = mismatch(
                self.record, problem, self.record.netns, "remove the interface, then attach the container again"
            )
        self.run.records.forget(self.journal.record)
        raise error

    def _claim_of_add(self) -> Claim:
        return Claim.of_add(self.run, self.record, self.place)

    async def _attempt(self, rt: RuntimeConf | None) -> Result:
        """Run ADD once. If it fails, undo it, and leave the record with the old result."""
        chain = Chain(self.run, self.chain.net, rt, self.chain.executables, self.chain.is_own_netns)
        attempt = Attempt(chain, self.journal, self._claim_of_add())
        try:
            return await attempt.run()
        except CNIError as error:
            if not self.run.is_interrupted:
                attempt.learn_after_failure()
                await self.run.discard_prepared()
                problems = await attempt.undo()
                for problem in problems:
                    error.add_note(f"when it was rolled back: {problem}")
                # The next reload must request the addresses that the attachment had, not those of the failed ADD.
                self.journal.write("step", interface=UNKNOWN, partial=self.record.last_result)
                if isinstance(error, NamespaceMismatchError) and not problems:
                    self.run.records.forget(self.journal.record)
            raise

    def _with_same_address(self) -> RuntimeConf | None:
        """Return the parameters of an ADD that requests the same addresses. They are not recorded.

        They use ``args.cni`` (CONVENTIONS.md), which host-local reads. ``static`` has its addresses in its
        configuration or in the recorded arguments. With ``args.cni.ips`` it would drop the gateway.
        """
        rt, result = self.chain.rt, last_result(self.record)
        if rt is None or result is None:
            return rt
        wanted_addresses: dict[str, Any] = {}
        if ips := [address for address in addresses_of(self.record) if is_in_ranges(self.chain.net, address)]:
            wanted_addresses["ips"] = ips
        if macs := list(filter(None, reported_macs(result, rt.ifname))):
            wanted_addresses["mac"] = macs[0]  # neighbours have this address in their ARP caches
        args = dict(rt.network_args or {})
        cni = args.get("cni")
        args["cni"] = {**(cni if isinstance(cni, Mapping) else {}), **wanted_addresses}
        return replace(rt, network_args=args)
