"""The base of CNIConfig and AsyncCNIConfig: their settings, and the methods that only read the disk."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from libcni._dataclass import replace
from libcni._defaults import CACHE_DIR, CLEANUP_TIMEOUT, CONF_DIR, MAX_VERBS, TIMEOUT
from libcni.config.directory import load_network_conf, read_config_directory
from libcni.config.identifiers import check_owner, check_plugin_type, validate_container_id, validate_network_name
from libcni.config.network import NetworkConfigList, PluginConfig
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.timeouts import check_timeout
from libcni.errors import CNIError, RecordError, name_client, short_repr
from libcni.executor.interface import AsyncExecutor, Executor
from libcni.observe.observer import Observer, Operation, OperationName
from libcni.options import DEFAULT, Network, StartAhead, Timeout, check_type, check_word
from libcni.protocol.result import Result
from libcni.store.attachments import (
    Attachment,
    attachments_of,
    iter_attachments_of,
    recorded_conf,
    recorded_result,
    unnamed_error,
)
from libcni.store.model import Record, Unreadable
from libcni.store.records import RecordStore
from libcni.verbs.configurations import network_to_use
from libcni.verbs.settings import ClientState, Env, Settings, StderrSink
from libcni.verbs.turns import Turns, verbs_at_once
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")


AnswerT = TypeVar("AnswerT")
KindT = TypeVar("KindT")

_REFERENCE = re.compile(r"; see ``\w+\.\w+``(?: \([^)]*\))?\.\s*(.*)", re.DOTALL)
ExecutorT = TypeVar("ExecutorT", bound=Executor | AsyncExecutor)


class ClientBase(Generic[ExecutorT]):
    """The settings of a client, and the methods that only read the disk."""

    _is_async: ClassVar[bool] = False

    def __init__(  # noqa: PLR0913 - the settings of a client
        self,
        path: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
        cache_dir: str | os.PathLike[str] = CACHE_DIR,
        *,
        conf_dir: str | os.PathLike[str] = CONF_DIR,
        owner: str = "",
        executor: ExecutorT | None = None,
        timeout: float | None = TIMEOUT,
        plugin_timeout: float | None = None,
        cleanup_timeout: float | None = CLEANUP_TIMEOUT,
        env: Env | None = None,
        durable: bool = True,
        stderr: StderrSink | None = None,
        observer: Observer | None = None,
        start_ahead: StartAhead = "auto",
        max_verbs: int = MAX_VERBS,
        retries: int = 1,
    ) -> None:
        """Store the settings. The client opens, reads and locks nothing before the first verb.

        Args:
            path: the directories with plugins (CNI_PATH): a sequence, or a string or path to split at ``os.pathsep``.
            cache_dir: the directory of the records and the lock file; by default ``/var/lib/cni``.
            conf_dir: the directory from which networks are loaded by name; by default ``/etc/cni/net.d``.
            owner: the program that the attachments belong to, such as ``my-runtime``; it is written to each record.
                GC detaches only attachments of this owner. "" means no owner: records of Go libcni have none.
            executor: finds and runs the plugins: an Executor, for AsyncCNIConfig an AsyncExecutor; None: run processes.
            timeout: seconds for a whole verb, the wait for locks included, 60 by default; None: no limit.
            plugin_timeout: seconds for each plugin; None: only the verb's limit applies.
            cleanup_timeout: seconds for the roll-back of a failed ADD, in addition to ``timeout``, 30 by default; None:
                no limit.
            env: the plugins' environment without CNI_*: a mapping replaces this process's environment; a list names
                the variables that plugins inherit.
            durable: whether to sync each record to the disk (fsync) before the file gets its final name.
            stderr: receives the stderr of plugins that succeed: a callable ``(invocation, text)`` or a text file; None:
                the logger ``libcni.plugin``.
            observer: receives the start and end of every verb and plugin call; see ``Observer``.
            start_ahead: which plugins may start before their turn and wait for their configuration. ``auto``: plugins
                that read it before they act (built with the CNI project's Go library or ``libcni.plugin``);
                ``always``: all; ``never``: none.
            max_verbs: how many operations of this client run at once, 128 by default. An operation is a verb, or an
                operation of a manager with all its verbs. The number is lower if this program may open few files
                (``ulimit -n``). Other operations wait in the order of their calls, within their timeout, before they
                write a record.
            retries: how often an ADD is repeated, 1 by default, after a plugin has failed by a known temporary fault
                (``retryable`` is true, and the code is not 11). The ADD is repeated only if its roll-back has undone
                everything, and the rest of its timeout is longer than the failed try took. 0: never.

        Raises:
            ValueError: a time limit is 0, negative or NaN, ``start_ahead`` has an unknown value, ``max_verbs`` is below
                1, or ``retries`` is negative.
            InvalidIdentifierError: a kind of ValueError; ``owner`` is not printable text.
            TypeError: ``env``, ``executor``, ``observer``, ``max_verbs`` or ``retries`` is of another type than this
                client needs.
        """
        check_word("start_ahead", start_ahead, StartAhead)
        if isinstance(path, str | os.PathLike):
            path = os.fspath(path).split(os.pathsep)
        directories = [os.fspath(part) for part in path]
        self._settings = Settings(
            path=tuple(part for part in directories if part),
            # Absolute: the program may change its directory between ADD and DEL.
            cache_dir=os.path.abspath(os.fspath(cache_dir)),
            conf_dir=os.fspath(conf_dir),
            owner=check_owner(owner),
            timeout=check_timeout(timeout),
            plugin_timeout=check_timeout(plugin_timeout, "plugin_timeout"),
            cleanup_timeout=check_timeout(cleanup_timeout, "cleanup_timeout"),
            env=_checked_env(env),
            stderr=stderr,
            observer=observer,
            start_ahead=start_ahead,
            retries=_checked_retries(retries),
        )
        if observer is not None:
            check_type("observer", observer, Observer)
        if executor is not None:
            _check_executor(executor, on_asyncio=self._is_async)
        self._executor: ExecutorT = executor if executor is not None else self._default_executor()
        self._store = RecordStore(self._settings.cache_dir, durable=durable)
        most = verbs_at_once(max_verbs)
        # A sweep leaves half of the turns to others: an ADD must not wait for hundreds of stale attachments.
        side_by_side = partial(self._side_by_side, max(1, most // 2))
        self._state = ClientState(self._settings, self._store, Turns(most), side_by_side)

    def __repr__(self) -> str:
        names = ("path", "cache_dir", "conf_dir", "owner")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def _default_executor(self) -> ExecutorT:
        raise NotImplementedError

    @staticmethod
    async def _side_by_side(most: int, works: Sequence[Callable[[], Coroutine[Any, Any, AnswerT]]]) -> list[AnswerT]:
        raise NotImplementedError

    def _verb_run(self, operation: Operation, timeout: Timeout, part_of: VerbRun | None = None) -> VerbRun:
        raise NotImplementedError

    @property
    def path(self) -> tuple[str, ...]:
        """The directories that are searched for plugins, in order."""
        return self._settings.path

    @property
    def cache_dir(self) -> str:
        """The directory that holds the records and the lock file."""
        return self._settings.cache_dir

    @property
    def conf_dir(self) -> str:
        """The directory from which networks are loaded by name."""
        return self._settings.conf_dir

    @property
    def owner(self) -> str:
        """The program that the attachments belong to, "" for none."""
        return self._settings.owner

    @property
    def timeout(self) -> float | None:
        """The default timeout of verbs in seconds; None: no limit."""
        return self._settings.timeout

    def find_plugin(self, plugin: str) -> str:
        """Return the path of a plugin type's executable, without running it.

        Args:
            plugin: the plugin's type.

        Raises:
            PluginNotFoundError: no directory of ``path`` has the executable.
            InvalidIdentifierError: ``plugin`` is a path or empty.
        """
        with self._naming():
            return self._executor.find(check_plugin_type(plugin), self.path)

    def network(self, name: str) -> NetworkConfigList:
        """Load a network from ``conf_dir``, as ``load_network_conf`` does.

        Args:
            name: the network's name.

        Raises:
            NetworkNotFoundError: no usable file has this network.
            ConfigError: the directory cannot be read.
        """
        with self._naming():
            return load_network_conf(self._settings.conf_dir, name)

    def networks(self) -> tuple[NetworkConfigList, ...]:
        """Load all usable networks of ``conf_dir``, in load order. For unusable files see ``read_config_directory``.

        Raises:
            ConfigError: the directory cannot be read.
        """
        with self._naming():
            return read_config_directory(self._settings.conf_dir).networks

    def get_network_list_cached_result(self, net: Network, rt: RuntimeConf) -> Result | None:
        """Return the recorded result of an attachment in the network's version, or None if no result is recorded.

        Args:
            net: the network, or its name. With a name, the version of the recorded configuration is used.
            rt: the attachment's parameters; only its container ID and interface name are used.

        Raises:
            RecordError: the record cannot be read, or has no usable configuration and ``net`` is a name.
            VersionError: the result cannot be expressed in that version.
            InvalidIdentifierError: a name in ``rt`` breaks the specification's rules.
        """
        record = self._recorded(net, rt)
        if record is None or not record.is_complete:
            return None
        used = net if isinstance(net, NetworkConfigList) else network_to_use(record)
        return recorded_result(record, used.cni_version)

    def get_network_list_cached_config(self, net: Network, rt: RuntimeConf) -> tuple[bytes, RuntimeConf] | None:
        """Return the recorded configuration document and parameters of an attachment, or None if it has no record.

        Args:
            net: the network, or its name; only the name is used.
            rt: the attachment's parameters; only its container ID and interface name are used.

        Raises:
            RecordError: the record cannot be read.
            InvalidIdentifierError: a name in ``rt`` breaks the specification's rules.
        """
        record = self._recorded(net, rt)
        return None if record is None or not record.config else (record.config, recorded_conf(record))

    def get_cached_attachments(self, container_id: str | None = None) -> list[Attachment]:
        """Return all recorded attachments, or those of one container. Corrupt records are in the list.

        Args:
            container_id: the container; None: all.

        Raises:
            RecordError: the directory of the records cannot be read.
            InvalidIdentifierError: ``container_id`` breaks the specification's rules.
        """
        if container_id is not None:
            validate_container_id(container_id)
        with self._naming():
            return attachments_of(self._store.records(container_id), self._store)

    def iter_cached_attachments(self, container_id: str | None = None) -> Iterator[Attachment]:
        """Yield the recorded attachments of ``get_cached_attachments``, in no particular order.

        Only one record at a time is in memory. Records that appear or disappear during the iteration may be missing.

        Args:
            container_id: the container; None: all.

        Raises:
            RecordError: the directory of the records cannot be read.
            InvalidIdentifierError: ``container_id`` breaks the specification's rules.
        """
        if container_id is not None:
            validate_container_id(container_id)
        return self._views(self._store.iter_records(container_id))

    def _views(self, records: Iterable[Record]) -> Iterator[Attachment]:
        with self._naming():
            yield from iter_attachments_of(records, self._store)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Add this client to the errors of a block, so that the commands in their hints use its directories."""
        try:
            yield
        except CNIError as error:
            name_client(error, self._settings.client)
            raise

    def _operation_of(self, verb: OperationName, attachment: Attachment) -> tuple[Operation, RuntimeConf]:
        """Return the Operation and the parameters of a verb of one recorded attachment; see ``attachment_conf``."""
        with self._naming():
            return attachment_operation(verb, attachment), attachment_conf(attachment)

    def _recorded(self, net: Network, rt: RuntimeConf) -> Record | None:
        check_type("rt", rt, RuntimeConf)
        rt.check()
        # The name becomes part of a path. A name that breaks the rules could lead out of the directory of the records.
        name = validate_network_name(name_and_config(net)[0])
        with self._naming():
            record = self._store.find((name, rt.container_id, rt.ifname))
            if isinstance(record, Unreadable):
                raise RecordError(f"{record.path}: the record cannot be used: {record.problem}", path=record.path)
        return record

    def _named(self, net: Network) -> NetworkConfigList:
        return net if isinstance(net, NetworkConfigList) else self.network(_name(net))

    def _seconds(self, timeout: Timeout) -> float | None:
        return self._settings.timeout if timeout is DEFAULT else check_timeout(timeout)


def documented_like(blocking: type) -> Callable[[type[KindT]], type[KindT]]:
    """Return a class decorator that copies docstrings of the class ``blocking`` to its asyncio counterpart.

    A method whose docstring refers to the blocking one gets that docstring, so that ``help()`` shows all of it. What
    follows the reference comes after the first paragraph.
    """

    def decorate(kind: type[KindT]) -> type[KindT]:
        for name, method in vars(kind).items():
            original, found = getattr(blocking, name, None), _REFERENCE.search(getattr(method, "__doc__", None) or "")
            if found and original.__doc__:
                first, _, rest = original.__doc__.partition("\n\n")
                own = f"\n\n        {found[1]}" if found[1] else ""
                method.__doc__ = f"{first.rstrip()}{own}" + (f"\n\n{rest}" if rest else "")
        return kind

    return decorate


def run_of(
    client: ClientBase[Any], operation: Operation, timeout: Timeout = DEFAULT, *, part_of: VerbRun | None = None
) -> VerbRun:
    """Return a VerbRun of a client, on which a manager runs a verb: the interface between managers and clients.

    The run waits like the client: it blocks, or awaits on asyncio. ``part_of``: the run of the manager's operation.
    The verb then has its own locks and timeout, but waits for no turn, because the operation has a turn.
    """
    return client._verb_run(operation, timeout, part_of)  # noqa: SLF001 - this module's own class


def _name(net: object) -> str:
    if not isinstance(net, str):
        raise TypeError(f"net must be a NetworkConfigList or a network's name, not {short_repr(net)}")
    return net


def name_and_config(net: Network) -> tuple[str, NetworkConfigList | None]:
    """Return (a network's name, its configuration or None). The verb itself loads a network that is only a name."""
    return (net.name, net) if isinstance(net, NetworkConfigList) else (_name(net), None)


def operation(verb: OperationName, network: str, rt: RuntimeConf) -> Operation:
    """Return the Operation for observers of a verb of one attachment."""
    check_type("rt", rt, RuntimeConf)
    return Operation(verb, network, rt.container_id, rt.ifname)


def attachment_operation(verb: OperationName, attachment: Attachment) -> Operation:
    """Return the Operation for observers of a verb of one recorded attachment."""
    check_type("attachment", attachment, Attachment)
    return Operation(verb, attachment.network, attachment.container_id, attachment.ifname)


def attachment_conf(attachment: Attachment) -> RuntimeConf:
    """Return the parameters of DEL for a recorded attachment. Only the identity is set; the record has the rest.

    Raises:
        RecordError: the record does not identify an attachment.
    """
    if not attachment.network:
        raise unnamed_error(attachment)
    return RuntimeConf(attachment.container_id, None, attachment.ifname)


def single(plugin: PluginConfig) -> NetworkConfigList:
    """Return a single plugin configuration as a network with one plugin.

    The record of such an attachment holds the plugin's own document, as in Go libcni.
    """
    check_type("plugin", plugin, PluginConfig)
    return replace(NetworkConfigList.from_plugin(plugin), raw=plugin.text.encode(errors="surrogatepass"))


def _checked_env(env: Env | None) -> Env | None:
    """Return ``env`` if its names and values are strings, else raise TypeError. ADD checks what they contain."""
    value: object = env
    # Iterating a string would yield its letters as names.
    if isinstance(value, str | bytes) or not isinstance(value, Collection | None):
        shown = short_repr(value)
        raise TypeError(f"env must be a mapping of variables, or a list of names such as ['PATH'], not {shown}")
    pairs = value.items() if isinstance(value, Mapping) else [(name, "") for name in value or ()]
    for name, text in pairs:
        about = f"{short_repr(name)}: {short_repr(text)}" if isinstance(value, Mapping) else short_repr(name)
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"env: names and values must be strings, not {about}")
    return env


def _checked_retries(retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int):
        raise TypeError(f"retries must be a whole number, not {short_repr(retries)}")
    if retries < 0:
        raise ValueError(f"retries must be 0 or more, not {retries}")
    return retries


def _check_executor(executor: object, *, on_asyncio: bool) -> None:
    """Raise TypeError if ``execute`` is a coroutine function in a blocking client, or is not in an asyncio client."""
    execute = getattr(executor, "execute", None)
    if not callable(execute) or not callable(getattr(executor, "find", None)):
        raise TypeError(
            f"executor must have the methods find and execute, like ProcessExecutor; {executor!r} lacks one"
        )
    # Not isinstance: Executor and AsyncExecutor have the same methods. ``execute`` may be a callable object.
    import inspect  # it takes a start 3 ms, and its question only a caller's own executor

    execute = inspect.unwrap(execute)
    if inspect.isroutine(execute) and inspect.iscoroutinefunction(execute) is not on_asyncio:
        actual = f"{type(executor).__name__}.execute is {'no' if on_asyncio else 'a'} coroutine function"
        if on_asyncio:
            raise TypeError(f"AsyncCNIConfig needs an AsyncExecutor, or None for AsyncProcessExecutor: {actual}")
        raise TypeError(f"CNIConfig needs an Executor, or None for ProcessExecutor: {actual}")
