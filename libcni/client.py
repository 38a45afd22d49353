"""CNIConfig: every verb, blocking."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, TypeVar

from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.executor import Executor, ProcessExecutor
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment
from libcni.verbs import (
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
from libcni.verbs.client_base import DEFAULT, ClientBase, Job, Network, Timeout, alone
from libcni.verbs.course import Course
from libcni.verbs.node import Call, Need, Sleep

__all__ = ["CNIConfig"]

_T = TypeVar("_T")


class CNIConfig(ClientBase[Executor]):
    """Run the verbs of networks, blocking; safe to share between threads.

    Every list verb takes a NetworkConfigList, or the name of a network in ``conf_dir``. Every verb takes ``timeout``:
    seconds for all of it, the wait for locks included; None: no limit; not given: as the client was made with.

    Besides what each verb lists, a ``conf_dir`` that cannot be read is a ConfigError, and a name that breaks the
    specification's rules an InvalidIdentifierError: nothing was run then.
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
            PluginError: a plugin failed; what went wrong in the roll-back is in ``rollback_errors``.
            PluginTimeoutError: a PluginError: the plugin was stopped at the deadline.
            InvalidOutputError: a PluginError: it said success, and what it printed is no result.
            PluginNotFoundError: an executable is missing; nothing was run.
            AttachmentExistsError: the container has that interface already; nothing was run.
            LockTimeoutError: other verbs held the container or the network until the deadline; nothing was run.
            NetworkNotFoundError: there is no network of that name; nothing was run.
            InvalidIdentifierError: a name breaks the specification's rules; nothing was run.
            ConfigError: with ``strict``: no plugin takes some capability arguments; nothing was run.
            VersionError: with ``negotiate_version``: there is no version that all plugins support; nothing is attached.
            RecordError: the record cannot be written; either nothing was run, or all was rolled back.
            ValueError: ``on_existing`` is none of the three.
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

        A network's name will do even if its file has gone, as long as there is a record.

        Args:
            net: the network.
            rt: the attachment's parameters; what is None in them is taken as recorded.
            use_given: use the caller's configuration, arguments and capabilities instead of the recorded ones.
            retry: how often to try a plugin again that answers "try again later"; None: not at all.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            PluginError: a plugin found something wrong, or was stopped at the deadline; the chain stops there.
            NotAttachedError: there is no completed ADD; nothing was run.
            VersionError: the configuration's version has no CHECK; nothing was run.
            RecordError: the record cannot be read; nothing was run.
            PluginNotFoundError: an executable is missing; nothing was run.
            LockTimeoutError: other verbs held the container or the network until the deadline; nothing was run.
            InvalidIdentifierError: a name breaks the specification's rules; nothing was run.
        """
        return self._run(self._check(net, rt, use_given=use_given, retry=retry), timeout)

    def del_network_list(
        self, net: Network, rt: RuntimeConf, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a container from a network (spec 1.1.0, section 3, Deleting an attachment), with what its ADD used.

        A network's name will do even if its file has gone, as long as there is a record.

        Args:
            net: the network.
            rt: the attachment's parameters; what is None in them is taken as recorded.
            policy: where to depart from the specification's rule to stop at the first error; None: nowhere.
            timeout: seconds for the whole verb; None: no limit.

        Returns:
            What each plugin did, in the order of the calls. What was not attached is no error.

        Raises:
            PluginError: a plugin failed, or was stopped at the deadline; the chain stops there and the record stays.
            CNIErrorGroup: with ``policy.keep_going``: the errors of all plugins that failed; the record stays.
            PluginNotFoundError: an executable is missing; nothing was run.
            LockTimeoutError: other verbs held the container or the network until the deadline; nothing was run.
            NetworkNotFoundError: there is neither a configuration of that name nor a record; nothing was run.
            RecordError: a name was given, its file has gone, and the record has no usable configuration.
            InvalidIdentifierError: a name breaks the specification's rules; nothing was run.
        """
        return self._run(self._del(net, rt, policy), timeout)

    def del_attachment(
        self, attachment: Attachment, *, policy: DelPolicy | None = None, timeout: Timeout = DEFAULT
    ) -> DelReport:
        """Detach a recorded attachment by its record alone (spec 1.1.0, section 3, Deleting an attachment).

        Args:
            attachment: one of ``get_cached_attachments``.
            policy: where to depart from the specification's rule to stop at the first error; None: nowhere.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            RecordError: the record does not say which attachment it is, or has no usable configuration.
            CNIError: as ``del_network_list``.
        """
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

        Returns:
            What was stale, and what became of it.

        Raises:
            CNIErrorGroup: what went wrong; all that could be done has been done, and its ``report`` says what.
            LockTimeoutError: other verbs held the network until the deadline; nothing was run.
            RecordError: the records cannot be listed or locked; nothing was run.
            NetworkNotFoundError: there is no network of that name; nothing was run.
            InvalidIdentifierError: a name in ``valid`` breaks the specification's rules; nothing was run.
            TypeError: ``valid`` is None; nothing was run.
        """
        return self._run(self._gc(net, valid, dry_run=dry_run), timeout)

    def status_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask a network's plugins whether they can serve ADD (spec 1.1.0, section 2, STATUS), up to the first no.

        Args:
            net: the network.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            PluginError: a plugin cannot; its ``code`` is 50 (not available) or 51 (limited connectivity).
            PluginTimeoutError: a PluginError: it did not answer before the deadline.
            PluginNotFoundError: a plugin is missing, at whatever version.
            NetworkNotFoundError: there is no network of that name; nothing was run.
        """
        return self._run(self._status(net, stop=True), timeout)

    def network_status(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkStatus:
        """Ask all of a network's plugins whether they can serve ADD (spec 1.1.0, section 2, STATUS).

        A no is in the answer, not raised.

        Args:
            net: the network.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            NetworkNotFoundError: there is no network of that name; nothing was run.
        """
        return self._run(self._status(net, stop=False), timeout)

    def validate_network_list(self, net: Network, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Find a network's plugins and ask for their versions (spec 1.1.0, section 2, VERSION).

        What is wrong is in the answer, not raised.

        Args:
            net: the network.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            NetworkNotFoundError: there is no network of that name; nothing was run.
        """
        return self._run(self._validate(net), timeout)

    def validate_network(self, plugin: PluginConfig, *, timeout: Timeout = DEFAULT) -> ValidationReport:
        """Validate a single plugin, as ``validate_network_list`` does.

        Args:
            plugin: its configuration, with a name of its own.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            ConfigError: it has no name or a bad one, or a version that is not known; nothing was run.
        """
        return self.validate_network_list(NetworkConfigList.from_plugin(plugin), timeout=timeout)

    def negotiate_version(self, net: Network, *, timeout: Timeout = DEFAULT) -> NetworkConfigList:
        """Return the network at the highest version that all its plugins support (spec 1.1.0, section 2, VERSION).

        Only the versions that its configuration names are looked at.

        Args:
            net: the network.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            VersionError: there is none; the error names the plugins that stand in the way.
            PluginNotFoundError: a plugin is missing; nothing was run.
            PluginError: a plugin does not answer, or not before the deadline.
            NetworkNotFoundError: there is no network of that name; nothing was run.
        """
        return self._run(self._negotiate(net), timeout)

    def get_version_info(self, plugin: str, *, timeout: Timeout = DEFAULT) -> PluginInfo:
        """Ask a plugin type for the spec versions that it supports (spec 1.1.0, section 2, VERSION).

        Args:
            plugin: the plugin's type.
            timeout: seconds for the whole verb; None: no limit.

        Raises:
            PluginNotFoundError: it is missing.
            PluginError: it does not answer, or not before the deadline.
            InvalidIdentifierError: ``plugin`` is a path or empty.
        """
        return self._run(self._version(plugin), timeout)

    def add_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> Result:
        """Attach with a single plugin, by its own name and version (spec 1.1.0, section 3, Adding an attachment).

        Args:
            plugin: its configuration, with a name of its own.
            rt: the attachment's parameters.
            options: those of ``add_network_list``.

        Raises:
            ConfigError: the configuration has no name or a bad one, or a version that is not known; nothing was run.
            CNIError: as ``add_network_list``.
        """
        return self.add_network_list(alone(plugin), rt, **options)

    def check_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> None:
        """Check what was attached with ``add_network`` (spec 1.1.0, section 3, Checking an attachment).

        Args:
            plugin: its configuration, with a name of its own.
            rt: the attachment's parameters.
            options: those of ``check_network_list``.

        Raises:
            ConfigError: as ``add_network``.
            CNIError: as ``check_network_list``.
        """
        return self.check_network_list(alone(plugin), rt, **options)

    def del_network(self, plugin: PluginConfig, rt: RuntimeConf, **options: Any) -> DelReport:
        """Detach what was attached with ``add_network`` (spec 1.1.0, section 3, Deleting an attachment).

        Args:
            plugin: its configuration, with a name of its own.
            rt: the attachment's parameters.
            options: those of ``del_network_list``.

        Raises:
            ConfigError: as ``add_network``.
            CNIError: as ``del_network_list``.
        """
        return self.del_network_list(alone(plugin), rt, **options)

    def _run(self, job: Job[_T], timeout: Timeout) -> _T:
        with self._verb(timeout, job.operation) as verb:
            course = Course(verb.drive(job.flow))
            for need in course:
                with course:
                    course.answer = self._meet(need)
        return course.value

    def _meet(self, need: Need) -> Any:
        if isinstance(need, Call):
            return self._executor.execute(need.invocation, need.limits)
        return time.sleep(need.seconds) if isinstance(need, Sleep) else need.do()
