"""Convert between attachments, which verbs and callers use, and the records on disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field, replace
from libcni.config import jsontext
from libcni.config.cni_args import Args, RecordedArgs, check_args
from libcni.config.identifiers import validate_container_id, validate_interface_name
from libcni.config.network import NetworkConfigList, parse_plugin, parse_recorded
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import ConfigError, Hint, InvalidIdentifierError, RecordError
from libcni.kernel.regular_file import UnusableFileError
from libcni.protocol.result import Result, ResultProblem, read_result
from libcni.store.files import Directory, read_file
from libcni.store.model import CORRUPT, MadeByGo, Ours, Record, State, Unreadable, can_reload
from libcni.store.other_records import OtherRecords
from libcni.store.present_interfaces import Sight
from libcni.store.record_format import check_readable, events_of
from libcni.store.records import RecordStore

__all__ = ["Attachment"]

logger: logging.Logger = logging.getLogger("libcni")


AttachmentState = State


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment that is recorded on disk.

    Attributes:
        container_id: the container, "" in a corrupt record.
        ifname: the interface's name, "" in a corrupt record.
        network: the network's name, "" in a corrupt record.
        netns: the network namespace that ADD received, "" for none.
        state: ``begun`` (its ADD has not run a plugin yet), ``refused`` (its ADD was refused before any plugin ran),
            ``pending`` (its ADD has not completed), ``ready``, ``detaching`` (a DEL began and has not completed),
            ``gone`` (its network namespace no longer exists, or only a socket holds it), ``lost-path`` (its path
            does not lead to its namespace, which something holds), ``lost`` (its interface no longer exists),
            ``renamed`` (its interface was renamed or moved), ``unknown`` (Go libcni recorded no namespace),
            ``stale-boot`` (attached before a reboot), ``corrupt`` (unreadable; see ``problem``).
        created: the time when its ADD began, UTC; None if it is not recorded.
        owner: the program that the attachment belongs to, "" for none.
        path: the record's file.
        config: the network configuration document that ADD used.
        args: the pairs of CNI_ARGS that ADD received.
        capability_args: the capability arguments that ADD received.
        problem: why it is corrupt, else "".
        record: the record itself.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> [attachment] = cni.get_cached_attachments()
        >>> attachment.container_id, attachment.ifname, attachment.state
        ('c1', 'eth0', 'ready')
    """

    container_id: str
    ifname: str
    network: str
    netns: str
    state: AttachmentState
    created: datetime | None
    path: str
    config: bytes = field(default=b"", repr=False)
    args: tuple[tuple[str, str], ...] = ()
    capability_args: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    record: Record = field(default_factory=Record, repr=False, compare=False)
    owner: str = ""

    @property
    def is_denied(self) -> bool:
        """Whether this user may not read the record. The state is then ``corrupt``, but the content may be valid."""
        if self.state != CORRUPT or not system.lexists(self.path):
            return False
        # Nobody reads a symbolic link as a record, and one that leads nowhere is denied to nobody.
        return not system.islink(self.path) and not system.access(self.path, os.R_OK)

    @property
    def made_by_go(self) -> bool:
        """Whether Go libcni wrote the record. GC and repair touch such attachments only with ``include_go``."""
        return isinstance(self.record, MadeByGo)

    @property
    def pod(self) -> str:
        """The pod that a runtime of Kubernetes has named in CNI_ARGS, as ``NAMESPACE/NAME``; "" if none is recorded."""
        named = dict(self.args)
        return "/".join(filter(None, map(named.get, ("K8S_POD_NAMESPACE", "K8S_POD_NAME"))))

    @property
    def can_reload(self) -> bool:
        """Whether a reload is possible: the container may still exist, and at least one plugin of its ADD has ended."""
        return can_reload(self.record, self.state)

    @property
    def events(self) -> tuple[tuple[datetime, str], ...]:
        """The events in the record's file, read now: time in UTC, and text such as ``step bridge``.

        ``started``: the first plugin was about to run. ``step``: a plugin of the ADD ended. ``complete``: all ended.
        ``refused``: the ADD was refused before it ran a plugin. ``detach``: a DEL began. ``reload``, ``restored``,
        ``again``, ``copy``: the file was rewritten. () if the file cannot be read, or if Go libcni wrote it.
        """
        types = [parse_plugin(text).type for text in self.record.plugins]
        try:
            with Directory(os.path.dirname(self.path)) as directory:
                data = read_file(os.path.basename(self.path), directory)
            return tuple(
                (datetime.fromtimestamp(at, UTC), event if index is None else f"{event} {types[index]}")
                for at, event, index in events_of(data)
            )
        except (OSError, UnusableFileError, ValueError, TypeError, LookupError, OverflowError):
            return ()

    @property
    def result(self) -> Result | None:
        """The recorded result of its ADD, or None.

        Raises:
            RecordError: the recorded text is not a result.
        """
        return None if self.record.result is None else recorded_result(self.record)


def attachments_of(records: Iterable[Record], store: RecordStore) -> list[Attachment]:
    """Return the Attachments of a store's records. Examine the interfaces, to find out whether they exist."""
    sight = Sight(OtherRecords(store, once=True), remembers=True)
    try:
        # Enter a namespace once for successive records: a container may have several networks.
        return [_view(record, sight.state_of(record)) for record in records]
    finally:
        sight.close()


def iter_attachments_of(records: Iterable[Record], store: RecordStore) -> Iterator[Attachment]:
    """Yield the Attachments of a store's records. Only one record at a time is in memory."""
    sight = Sight(OtherRecords(store, once=True), remembers=True)
    for record in records:
        try:
            state = sight.state_of(record)
        finally:
            sight.close()  # otherwise the examined namespace could not end while the caller pauses
        yield _view(record, state)


def _view(record: Record, state: State) -> Attachment:
    return Attachment(
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=record.netns,
        state=state,
        created=_when(record.created),
        path=record.path,
        config=record.config,
        args=record.args,
        capability_args=record.decoded_capability_args,
        problem=record.problem,
        record=record,
        owner=record.owner,
    )


def unnamed_error(attachment: Attachment) -> RecordError:
    """Return the error for a record that does not identify its attachment."""
    problem = attachment.problem or "the record does not identify an attachment"
    return RecordError(f"{attachment.path}: {problem}", path=attachment.path, missing="attachment")


def is_valid_pair(container_id: str, ifname: str) -> bool:
    """Return whether a container ID and an interface name are valid. Any program may have written them."""
    try:
        validate_container_id(container_id)
        validate_interface_name(ifname)
    except InvalidIdentifierError:
        return False
    return True


def _when(created: float | None) -> datetime | None:
    try:
        # Any program may have written the file: its time may be out of the range of dates.
        return None if created is None else datetime.fromtimestamp(created, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def new_record(net: NetworkConfigList, rt: RuntimeConf, *, is_own_netns: bool = False) -> Ours:
    """Return the record of an ADD that is about to begin; raises ConfigError as ``check_readable`` does."""
    record = Ours(
        network=net.name,
        container_id=rt.container_id,
        ifname=rt.ifname,
        netns=rt.netns or "",
        # Like Go, record the administrator's document unchanged.
        config=net.raw or _document(net),
        version=net.cni_version,
        plugins=tuple([plugin.text for plugin in net.plugins]),
        args=rt.args or (),
        capability_args=jsontext.dumps(dict(rt.capability_args)) if rt.capability_args else "",
        network_args=jsontext.dumps(dict(rt.network_args)) if rt.network_args else "",
        is_own_netns=is_own_netns,
        is_original=True,
    )
    check_readable(record)
    return record


def _document(net: NetworkConfigList) -> bytes:
    """Return the document of a list that was created in code."""
    own = {"cniVersion": net.cni_version, "name": net.name, "disableCheck": net.disable_check}
    plugins = jsontext.join_array([plugin.text for plugin in net.plugins])
    return f'{jsontext.dumps(own)[:-1]},"plugins":{plugins}}}'.encode()


def recorded_network(record: Record) -> NetworkConfigList | None:
    """Return the configuration that a record's ADD used, or None if the record has no usable one.

    Go records only the document, so its records lack the drop-in plugins.
    """
    if isinstance(record, Unreadable):
        return None
    try:
        net = parse_recorded(record.config, record.path)
        # The recorded plugins include the drop-ins, whose files may have changed since the ADD.
        if record.plugins and record.plugins != tuple([plugin.text for plugin in net.plugins]):
            net = replace(net, plugins=tuple(map(parse_plugin, record.plugins)))
    except ConfigError as error:
        logger.warning("%s: the recorded configuration cannot be used: %s", record.path, error)
        return None
    net = replace(net, name=record.network)
    if not net.plugins:
        logger.warning("%s: the recorded configuration names no plugin: all plugins were drop-ins", record.path)
        return None
    # ADD may have used another version than the document's.
    return net.with_version(record.version) if record.version else net


def recorded_conf(record: Record, rt: RuntimeConf | None = None, *, use_given: bool = False) -> RuntimeConf:
    """Return the parameters for CHECK and DEL: the recorded ones, with the caller's namespace unless it is None.

    ``use_given``: use all parameters of the caller that are not None, and the recorded ones for the rest.
    """
    rt = rt or RuntimeConf(record.container_id, None, record.ifname)
    args, capability_args, network_args = (
        (rt.args, rt.capability_args, rt.network_args) if use_given else (None, None, None)
    )
    return RuntimeConf(
        record.container_id,
        # "" is a value too: plugins that receive no namespace touch no interface.
        rt.netns if rt.netns is not None else record.netns,
        record.ifname,
        args=args if args is not None else _usable_args(record),
        capability_args=capability_args if capability_args is not None else _usable(record, record.capability_args),
        network_args=network_args if network_args is not None else _usable(record, record.network_args),
    )


def _usable_args(record: Record) -> Args:
    """Return the recorded CNI_ARGS, or () if the variable cannot hold them: that must not stop a DEL."""
    try:
        return check_args(RecordedArgs(record.args))
    except InvalidIdentifierError as error:
        logger.warning("%s: the verb goes on without the recorded CNI_ARGS: %s", record.path, error)
        return ()


def _usable(record: Record, text: str) -> dict[str, Any]:
    try:
        decoded: dict[str, Any] = jsontext.parse(text) if text else {}
        jsontext.dumps(decoded)
    except (TypeError, ValueError) as error:  # for example 1e400, which Python decodes and cannot encode
        logger.warning("%s: the verb goes on without recorded arguments: %s", record.path, error)
        return {}
    return decoded


def recorded_result(record: Record, version: str | None = None) -> Result:
    """Return the recorded result, in the spec version ``version``; None: in its own version.

    Raises:
        RecordError: the record has no result, or its result cannot be read.
        VersionError: the result cannot be expressed in that version.
    """
    if record.result is None:
        problem = f"{record.path}: the record has no result: its ADD did not complete"
        raise RecordError(problem, path=record.path, hint=Hint.about(record, "detach the container", "del"))
    try:
        # Go records no version. Only results of 0.1.0 do not name theirs.
        result = read_result(record.result, record.version or "0.1.0", lenient=True)
    except ResultProblem as error:
        problem = f"{record.path}: the recorded result cannot be read: {error}"
        hint = Hint.about(record, "detach the container, which needs no result, then attach it again", "del")
        raise RecordError(problem, path=record.path, hint=hint) from error
    return result if version is None else result.as_version(version)


def in_order(attachments: Iterable[Attachment]) -> list[Attachment]:
    """Return attachments in the order of their ADDs; records of Go, which have no time, come first."""
    return sorted(attachments, key=lambda attachment: attachment.record.created or 0.0)


def may_belong_to(path: str, container_id: str) -> bool:
    """Return whether an unreadable record may belong to this container, by its file name."""
    # The name is <network>-<container>-<interface>, and each part may contain "-": so this may also match another
    # container. Too many matches are safe, too few are not.
    return f"-{container_id}-" in os.path.basename(path)
