"""The parameters of one attachment, which the runtime passes to each verb."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from libcni._dataclass import dataclass
from libcni.config import jsontext
from libcni.config.cni_args import Args, check_args, is_environment_text
from libcni.config.identifiers import validate_container_id, validate_interface_name
from libcni.errors import CNIError, ConfigError, InvalidIdentifierError, short_repr

if TYPE_CHECKING:  # it imports pydantic, which few callers need
    from libcni.config.capability_args import CapabilityArgs

__all__ = ["RuntimeConf"]


@dataclass(frozen=True, slots=True)
class RuntimeConf:
    """The parameters of one attachment (spec 1.1.0, section 3, Attachment parameters).

    Attributes:
        container_id: the container's ID.
        netns: the container's network namespace, normally a path; it need not exist. None: on CHECK and DEL the
            recorded path. If a file is at a relative path, the record and the plugins get the absolute path.
        ifname: the interface's name inside the container.
        args: CNI_ARGS, as ordered pairs or a mapping. None: empty on ADD; the recorded values on CHECK and DEL.
        capability_args: capability name to a JSON value, or CapabilityArgs. Example:
            ``{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}``.
            None: empty on ADD; the recorded values on CHECK and DEL.
        network_args: members to merge into the ``args`` key of each plugin's configuration. Example:
            ``{"cni": {"labels": [{"key": "app", "value": "web"}]}}``.
            None: empty on ADD; the recorded values on CHECK and DEL.

    Raises:
        InvalidIdentifierError: ``args`` are not pairs, or a key or value has a character that CNI_ARGS cannot hold.
        ConfigError: ``capability_args`` or ``network_args`` is not a mapping, or a value in it has no JSON form.

    Examples:
        >>> rt = RuntimeConf("c1", "/run/netns/c1", "eth0", args={"K8S_POD_NAME": "web"})
        >>> rt.container_id, rt.args
        ('c1', (('K8S_POD_NAME', 'web'),))
    """

    container_id: str
    netns: str | None
    ifname: str
    args: Args | None = None
    capability_args: Mapping[str, Any] | None = None
    network_args: Mapping[str, Any] | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - the specification's attachment parameters
        self,
        container_id: str,
        netns: str | os.PathLike[str] | None,
        ifname: str,
        args: Iterable[tuple[str, str]] | Mapping[str, str] | None = None,
        capability_args: Mapping[str, Any] | CapabilityArgs | None = None,
        network_args: Mapping[str, Any] | None = None,
    ) -> None:
        # A frozen dataclass refuses plain assignment, even in its own __init__.
        put = object.__setattr__
        put(self, "container_id", container_id)
        put(self, "netns", os.fspath(netns) if isinstance(netns, os.PathLike) else netns)
        put(self, "ifname", ifname)
        put(self, "args", None if args is None else check_args(args))
        put(self, "capability_args", _frozen("capability_args", capability_args))
        put(self, "network_args", _frozen("network_args", network_args))

    def __reduce__(self) -> tuple[Any, ...]:
        # MappingProxyType cannot be pickled, so the mappings travel as plain dicts.
        values = (getattr(self, name) for name in self.__match_args__)
        return RuntimeConf, tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in values)

    def __hash__(self) -> int:
        # Mappings have no hash. Equal objects still have equal hashes, because the identity is part of both.
        return hash((self.container_id, self.netns, self.ifname, self.args))

    def with_netns(self, netns: str | None) -> RuntimeConf:
        """Return the same parameters with another network namespace."""
        if netns == self.netns:
            return self
        # Not the constructor: it would copy the arguments through JSON once more.
        changed = object.__new__(RuntimeConf)
        for name in RuntimeConf.__slots__:
            object.__setattr__(changed, name, netns if name == "netns" else getattr(self, name))
        return changed

    def check(self) -> None:
        """Check that all names follow the rules (spec 1.1.0, section 2, Parameters). Every verb calls this first.

        Raises:
            InvalidIdentifierError: a name breaks its rule.
        """
        validate_container_id(self.container_id)
        validate_interface_name(self.ifname)
        netns: object = self.netns
        if netns is not None and not (isinstance(netns, str) and is_environment_text(netns)):
            problem = "it must be a string that an environment variable can hold"
            raise InvalidIdentifierError("network namespace", netns, problem)


def _frozen(name: str, value: Mapping[str, Any] | CapabilityArgs | None) -> Mapping[str, Any] | None:
    """Return a read-only copy of ``value`` as JSON decodes it."""
    if value is None:
        return None
    plain = as_mapping(value, name)
    try:
        # The round trip through JSON copies everything: the record and the plugins must get the same values even if the
        # caller changes the objects while the verb runs. It also finds values without a JSON form before anything runs.
        copy = jsontext.parse(jsontext.check_size(jsontext.dumps(dict(plain)), inf))
    except CNIError:
        raise
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"it has no JSON form: {error}", location=name) from error
    return MappingProxyType(copy)


def as_mapping(value: Mapping[str, Any] | CapabilityArgs | None, name: str = "capability_args") -> Mapping[str, Any]:
    """Return arguments as a mapping, {} for None. Raises ConfigError for a value of another type."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    from libcni.config.capability_args import CapabilityArgs  # it imports pydantic

    if not isinstance(value, CapabilityArgs):
        raise ConfigError(f"it must be a mapping of names to values, not {short_repr(value)}", location=name)
    return value.to_json()
