"""CNIConfig: every verb, blocking."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

import libcni.kernel.system as system
from libcni.config.network import PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.executor.baton import Waiting
from libcni.executor.cancel import check_cancelled, is_in_scope, unscoped, waking
from libcni.executor.interface import CallOptions, Executor
from libcni.executor.process import ProcessExecutor, run_holding, run_to_end
from libcni.observe.observer import Operation
from libcni.options import DEFAULT, AddOptions, DelPolicy, GCOptions, Network, Timeout, ValidAttachment, check_options
from libcni.protocol.answer import PluginInfo
from libcni.protocol.invocation import Invocation, Outcome
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.verbs.add import add
from libcni.verbs.client_base import ClientBase, attachment_operation, name_and_config, operation, single
from libcni.verbs.del_report import DelReport
from libcni.verbs.delete import delete
from libcni.verbs.verb_run import VerbRun

# Other verbs than ADD and DEL are loaded with their first call: a hook or a command starts often. ADD and DEL are not,
# because a finalizer may call them while the interpreter shuts down, when nothing can be imported any more.
if TYPE_CHECKING:
    from libcni.verbs.check import CheckReport
    from libcni.verbs.forget import ForgetReport
    from libcni.verbs.gc import GCReport
    from libcni.verbs.reload import Outcomes
    from libcni.verbs.status import NetworkStatus
    from libcni.verbs.version import ValidationReport

__all__ = ["CNIConfig"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class CNIConfig(ClientBase[Executor]):
    """A client that runs the CNI verbs, blocking; safe to share between threads.

    ``net`` is a NetworkConfigList, or the name of a network in ``conf_dir``; DEL, CHECK and GC need no file if there is
    a record. ``rt`` has the attachment's parameters; DEL and CHECK read those that are None from the record.
    ``attachment`` comes from ``get_cached_attachments``. ``timeout``: seconds for the whole verb, the wait for locks
    included; for several attachments, seconds for each one. None means no limit; the default is the client's timeout.
    ``policy``: how a DEL may differ from the specification; None: not at all.

    At most ``max_verbs`` verbs run at once. For each container one verb runs at a time, in the order of their calls.

    Each verb may raise these errors before it runs a plugin; its own docstring lists the others:

    - LockTimeoutError: until the deadline, other verbs held a lock that the verb needs, or too many verbs ran.
    - NetworkNotFoundError: the network has no file; for DEL, no record either.
    - PluginNotFoundError: an executable is missing.
    - InvalidIdentifierError: a name breaks the specification's rules.
    - ConfigError: ``conf_dir`` cannot be read, or the configuration cannot be used.
    - TypeError, ValueError: an argument is of a wrong type, or an option has an unknown value.
    - RecordError: the record cannot be read, names no attachment, has no usable configuration, or was rewritten after
      the attachment was listed.
    - NamespaceMismatchError, of DEL and CHECK: ``rt`` names another namespace than the recorded one.
    - NotAttachedError, of CHECK and reload: there is no completed ADD, or its namespace no longer exists.

    Examples:
        >>> cni = CNIConfig("/opt/cni/bin", "cache", executor=executor)  # without executor it runs the plugins
        >>> cni.add_network_list(net, rt).ips[0].address
        '10.1.0.5/16'
    """

    def _default_executor(self) -> Executor:
        return ProcessExecutor()

    def add_network_list(
        self, net: Network, rt: RuntimeConf, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> Result:
        """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

        The options are ``rollback``, ``on_existing``, ``strict``, ``allow_own_netns`` and ``on_cancel``, as
        ``libcni.options.AddOptions`` describes them.

        Returns:
            The last plugin's result, in the network's spec version, with warnings of this ADD in ``notes``.

        Raises:
            PluginError: a plugin failed; the errors of the roll-back are in ``rollback_errors``. After a known
                temporary fault, the ADD was repeated first; see the client's ``retries``.
            InvalidOutputError: a kind of PluginError; the plugin exited with 0, but its stdout is not a result.
            AttachmentExistsError: the container has that interface already, or another container publishes the host
                port; with ``strict``, also if a program or a firewall rule uses the port. Nothing was run.
            InterfaceExistsError: a kind of AttachmentExistsError; the namespace has that interface, and no record says
                that this library created it; nothing was run. ADD does not check this for ``lo``, with
                ``on_existing="allow"``, or if the program has no privilege to enter the namespace.
            NamespaceMismatchError: the namespace at the path was replaced while the ADD ran; the ADD was rolled back.
                Or the container is attached in another namespace that still exists; nothing was run.
            ConfigError: the namespace is this program's own; the file at its path is no namespace; the environment is
                too large to start a plugin; an argument is too large for a record; or, with ``strict``, no plugin
                declares a capability argument. Nothing was run.
            RecordError: the record cannot be written. Either nothing was run, or the ADD was rolled back.
        """
        # A name is resolved before the run exists, so a missing network takes no lock and writes no record.
        check_options("add_network_list", options, AddOptions)
        named = self._named(net)
        return self._run(operation("ADD", named.name, rt), timeout, add, named, rt, **options)

    def check_network_list(
        self, net: Network, rt: RuntimeConf, *, use_given: bool = False, timeout: Timeout = DEFAULT
    ) -> CheckReport:
        """Check an attachment with the recorded configuration (spec 1.1.0, section 3, Checking an attachment).

        ``use_given``: use the caller's configuration, namespace, arguments and capabilities, not the recorded ones.

        Returns:
            The plugins that were asked: none if the configuration has ``disableCheck``.

        Raises:
            PluginError: a plugin reported a problem, or was stopped at the deadline. The plugins after it were not
                called.
            VersionError: the configuration's version has no CHECK; nothing was run.
        """
        from libcni.verbs.check import check

        name, config = name_and_config(net)
        return self._run(operation("CHECK", name, rt), timeout, check, name, config, rt, use_given=use_given)

    def check_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> CheckReport:
        """Check a recorded attachment (spec 1.1.0, section 3, Checking an attachment)."""
        from libcni.verbs.check import check

        running, rt = self._operation_of("CHECK", attachment)
        return self._run(running, timeout, check, attachment.network, None, rt)

    def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container with the recorded configuration (spec 1.1.0, section 3, Deleting an attachment).

        Returns:
            A report for each plugin, in the order of the calls. DEL succeeds if the container was not attached.

        Raises:
            PluginError: a plugin failed, or was stopped at the deadline. The other plugins were not called, and the
                record stays.
            CNIErrorGroup: with ``policy.keep_going``: the errors of all plugins that failed; the record stays.
        """
        name, config = name_and_config(net)
        return self._run(operation("DEL", name, rt), timeout, delete, name, config, rt, policy)

    def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach an attachment as ``del_network_list`` does, using only its record.

        If the record no longer exists, nothing is run, and the report's ``record`` is ``missing``.
        """
        # Without a namespace DEL takes the recorded path, and checks that it still leads to the recorded namespace.
        running, rt = self._operation_of("DEL", attachment)
        network, listed = attachment.network, attachment.record
        return self._run(running, timeout, delete, network, None, rt, policy, listed=listed)

    def del_attachments(
        self, attachments: Iterable[Attachment], *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> list[DelReport]:
        """Detach recorded attachments, go on after errors, and return the reports; see ``del_attachment``.

        The attachments of one container are detached in order, different containers in parallel, in threads. A DEL
        that failed in a plugin is repeated once after the container's other DELs: some plugins create rules that two
        interfaces share, and cannot remove them with the first interface.

        Raises:
            CNIErrorGroup: all errors of ``del_attachment``; ``report`` is the list of outcomes in the order of the
                attachments, each a DelReport or a CNIError. If a repeated DEL fails too, its error has the error of
                the first DEL in its notes.
        """
        from libcni.verbs.each_container import del_attachments

        async def delete_one(attachment: Attachment) -> DelReport:
            return self.del_attachment(attachment, policy=policy, timeout=timeout)

        return run_to_end(del_attachments(attachments, delete_one, self._state.side_by_side))

    def gc_network_list(
        self,
        net: Network,
        valid: Iterable[ValidAttachment],
        *,
        timeout: Timeout = DEFAULT,
        **options: Unpack[GCOptions],
    ) -> GCReport:
        """Detach a network's attachments that are not ``valid``, and call its plugins (spec 1.1.0, section 2, GC).

        A failed DEL is repeated as in ``del_attachments``.

        ``valid``: the attachments to keep: Attachment objects or (container ID, interface name) pairs; [] for none. An
        iterator without elements is refused: it may have been read before.

        The options are ``dry_run``, ``policy`` and ``include_go``, described in ``libcni.options.GCOptions``.

        Returns:
            The stale attachments, and which of them were detached.

        Raises:
            CNIErrorGroup: all errors. GC goes on after an error; ``report`` is its report.
            RecordError: the records cannot be listed or locked; nothing was run.
        """
        from libcni.verbs.gc import gc

        check_options("gc_network_list", options, GCOptions)
        name, config = name_and_config(net)
        # GC has no container: it locks the whole network, and each container only while it detaches it.
        return self._run(Operation("GC", name), timeout, gc, name, config, valid, **options)

    def status_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask a network's plugins in order whether they can serve ADD (spec 1.1.0, section 2, STATUS).

        Raises:
            PluginError: a plugin cannot serve ADD; its ``code`` is 50 (not available) or 51 (limited connectivity). The
                plugins after it are not asked.
            PluginTimeoutError: a kind of PluginError; the plugin did not answer before the deadline.
        """
        from libcni.verbs.status import status_or_raise

        named = self._named(net)
        return self._run(Operation("STATUS", named.name), timeout, status_or_raise, named)

    def network_status(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask all of a network's plugins whether they can serve ADD (spec 1.1.0, section 2, STATUS).

        The errors of plugins are in the returned object, not raised.
        """
        from libcni.verbs.status import status

        named = self._named(net)
        return self._run(Operation("STATUS", named.name), timeout, status, named)

    def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find a network's plugins and ask for their versions (spec 1.1.0, section 2, VERSION).

        Problems are in the returned report, not raised.
        """
        from libcni.verbs.version import validate

        named = self._named(net)
        return self._run(Operation("VERSION", named.name), timeout, validate, named)

    def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin, like ``validate_network_list``; its configuration needs the network's ``name``."""
        return self.validate_network_list(single(plugin), timeout=timeout)

    def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for the spec versions that it supports (spec 1.1.0, section 2, VERSION).

        Raises:
            PluginError: the plugin does not answer before the deadline, or fails.
        """
        from libcni.verbs.version import version

        # A plugin's version does not depend on a network, so the operation names none.
        return self._run(Operation("VERSION"), timeout, version, plugin)

    def add_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> Result:
        """Attach with a single plugin, like ``add_network_list``; its configuration needs the network's ``name``."""
        return self.add_network_list(single(plugin), rt, timeout=timeout, **options)

    def check_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, use_given: bool = False, timeout: Timeout = DEFAULT
    ) -> CheckReport:
        """Check an attachment of ``add_network``, as ``check_network_list`` does."""
        return self.check_network_list(single(plugin), rt, use_given=use_given, timeout=timeout)

    def del_network(
        self, plugin: PluginConfig, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach an attachment of ``add_network``, as ``del_network_list`` does."""
        return self.del_network_list(single(plugin), rt, policy=policy, timeout=timeout)

    def forget_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> ForgetReport:
        """Remove an attachment's record without running a plugin; return the plugins whose effects may still exist.

        Use it if no DEL of the attachment can succeed. Interfaces, addresses and rules that its plugins created stay.

        Raises:
            RecordError: the record cannot be removed.
        """
        from libcni.verbs.forget import forget

        # Through a run, which locks: the record of a container that another verb works on must not be removed.
        return self._run(attachment_operation("FORGET", attachment), timeout, forget, attachment)

    def reload_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Result:
        """Detach a recorded container and attach it again in the same namespace; its network is down meanwhile.

        This restores removed firewall rules, interfaces and routes. It uses the recorded configuration and arguments.
        Addresses of host-local, of the recorded arguments and of ``static`` stay the same; other IPAM plugins may give
        different addresses. The attachment keeps its owner. Other attachments of the container that share rules with it
        are reloaded with it.

        An ADD that fails after the DEL leaves the container cut off. Before the DEL, the reload looks only for missing
        plugins. Ask ``libcni.diagnosis.obstacles_to_reload`` for other reasons before it, as ``libcni reload`` does.

        ``attachment`` must be in the state ``ready`` or ``lost``, or ``pending`` or ``detaching`` after an interrupted
        reload.

        Returns:
            The new result. Its addresses differ if the container could not get the earlier ones again.

        Raises:
            RecordError: the record cannot be written, or rules of another runtime carry the container's ID; nothing
                was run.
            NamespaceMismatchError: another namespace or interface replaced the container's while the plugins detached
                it; the replacement is not touched, and the attachment is detached.
            PluginError: a plugin failed. The record stays, so that a further reload can restore the attachment.
            CNIErrorGroup: several attachments that share rules failed.
        """
        from libcni.verbs.reload import own_result, reload

        outcomes = self._run(attachment_operation("RELOAD", attachment), timeout, reload, attachment)
        return own_result(outcomes, attachment)

    def reload_attachments(self, attachments: Iterable[Attachment], *, timeout: Timeout = DEFAULT) -> list[Result]:
        """Reload recorded attachments, go on after errors, and return the results; see ``reload_attachment``.

        The attachments of different containers are reloaded in parallel, in threads. An attachment that shares
        rules with an earlier one was reloaded with it, and is not reloaded again. Ask
        ``libcni.diagnosis.obstacles_to_reload`` before.

        Raises:
            CNIErrorGroup: all errors of ``reload_attachment``; ``report`` is the list of outcomes in the order of
                the attachments, each a Result or a CNIError.
        """
        from libcni.verbs.reload import reload, reload_each

        async def reload_one(attachment: Attachment) -> Outcomes:
            return self._run(attachment_operation("RELOAD", attachment), timeout, reload, attachment)

        return run_to_end(reload_each(attachments, reload_one, self._state.side_by_side))

    def take_over_attachment(self, attachment: Attachment, *, timeout: Timeout = DEFAULT) -> Attachment:
        """Make this client the owner of an attachment of another owner or of Go libcni; return it with the new owner.

        Raises:
            RecordError: the record no longer exists, belongs to another ADD than the listed one, or cannot be written.
        """
        from libcni.verbs.take_over import take_over

        return self._run(attachment_operation("TAKE-OVER", attachment), timeout, take_over, attachment)

    def _run(
        self,
        operation: Operation,
        timeout: Timeout,
        verb: Callable[Concatenate[VerbRun, _P], Coroutine[Any, Any, _T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        # Every method of the run blocks, so a coroutine has nothing to wait for and ends at the first step.
        coroutine = self._verb_run(operation, timeout).complete(verb, *args, **kwargs)
        # Another executor is foreign code. It may wait for a verb of another thread.
        return run_holding(coroutine) if type(self._executor) is ProcessExecutor else run_to_end(coroutine)

    @staticmethod
    async def _side_by_side(most: int, works: Sequence[Callable[[], Coroutine[Any, Any, _T]]]) -> list[_T]:
        """Run coroutines that never suspend in at most ``most`` threads, and return their values in order."""
        if min(most, len(works)) < 2:  # noqa: PLR2004 - a single coroutine needs no thread
            return [await work() for work in works]
        with Waiting() as had_baton, system.thread_pool(min(most, len(works))) as pool:
            run = run_holding if had_baton else run_to_end
            # Each in a copy of the context, so that an observer finds the current trace.
            futures = [pool.submit(copy_context().run, lambda work=work: run(work())) for work in works]
            try:
                return [future.result() for future in futures]
            finally:
                # Even after Ctrl-C: the running coroutines end, and the others do not begin.
                pool.shutdown(wait=False, cancel_futures=True)

    def _verb_run(self, operation: Operation, timeout: Timeout, part_of: VerbRun | None = None) -> VerbRun:
        return _BlockingRun(self._state, self._executor, self._seconds(timeout), operation, part_of)


class _BlockingRun(VerbRun):
    """A run whose methods block, so that its coroutines never suspend."""

    async def wait_for_turn(self) -> None:
        if self._turn is not None and not self._turns.enter(self._turn):
            has_come = system.event()
            self._turns.call_when_it_comes(self._turn, has_come.set)
            with waking(has_come.set), Waiting():
                is_in_time = has_come.wait(self.seconds_left())
            if not is_in_time:
                raise self._turns.timeout(self._turn, self._seconds or 0.0)

    async def sleep(self, seconds: float) -> None:
        if not is_in_scope():
            with Waiting():
                system.sleep(seconds)
            return
        is_cancelled = system.event()
        with waking(is_cancelled.set), Waiting():
            is_cancelled.wait(seconds)

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        check_cancelled()
        return await super().run_plugin(invocation, options)

    async def shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        with unscoped():
            return await work

    async def on_disk(self, work: Callable[[], _T], *, is_short: bool = False) -> _T:
        if is_short:
            return work()
        with Waiting():
            return work()

    # Foreign code may wait for a verb of another thread.

    def _notify(self, method: Callable[..., _T], *args: object) -> _T | None:
        with Waiting():
            return super()._notify(method, *args)

    def _forward_stderr(self, invocation: Invocation, text: str) -> None:
        with Waiting():
            super()._forward_stderr(invocation, text)
