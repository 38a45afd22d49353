"""CNIConfig: every verb, blocking."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

from libcni.attachments import Attachment
from libcni.base import DEFAULT, ClientBase, Job, Network, Timeout, alone
from libcni.config import NetworkConfigList, PluginConfig
from libcni.course import Course
from libcni.drive import Call, Need, Sleep
from libcni.executor import Executor, ProcessExecutor
from libcni.flows import (
    DelPolicy,
    DelReport,
    GCReport,
    NetworkStatus,
    OnExisting,
    PluginInfo,
    RetryPolicy,
    ValidationReport,
    ValidAttachment,
)
from libcni.gate import Passage
from libcni.result import Result
from libcni.runtime_conf import RuntimeConf

__all__ = ["CNIConfig"]

_T = TypeVar("_T")


class CNIConfig(ClientBase[Executor]):
    """Run the verbs of networks, blocking; safe to share between threads.

    Every list verb takes a NetworkConfigList, or the name of a network in ``conf_dir``, and ``timeout`` in seconds.
    """

    def _default_executor(self) -> Executor:
        return ProcessExecutor()

    def add_network_list(  # noqa: PLR0913 - the options of the verb
        self,
        net: Network,
        rt: RuntimeConf,
        *,
        rollback: bool = True,
        on_existing: OnExisting = "refuse",
        strict: bool = False,
        negotiate_version: bool = False,
        retry: RetryPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Result:
        """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

        Args:
            net: the network.
            rt: the attachment's parameters.
            rollback: run DEL of the whole chain when the ADD fails.
            on_existing: what to do where this container already has this interface, on whatever network: ``refuse``;
                ``replace``: detach that one first; ``allow``: go on.
            strict: refuse capability arguments that no plugin takes, and results in another version than asked for.
            negotiate_version: ask the plugins, and use the highest version that all of them support.
            retry: how often to try a plugin again that answers "try again later"; None: not at all.
            timeout: seconds for the whole verb; None: no limit.

        Returns:
            The last plugin's result, in the network's spec version.

        Raises:
            PluginError: a plugin failed; PluginTimeoutError, InvalidOutputError are kinds of it. What went wrong in
                the roll-back is in ``rollback_errors``.
            PluginNotFoundError, AttachmentExistsError: nothing was run.
            LockTimeoutError, NetworkNotFoundError, InvalidIdentifierError: likewise.
            RecordError: the record cannot be written; either nothing was run, or all was rolled back.
        """
        options = {"rollback": rollback, "strict": strict, "negotiate_version": negotiate_version, "retry": retry}
        return self._run(self._add(net, rt, on_existing=on_existing, **options), timeout)

    def check_network_list(
        self,
        net: Network,
        rt: RuntimeConf,
        *,
        use_given: bool = False,
        retry: RetryPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Check an attachment (spec 1.1.0, section 3, Checking an attachment), with what its ADD used.

        ``use_given``: with the caller's configuration, arguments and capabilities instead. ``retry``: as for ADD.

        Raises:
            PluginError: a plugin found something wrong; the chain stops there.
            NotAttachedError: there is no completed ADD.
            VersionError: the configuration's version has no CHECK.
            RecordError, PluginNotFoundError, LockTimeoutError: nothing was run.
        """
        return self._run(self._check(net, rt, use_given=use_given, retry=retry), timeout)

    def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network (spec 1.1.0, section 3, Deleting an attachment), with what its ADD used.

        A network's name will do even if its file has gone, as long as there is a record.

        Raises:
            PluginError: a plugin failed; the chain stops there and the record stays.
            CNIErrorGroup: with ``policy.keep_going``: the errors of all plugins that failed.
            PluginNotFoundError, LockTimeoutError, NetworkNotFoundError, InvalidIdentifierError: nothing was run.
        """
        return self._run(self._del(net, rt, policy), timeout)

    def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment; its record is all that is needed. Raises as ``del_network_list`` does."""
        return self._run(self._del_attachment(attachment, policy), timeout)

    def gc_network_list(
        self, net: Network, valid: Iterable[ValidAttachment], *, dry_run: bool = False, timeout: Timeout = DEFAULT
    ) -> GCReport:
        """Detach what is recorded for a network and not ``valid``, and tell its plugins (spec 1.1.0, section 2, GC).

        Args:
            net: the network.
            valid: the attachments that stay: Attachment objects or (container ID, interface name) pairs; [] for none.
            dry_run: run nothing, only report.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            CNIErrorGroup: what went wrong; all that could be done has been done.
            TypeError: ``valid`` is None.
        """
        return self._run(self._gc(net, valid, dry_run=dry_run), timeout)

    def status_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask a network's plugins whether they can serve ADD (spec 1.1.0, section 2, STATUS), up to the first no.

        Raises:
            PluginError: a plugin cannot; its ``code`` is 50 (not available) or 51 (limited connectivity).
            PluginNotFoundError: a plugin is missing, at whatever version.
        """
        return self._run(self._status(net, stop=True), timeout)

    def network_status(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask all of a network's plugins whether they can serve ADD; a no is in the answer, not raised."""
        return self._run(self._status(net, stop=False), timeout)

    def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find a network's plugins and ask for their versions; what is wrong is in the answer, not raised."""
        return self._run(self._validate(net), timeout)

    def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin, as ``validate_network_list`` does."""
        return self.validate_network_list(NetworkConfigList.from_plugin(plugin), timeout=timeout)

    def negotiate_version(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkConfigList:
        """Return the network at the highest of its versions that all its plugins support.

        Raises:
            VersionError: there is none; the error names the plugins that stand in the way.
            PluginNotFoundError, PluginError: a plugin is missing, or does not answer.
        """
        return self._run(self._negotiate(net), timeout)

    def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for the spec versions that it supports (spec 1.1.0, section 2, VERSION).

        Raises:
            PluginNotFoundError, PluginError: it is missing, or does not answer.
        """
        return self._run(self._version(plugin), timeout)

    def add_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> Result:
        """Attach with a single plugin, by its own name and version; as ``add_network_list`` otherwise."""
        return self.add_network_list(alone(plugin), rt, **options)

    def check_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> None:
        """Check an attachment that was made with ``add_network``; as ``check_network_list`` otherwise."""
        return self.check_network_list(alone(plugin), rt, **options)

    def del_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> DelReport:
        """Detach what was attached with ``add_network``; as ``del_network_list`` otherwise."""
        return self.del_network_list(alone(plugin), rt, **options)

    def _run(self, job: Job[_T], timeout: Timeout) -> _T:
        with self._verb(timeout, job.operation) as verb, Passage() as passage:
            course = Course(verb.drive(job.flow))
            for need in course:
                passage.leave()
                with course:
                    course.answer = self._meet(need)
                passage.enter()
        return course.value

    def _meet(self, need: Need) -> Any:
        if isinstance(need, Call):
            return self._executor.execute(need.invocation, need.limits)
        return time.sleep(need.seconds) if isinstance(need, Sleep) else need.do()
