"""The model of an attachment: its record, its states, its events, and each verb's action in each state.

The table ``STATES`` decides every write of a record. Listings, verbs and findings take their words from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypedDict

from libcni._dataclass import dataclass, field
from libcni.config import jsontext
from libcni.errors import RecordError
from libcni.store.place import UNKNOWN, Comparison, Interface, Place, compare, is_same_index

Identity = tuple[str, str, str]
"""(network, container ID, interface name)."""

Stamp = tuple[int, int, int]
"""(inode, size, time of the last change) of a file when it was read."""


# Records.


State = Literal[
    "begun",
    "refused",
    "pending",
    "ready",
    "detaching",
    "gone",
    "lost-path",
    "lost",
    "renamed",
    "unknown",
    "stale-boot",
    "corrupt",
]
"""The states of an attachment. The record alone shows them, except those of ``SHOWN_BY_THE_NODE``."""

BEGUN: Final = "begun"
REFUSED: Final = "refused"
PENDING: Final = "pending"
READY: Final = "ready"
DETACHING: Final = "detaching"
STALE_BOOT: Final = "stale-boot"
CORRUPT: Final = "corrupt"

LOST_PATH: Final = "lost-path"

SHOWN_BY_THE_NODE: Final[frozenset[State]] = frozenset({"gone", "lost-path", "lost", "renamed", "unknown"})
"""The states that only an examination of the node shows: the record says ``ready``, or names no namespace."""

LIVING: Final[frozenset[State]] = frozenset({"ready", "lost-path", "lost", "renamed", "unknown"})
"""The states of a complete attachment whose namespace exists, or may exist."""

ENDED: Final[frozenset[State]] = frozenset({"gone", STALE_BOOT})
"""The states of an attachment whose namespace no longer exists.

The recorded path may lead to another container's namespace now.
"""

UNFINISHED: Final = frozenset({BEGUN, PENDING, DETACHING})
"""The states in which a verb works on the attachment, or was stopped."""


class Texts(TypedDict):
    """The fields of a record whose values are kept as text, as in the record's file."""

    plugins: tuple[str, ...]
    capability_args: str
    network_args: str
    result: str | None
    partial: str | None


class Source(Protocol):
    """The file of a decoded record, as text."""

    capability_args: Mapping[str, Any]

    def texts(self) -> Texts:
        """Return the texts of the record's fields."""
        ...


class _FromSource:
    """A field that is decoded from the record's source when it is first used, with all other such fields.

    Searching the file for these texts takes as long as decoding it, and a listing needs none of them.
    """

    def __init__(self, default: object) -> None:
        self._default = default

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, record: Record | None, _owner: type | None = None) -> Any:
        if record is None or record.source is None:
            return self._default
        # From now on the record's own attributes are found, and this method is not called.
        for name, text in record.source.texts().items():
            record.__dict__.setdefault(name, text)
        return record.__dict__[self._name]


def _from_source(default: object) -> Any:
    return _FromSource(default)  # Any: type checkers know the types of the fields


@dataclass(frozen=True)
class Record:
    """An attachment recorded on disk: Ours, MadeByGo or Unreadable.

    Attributes:
        network, container_id, ifname: its identity; all "" in an unreadable record.
        state: the state that the record alone shows; see ``STATES``.
        netns: the namespace's path that ADD received. Go libcni 1.1 records none: then the path in its result.
        netns_id: (device, inode) of the namespace at that time; None if it did not exist, or Go wrote the record.
        netns_cookie: the kernel's cookie of the namespace, or None. Unlike inode numbers, cookies are never reused.
        config: the network configuration document, byte for byte.
        version: the spec version of the ADD; "" if Go wrote the record.
        plugins: the text of each plugin configuration of the ADD, drop-ins included; () if Go wrote the record.
        args: CNI_ARGS. capability_args, network_args: JSON objects as text, or "".
        created: seconds since 1970, or None.
        uptime: seconds between the boot and the ADD (CLOCK_BOOTTIME, which cannot be set), or None.
        boot: the boot ID at the ADD, or "".
        pid_namespace: the inode of the PID namespace of the program that ran the ADD, or None.
        owner: the program that the attachment belongs to, "" for none.
        result: the result of the ADD as text; None if the ADD has not succeeded.
        partial: the result of the last plugin of an ADD that has not completed, as text, or None.
        interface: its interface, as far as it is known.
        is_reload: whether the file was written by a reload of a complete attachment.
        is_own_netns: whether the namespace is that of the program that ran the ADD; see ``allow_own_netns``.
        is_original: whether this library wrote the file for this identity. Somebody may have copied a file and edited
            the names in it.
        path: the file.
        problem: why the record cannot be read, or "".
        end: the index of the file's closing brace, in bytes, where the next event is written.
        serial: how many events the file has.
        stamp: the file's Stamp when it was read.
        source: the file's text, from which the fields of ``Texts`` are decoded on demand; None for a new record.
    """

    network: str = ""
    container_id: str = ""
    ifname: str = ""
    state: State = BEGUN
    netns: str = ""
    netns_id: tuple[int, int] | None = None
    netns_cookie: int | None = None
    config: bytes = b""
    version: str = ""
    plugins: tuple[str, ...] = _from_source(())
    args: tuple[tuple[str, str], ...] = ()
    capability_args: str = _from_source("")
    network_args: str = _from_source("")
    created: float | None = None
    uptime: float | None = None
    boot: str = ""
    pid_namespace: int | None = None
    owner: str = ""
    result: str | None = _from_source(None)
    partial: str | None = _from_source(None)
    interface: Interface = UNKNOWN
    is_reload: bool = False
    is_own_netns: bool = False
    is_original: bool = field(default=False, compare=False)
    path: str = ""
    problem: str = ""
    end: int = field(default=0, compare=False, repr=False)
    serial: int = field(default=0, compare=False, repr=False)
    stamp: Stamp | None = field(default=None, compare=False, repr=False)
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def decoded_capability_args(self) -> Mapping[str, Any]:
        """The capability arguments."""
        if self.source is not None and "capability_args" not in self.__dict__:
            return self.source.capability_args
        return jsontext.parse(self.capability_args) if self.capability_args else {}

    @property
    def identity(self) -> Identity:
        """(network, container ID, interface name)."""
        return self.network, self.container_id, self.ifname

    @property
    def last_result(self) -> str | None:
        """The result of the ADD, or of its last plugin that ended, or None."""
        return self.partial if self.result is None else self.result

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return a record with these fields and the defaults, three times as fast as the constructor."""
        record = object.__new__(cls)
        record.__dict__.update(_DEFAULTS, **fields)
        return record

    def with_fields(self, **changed: Any) -> Self:
        """Return a copy with some fields changed, ten times as fast as ``dataclasses.replace``."""
        if not _FIELDS.issuperset(changed):
            raise TypeError(f"a record has no {', '.join(changed.keys() - _FIELDS)}")
        record = object.__new__(type(self))
        record.__dict__.update(self.__dict__, **changed)
        return record

    @property
    def is_complete(self) -> bool:
        """Whether the ADD has completed, and no reload has begun since."""
        return self.result is not None

    @property
    def lacks_drop_ins(self) -> bool:
        """Whether the recorded configuration may lack plugins: Go libcni records no drop-ins."""
        return isinstance(self, MadeByGo)

    @property
    def is_of_earlier_boot(self) -> bool:
        """Whether a reboot has removed everything that the ADD created, except files on disk."""
        return self.state == STALE_BOOT

    @property
    def is_by_this_library(self) -> bool:
        """Whether this library wrote the record, not Go libcni."""
        return isinstance(self, Ours)

    @property
    def may_have_rules(self) -> bool:
        """Whether rules that the attachment's plugins created may exist."""
        return self.state not in {REFUSED, STALE_BOOT}

    @property
    def event_of_rewrite(self) -> str:
        """The event to write into a restored file. After a killed reload it still says that the ADD had ended."""
        return "reload" if self.is_reload else "restored"

    def for_reload(self, interface: Interface) -> Self:
        """Return the record to write before a reload. It keeps the old result, so that the reload can be repeated."""
        return self.with_fields(
            state=PENDING, result=None, partial=self.last_result, interface=interface, is_reload=True
        )

    @property
    def has_ended(self) -> bool:
        """Whether the ADD has succeeded, or had succeeded before a reload."""
        return self.result is not None or self.is_reload

    def changes_state(self, event: Event) -> bool:
        """Return whether an event leads to another state."""
        return STATES[self.state].after.get(event, self.state) != self.state

    def after(self, event: Event, **facts: Any) -> Self:
        """Return the record after an event; ``facts``: new values of ``interface``, ``partial`` and ``result``.

        Raises:
            RecordError: the table ``STATES`` does not allow this event in this state.
        """
        state = STATES[self.state].after.get(event)
        if state is None:
            text = f"{self.path}: {event} is no event of an attachment that is {self.state}"
            raise RecordError(text, path=self.path)
        if event == "complete":
            facts["partial"] = None
        return self.with_fields(state=state, **facts)


_FIELDS: Final = frozenset(Record.__annotations__)
_DEFAULTS: Final[Mapping[str, Any]] = {
    name: getattr(Record, name) for name in Record.__annotations__ if name not in Texts.__annotations__
}


class Ours(Record):
    """A record that this library wrote."""


class MadeByGo(Record):
    """A record that Go libcni wrote. It is still a MadeByGo after a verb of this library has changed it.

    It has neither the namespace's identity nor the interface's index, and its configuration lacks drop-in plugins.
    """


class Unreadable(Record):
    """A file that is not a record; ``problem`` says why."""


def unreadable(path: str, problem: str) -> Unreadable:
    """Return the record of a file that cannot be read."""
    return Unreadable(state=CORRUPT, path=path, problem=problem)


# What happens to an attachment.


Event = Literal["started", "refused", "step", "complete", "detach", "reload"]
"""The events that a record holds. ``RecordStore.begin`` creates its file, and ``forget`` removes it.

``started``: the first plugin is about to run. ``refused``: the ADD is refused before that. ``step``: a plugin has
ended. ``complete``: all plugins have ended. ``detach``: a DEL begins. ``reload``: a reload begins, in a new file with
the old result and interface.
"""


class Row(NamedTuple):
    """A state of an attachment: its meaning, the action of each verb, and the state after each event.

    Attributes:
        meaning: the state in words, for errors and listings.
        add: ``refuse`` the ADD, or ``detach`` the earlier attachment and begin.
        delete: run ``nothing``; ``ask`` before each plugin whether the interface is the recorded one; or use an
            ``empty`` CNI_NETNS.
        reload: whether it can be reloaded; see ``can_reload``.
        after: the state after each possible event.
        check: whether CHECK runs the plugins.
    """

    meaning: str
    add: Literal["refuse", "detach"]
    delete: Literal["nothing", "ask", "empty"]
    reload: bool = False
    after: Mapping[Event, State] = MappingProxyType({})
    check: bool = False


_AFTER_READY: Final[Mapping[Event, State]] = {"detach": DETACHING, "reload": PENDING}

STATES: Final[Mapping[State, Row]] = {
    "begun": Row("the ADD has not run a plugin yet", "detach", "nothing", after={
        "started": PENDING, "refused": REFUSED,
    }),
    "refused": Row("the ADD was refused before it ran a plugin", "detach", "nothing"),
    "pending": Row("the ADD has not ended", "detach", "ask", True, {
        "refused": REFUSED, "step": PENDING, "complete": READY, "detach": DETACHING, "reload": PENDING,
    }),
    "ready": Row("it is attached", "refuse", "ask", True, _AFTER_READY, check=True),
    "detaching": Row("a DEL has begun and has not ended", "detach", "ask", True, {
        "detach": DETACHING, "reload": PENDING,
    }),
    "gone": Row("the namespace no longer exists", "detach", "ask", False, _AFTER_READY),
    "lost-path": Row("the namespace lives, but its path no longer leads to it", "refuse", "ask", False, _AFTER_READY),
    "lost": Row("the interface no longer exists", "detach", "ask", True, _AFTER_READY),
    "renamed": Row("the interface was renamed or moved", "refuse", "ask", False, _AFTER_READY),
    # The caller has to name the namespace.
    "unknown": Row("the record names no namespace", "refuse", "ask", False, _AFTER_READY, check=True),
    # After a reboot nothing of the ADD exists. The kernel numbers namespaces and interfaces anew, so equal numbers
    # prove nothing.
    "stale-boot": Row("the attachment is from before the last reboot", "detach", "empty", after={"detach": STALE_BOOT}),
    "corrupt": Row("the record cannot be read", "detach", "ask"),
}  # fmt: skip
"""All states of attachments. Without a record there is no state: ADD begins, CHECK is refused, DEL asks.

``gone``, ``lost-path``, ``lost`` and ``renamed``: the record says ready, but the interface is not at its path and name,
or another interface is.
"""

_SEEN: Final[Mapping[Comparison, State]] = {
    "same": "ready",
    "unknown": "ready",
    "no namespace": "gone",
    "other namespace": "gone",
    "no interface": "lost",
    "other interface": "lost",
    "renamed": "renamed",
}


def can_reload(record: Record, state: State) -> bool:
    """Return whether a reload can attach the container again in its namespace, with the addresses of the result.

    An ADD that was killed before any plugin ended has no result. Its caller received none, so nobody uses it.
    """
    return STATES[state].reload and record.last_result is not None and bool(record.netns)


def is_interrupted_reload(record: Record, state: State) -> bool:
    """Return whether a reload was interrupted and can be repeated."""
    return record.is_reload and can_reload(record, state)


def needs_look(record: Record) -> bool:
    """Return whether the state depends on the interface, not on the record alone."""
    return record.state == READY and not is_namespace_unknown(record)


def state_of(record: Record, recorded: Place, seen: Place) -> State:
    """Return the state of an attachment from its recorded place, and the present place at its path and name.

    ``seen`` is used only if ``needs_look``. ``gone`` says that the path does not lead to the namespace any more: see
    ``Sight.state_of``.
    """
    if record.state == READY and is_namespace_unknown(record):
        return "unknown"
    return _SEEN[compare(recorded, seen)] if record.state == READY else record.state


def is_namespace_unknown(record: Record) -> bool:
    """Return whether Go libcni recorded neither the path of the namespace nor a result that names it."""
    return isinstance(record, MadeByGo) and not record.netns


def is_certain(record: Record | None, recorded: Place, seen: Place) -> bool:
    """Return whether a record alone proves that the interface ``seen`` is its own; else search the other records.

    Only one ADD can have created the interface with an index in the namespace with a cookie.
    """
    return record is not None and record.is_original and is_same_index(recorded, seen)
