"""The options of verbs, and their types, for programs that pass them on.

    from typing import Unpack
    from libcni.options import DEFAULT, AddOptions, Timeout

    def attach(name: str, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]) -> libcni.Result:
        return cni.add_network_list("dbnet", conf(name), timeout=timeout, **options)

Each verb has ``timeout`` as a parameter of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal, TypedDict, get_args

from libcni._dataclass import dataclass
from libcni.config.conventions import similar
from libcni.config.network import NetworkConfigList
from libcni.errors import short_repr
from libcni.store.attachments import Attachment, AttachmentState

__all__ = [
    "DEFAULT",
    "AddOptions",
    "AttachmentState",
    "DelPolicy",
    "GCOptions",
    "Network",
    "OnCancel",
    "OnExisting",
    "StartAhead",
    "Timeout",
    "ValidAttachment",
]


class _Default(Enum):
    """The type of ``DEFAULT``."""

    DEFAULT = "the client's setting"


DEFAULT: Final = _Default.DEFAULT
"""The default of ``timeout``: the client's own timeout."""

Timeout = float | None | _Default
"""Seconds for a whole verb; None: no limit."""

Network = NetworkConfigList | str
"""A network, or the name of a network in the client's ``conf_dir``."""

ValidAttachment = Attachment | tuple[str, str]
"""An attachment, or its pair (container ID, interface name)."""

OnExisting = Literal["refuse", "replace", "allow"]
"""The action of ADD if the container already has the interface."""

OnCancel = Literal["keep", "rollback"]
"""What a cancelled ADD does before it ends: keep its record pending, for a later DEL or GC; or roll back."""

StartAhead = Literal["auto", "always", "never"]
"""Which plugins may start early and wait for their configuration: ``auto`` (those that read it first), all or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelPolicy:
    """How a DEL may differ from the specification, which stops it at the first error. Every option is off by default.

    Attributes:
        use_given: use the caller's configuration, namespace, arguments and capabilities instead of the recorded ones.
            The plugins then remove the interface even if another program created it.
        refuse_unrecorded: if there is no usable record, but the namespace has an interface of that name, raise
            InterfaceExistsError and run nothing. Without this option, the plugins free the address while the interface
            still uses it.
        keep_going: call the other plugins after a plugin has failed. The record stays; DEL raises a CNIErrorGroup.
        skip_missing: skip a plugin whose executable is missing.

    Examples:
        >>> report = cni.del_network_list(net, rt, policy=DelPolicy(keep_going=True))
        >>> report.errors
        []
    """

    use_given: bool = False
    refuse_unrecorded: bool = False
    keep_going: bool = False
    skip_missing: bool = False


class AddOptions(TypedDict, total=False):
    """The options of an ADD, ``timeout`` excepted.

    Attributes:
        rollback: run DEL of the whole chain when the ADD fails; on by default. If ``allow`` let the ADD change an
            attached interface, no DEL runs, and the earlier record is restored.
        on_existing: what to do if this container already has this interface on any network: ``refuse`` (the default);
            ``replace``: detach that attachment first; ``allow``: go on. With ``allow``, another container may also
            publish the same host port.
        strict: refuse capability arguments that no plugin declares, and host ports that a program or a firewall rule
            uses.
        allow_own_netns: accept this program's own network namespace.
        on_cancel: what a cancelled or interrupted ADD does. ``keep`` (the default): leave its record pending, for DEL
            and GC; ``rollback``: roll back before it ends.

    Examples:
        >>> options: AddOptions = {"on_existing": "replace"}
        >>> cni.add_network_list(net, rt, **options).ips[0].address
        '10.1.0.5/16'
    """

    rollback: bool
    on_existing: OnExisting
    strict: bool
    allow_own_netns: bool
    on_cancel: OnCancel


class GCOptions(TypedDict, total=False):
    """The options of a GC, ``timeout`` excepted.

    Attributes:
        dry_run: run nothing, only report.
        policy: the policy of the DELs of stale attachments. ``skip_missing`` also applies to the plugins'
            GC. ``use_given`` has no effect: GC uses the recorded configurations.
        include_go: also detach attachments that Go libcni recorded. They have no owner, and may belong to running
            containers of podman or containerd. Only for a client without an owner.

    Examples:
        >>> options: GCOptions = {"dry_run": True}
        >>> cni.gc_network_list(net, [], **options).stale
        ()
    """

    dry_run: bool
    policy: DelPolicy | None
    include_go: bool


def check_type(name: str, value: object, kind: type) -> None:
    """Raise TypeError if the argument ``name`` of a verb is not a ``kind``, instead of an AttributeError later."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, not {short_repr(value)}")


def check_options(method: str, options: Mapping[str, object], kind: Any) -> None:
    """Raise TypeError if the caller of ``method`` gave an option that ``kind``, a TypedDict, does not have."""
    for name in options.keys() - kind.__annotations__.keys():
        raise TypeError(f"{method}() has no option {name!r}{similar(name, kind.__annotations__)}")


def check_word(name: str, value: object, words: Any) -> None:
    """Raise ValueError if the argument ``name`` is not in ``words``, a Literal."""
    known = get_args(words)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
