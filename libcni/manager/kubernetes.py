"""Kubernetes: a pod's CNI_ARGS, and its networks, selected by annotation as for Multus.

The formats are those of the Network Plumbing Working Group's de facto standard, version 1.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libcni.config import jsontext
from libcni.config.capabilities import CapabilityArgs, config_error
from libcni.config.cni_args import check_args
from libcni.config.identifiers import check_ifname
from libcni.config.jsontext import JSONTextError
from libcni.config.network import NetworkConfigList, read_document
from libcni.config.yamltext import read_yaml
from libcni.errors import ConfigError, NetworkNotFoundError
from libcni.manager.container import Capabilities, Container, NetworkRequest, as_mapping, merged

__all__ = [
    "AttachmentDefinitions",
    "NetworkAttachmentDefinition",
    "NetworkSelection",
    "Pod",
    "parse_selection",
]

_ModelT = TypeVar("_ModelT", bound=BaseModel)

KIND = "NetworkAttachmentDefinition"
# The fields of a selection that are capability arguments; CapabilityArgs has the same names.
_CAPABILITIES = {"ips", "mac", "port_mappings", "bandwidth", "infiniband_guid", "device_id"}


class NetworkSelection(BaseModel):
    """One network that a pod selects. Unknown keys are refused.

    Attributes:
        name (str): the NetworkAttachmentDefinition's name.
        namespace (str | None): its namespace; None: ``default``.
        interface (str | None): the interface's name; None: net1, net2, ... by its position.
        ips (tuple[str, ...] | None): capability argument: addresses, with or without prefix length.
        mac (str | None): capability argument: the hardware address.
        port_mappings (tuple[dict[str, Any], ...] | None): capability argument: the host's ports that are forwarded to
            the container.
        bandwidth (dict[str, int] | None): capability argument: limits of the interface, bits and bits per second.
        infiniband_guid (str | None): capability argument: the InfiniBand GUID.
        device_id (str | None): capability argument: the device to use.
        cni_args (dict[str, Any] | None): the object under ``args.cni``.

    Examples:
        >>> NetworkSelection(name="storage", interface="net1", mac="c2:11:22:33:44:55").capability_args()
        {'mac': 'c2:11:22:33:44:55'}
    """

    # Unknown keys are refused: a misspelt "default-route" would silently route a pod through the wrong network.
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(min_length=1)
    namespace: str | None = None
    interface: str | None = None
    ips: tuple[str, ...] | None = None
    mac: str | None = None
    port_mappings: tuple[dict[str, Any], ...] | None = Field(default=None, alias="portMappings")
    bandwidth: dict[str, int] | None = None
    infiniband_guid: str | None = Field(default=None, alias="infiniband-guid")
    device_id: str | None = Field(default=None, alias="deviceID")
    cni_args: dict[str, Any] | None = Field(default=None, alias="cni-args")

    def capability_args(self) -> dict[str, Any]:
        """Return the capability arguments of the selection.

        Raises:
            ConfigError: the convention does not allow a value.
        """
        return CapabilityArgs(**self.model_dump(include=_CAPABILITIES, exclude_none=True)).to_args()


def parse_selection(annotation: str, namespace: str = "default") -> tuple[NetworkSelection, ...]:
    """Read the annotation ``k8s.v1.cni.cncf.io/networks``: ``[namespace/]name[@ifname],...`` or a JSON list.

    ``namespace``: the pod's, for selections without one.

    Raises:
        ConfigError: the annotation has neither form.
        InvalidIdentifierError: an interface name breaks the rules.
    """
    text = annotation.strip()
    if text.startswith(("[", "{")):
        try:
            items = jsontext.parse(text)
        except JSONTextError as error:
            raise ConfigError(error.problem, file="network selection", location=error.location) from error
    else:
        items = [_short_item(part) for part in text.split(",") if text]
    items = items if isinstance(items, list) else [items]
    return tuple(_selection(item, index, namespace) for index, item in enumerate(items))


def _short_item(part: str) -> dict[str, str]:
    network, at, ifname = part.strip().partition("@")
    namespace, slash, name = network.rpartition("/")
    if not name or "/" in namespace or (at and not ifname) or (slash and not namespace):
        raise ConfigError(f"{part.strip()!r} is not [namespace/]name[@ifname]", file="network selection")
    found = {"name": name, "namespace": namespace, "interface": ifname}
    return {key: value for key, value in found.items() if value}


def _selection(item: Any, index: int, namespace: str) -> NetworkSelection:
    if isinstance(item, dict) and "default-route" in item:
        # Without the route, the pod would use another network than its author wants.
        hint = "take the key out, and set the route after the set-up"
        problem = "libcni sets no default routes"
        raise ConfigError(problem, file="network selection", location=f"[{index}].default-route", hint=hint)
    selection = _validated(NetworkSelection, item, "network selection", f"[{index}]")
    if selection.interface is not None:
        check_ifname(selection.interface)
    return selection if selection.namespace else selection.model_copy(update={"namespace": namespace})


@dataclass(frozen=True, slots=True)
class NetworkAttachmentDefinition:
    """A network as a Kubernetes object.

    Attributes:
        name: the object's name.
        namespace: the object's namespace.
        net: its configuration; None if ``spec.config`` is empty: then the node's network of that name is used.
        annotations: the object's annotations, for example ``k8s.v1.cni.cncf.io/resourceName``.

    Examples:
        >>> NetworkAttachmentDefinition("storage", net=net).net.name
        'dbnet'
    """

    name: str
    namespace: str = "default"
    net: NetworkConfigList | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_object(cls, document: Any, *, file: str | None = None) -> NetworkAttachmentDefinition:
        """Read a decoded document. A configuration without a name gets the object's name.

        Raises:
            ConfigError: the document or its configuration is invalid; the error names ``file`` and the location.
        """
        found = _validated(_Object, document, file)
        if found.kind != KIND:
            raise ConfigError(f"the kind is {found.kind!r}, not {KIND}", file=file, location="kind")
        name = found.metadata.name
        try:
            net = _network(found.spec.config, name) if found.spec.config.strip() else None
        except ConfigError as error:
            where = f"{name}: spec.config" + (f": {error.location}" if error.location else "")
            raise ConfigError(error.problem, file=file, location=where, hint=error.hint) from error
        return cls(name, found.metadata.namespace, net, found.metadata.annotations)


class _Metadata(BaseModel):
    name: str = Field(min_length=1)
    namespace: str = "default"
    annotations: dict[str, str] = {}


class _Spec(BaseModel):
    config: str = ""


class _Object(BaseModel):
    kind: str
    metadata: _Metadata
    spec: _Spec = _Spec()


def _validated(model: type[_ModelT], document: Any, file: str | None, location: str = "") -> _ModelT:
    """Read a document with a model; raises ConfigError, which names the file and the location in it."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise config_error(error, location, file) from error


def _network(config: str, name: str) -> NetworkConfigList:
    try:
        found = jsontext.members(config)
    except JSONTextError as error:
        raise ConfigError(error.problem, location=error.location) from error
    if all(member.key != "name" for member in found):
        rest = [(member.key_text, member.text) for member in found]
        config = jsontext.join_object([('"name"', jsontext.dumps(name)), *rest])
    return NetworkConfigList.from_bytes(config)


class AttachmentDefinitions:
    """NetworkAttachmentDefinitions by namespace and name.

    Args:
        definitions: the definitions; if two have the same namespace and name, the last one is used.

    Examples:
        >>> definitions = AttachmentDefinitions.from_yaml('''
        ... kind: NetworkAttachmentDefinition
        ... metadata: {name: storage}
        ... spec: {config: '{"cniVersion": "1.0.0", "name": "storage", "type": "macvlan"}'}
        ... ''')
        >>> definitions.get("storage").net.name
        'storage'
    """

    def __init__(self, definitions: Iterable[NetworkAttachmentDefinition] = ()) -> None:
        self._by_name = {(one.namespace, one.name): one for one in definitions}

    @classmethod
    def from_yaml(cls, text: str | bytes, *, file: str | None = None) -> AttachmentDefinitions:
        """Read a YAML stream. Search lists, and ignore documents of other kinds.

        Raises:
            ConfigError: the text is not YAML, has aliases that expand, or a definition is invalid.
        """
        objects: list[Any] = []
        for one in read_yaml(text, file):
            items = one.get("items") if isinstance(one, dict) else None
            objects += items if isinstance(items, list) else [one]
        return cls(
            NetworkAttachmentDefinition.from_object(one, file=file)
            for one in objects
            if isinstance(one, dict) and one.get("kind") == KIND
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AttachmentDefinitions:
        """Read a YAML file.

        Raises:
            ConfigError: as for ``from_yaml``, or the file cannot be read.
        """
        return cls.from_yaml(read_document(path), file=os.fspath(path))

    def get(self, name: str, namespace: str = "default") -> NetworkAttachmentDefinition:
        """Return a definition.

        Raises:
            NetworkNotFoundError: there is none.
        """
        found = self._by_name.get((namespace, name))
        if found is None:
            known = tuple("/".join(key) for key in self._by_name)
            raise NetworkNotFoundError(f"no {KIND} {namespace}/{name}", network=name, known=known)
        return found

    def request(self, selection: NetworkSelection) -> NetworkRequest:
        """Return a selection as a network request.

        Raises:
            NetworkNotFoundError: there is no such definition.
            ConfigError: the convention does not allow a capability argument.
        """
        definition = self.get(selection.name, selection.namespace or "default")
        return NetworkRequest(
            definition.net or definition.name,
            selection.interface,
            capability_args=selection.capability_args(),
            network_args={"cni": selection.cni_args} if selection.cni_args else None,
        )


@dataclass(frozen=True, slots=True)
class Pod:
    """A Kubernetes pod.

    Attributes:
        namespace: the pod's namespace.
        name: the pod's name.
        uid: the pod's UID.
        sandbox_id: the ID of its infrastructure container, which is the container's ID for CNI.
        netns: the path of its network namespace.

    Examples:
        >>> dict(Pod("default", "web", "5f0c", sandbox_id="c1").args())["K8S_POD_NAME"]
        'web'
    """

    namespace: str
    name: str
    uid: str
    sandbox_id: str
    netns: str | os.PathLike[str] | None = None

    def args(self) -> tuple[tuple[str, str], ...]:
        """Return the CNI_ARGS that container runtimes pass for a pod."""
        return (
            # Without it Go's plugins refuse keys that they do not know (pkg/types/args.go).
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", self.namespace),
            ("K8S_POD_NAME", self.name),
            ("K8S_POD_INFRA_CONTAINER_ID", self.sandbox_id),
            ("K8S_POD_UID", self.uid),
        )

    def container(  # noqa: PLR0913 - all that a pod's networks depend on
        self,
        *,
        default: Iterable[str | NetworkRequest],
        selection: str = "",
        definitions: AttachmentDefinitions | None = None,
        capability_args: Capabilities | None = None,
        args: Mapping[str, str] | None = None,
        ip: str | None = None,
        mac: str | None = None,
    ) -> Container:
        """Return the container to set up: the cluster's networks first, then the pod's selected ones as net1, net2, ...

        Args:
            default: the cluster's networks; they become eth0, eth1, ...
            selection: the annotation ``k8s.v1.cni.cncf.io/networks``.
            definitions: the definitions that the selection names.
            capability_args: port mappings, bandwidth and so on, for the first of the cluster's networks. For another
                network, put a NetworkRequest into ``default``.
            args: further CNI_ARGS, for every network.
            ip: the requested address, as CNI_ARGS ``IP`` of the first of the cluster's networks.
            mac: the requested hardware address, as CNI_ARGS ``MAC`` of the first of the cluster's networks.

        Raises:
            ConfigError: the selection, ``ip`` or ``mac`` is malformed.
            InvalidIdentifierError: an interface name in the selection breaks the rules.
            NetworkNotFoundError: the selection names an unknown definition.
        """
        chosen = parse_selection(selection, self.namespace)
        known = definitions or AttachmentDefinitions()
        # As in Multus: "net" and the number of the selection, even if earlier selections name their interfaces.
        names = [one.interface or f"net{index}" for index, one in enumerate(chosen, 1)]
        cluster = [NetworkRequest.parse(one) if isinstance(one, str) else one for one in default]
        CapabilityArgs(ips=None if ip is None else (ip,), mac=mac)  # raises ConfigError
        requested = {key: text for key, text in (("IP", ip), ("MAC", mac)) if text is not None}
        # An address or a host port belongs to one interface. A second network would refuse it.
        for first in cluster[:1]:
            capabilities = merged(as_mapping(capability_args), as_mapping(first.capability_args))
            own = {**requested, **dict(check_args(first.args))}
            cluster[0] = replace(first, capability_args=capabilities, args=own)
        selected = [replace(known.request(one), ifname=name) for one, name in zip(chosen, names, strict=True)]
        return Container(self.sandbox_id, self.netns, [*cluster, *selected], args=(*self.args(), *(args or {}).items()))
