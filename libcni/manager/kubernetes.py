"""Kubernetes' words: a pod's CNI_ARGS, and networks selected as Multus reads them from an annotation.

The documents are those of the Network Plumbing Working Group's de facto standard, version 1.3.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libcni.config import jsontext
from libcni.config.capabilities import CapabilityArgs
from libcni.config.identifiers import check_ifname
from libcni.config.jsontext import JSONTextError
from libcni.config.network import NetworkConfigList
from libcni.config.schema import describe
from libcni.errors import ConfigError, NetworkNotFoundError
from libcni.manager.container import Capabilities, Container, NetworkRequest, as_mapping, merged
from libcni.manager.container_result import ContainerResult

__all__ = [
    "AttachmentDefinitions",
    "NetworkAttachmentDefinition",
    "NetworkSelection",
    "Pod",
    "network_status",
    "parse_selection",
]

KIND = "NetworkAttachmentDefinition"


class NetworkSelection(BaseModel):
    """One network that a pod asks for.

    Anything else, such as ``default-route``, is refused: nobody here would do it.

    Attributes:
        name (str): the NetworkAttachmentDefinition's name.
        namespace (str | None): its namespace; None: ``default``.
        interface (str | None): the interface's name; None: by its place.
        ips (tuple[str, ...] | None): a capability argument: addresses, with or without prefix length.
        mac (str | None): likewise: the hardware address.
        port_mappings (tuple[dict[str, Any], ...] | None): likewise: ports of the host that lead into the container.
        bandwidth (dict[str, int] | None): likewise: limits of the interface, bits and bits per second.
        infiniband_guid (str | None): likewise: the InfiniBand GUID.
        device_id (str | None): likewise: the device to use.
        cni_args (dict[str, Any] | None): what goes under ``args.cni``.
    """

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
        """Return what the selection says as capability arguments.

        Raises:
            ConfigError: a value that the convention does not allow.
        """
        given: dict[str, Any] = {
            "ips": self.ips,
            "mac": self.mac,
            "port_mappings": self.port_mappings,
            "bandwidth": self.bandwidth,
            "infiniband_guid": self.infiniband_guid,
            "device_id": self.device_id,
        }
        return CapabilityArgs(**{name: value for name, value in given.items() if value is not None}).to_args()


def parse_selection(annotation: str, namespace: str = "default") -> tuple[NetworkSelection, ...]:
    """Read the annotation ``k8s.v1.cni.cncf.io/networks``: ``[namespace/]name[@ifname],...`` or a JSON list.

    ``namespace``: the pod's, for selections without one.

    Raises:
        ConfigError: it is neither.
        InvalidIdentifierError: an interface name that breaks the rules.
    """
    text = annotation.strip()
    items = (
        _json_items(text) if text.startswith(("[", "{")) else [_short_item(part) for part in text.split(",") if text]
    )
    return tuple(_selection(item, index, namespace) for index, item in enumerate(items))


def _json_items(text: str) -> list[Any]:
    try:
        items = jsontext.parse(text)
    except JSONTextError as error:
        raise ConfigError(error.problem, file="network selection", location=error.location) from error
    return items if isinstance(items, list) else [items]


def _short_item(part: str) -> dict[str, str]:
    place, at, ifname = part.strip().partition("@")
    namespace, slash, name = place.rpartition("/")
    if not name or "/" in namespace or (at and not ifname) or (slash and not namespace):
        raise ConfigError(f"{part.strip()!r} is not [namespace/]name[@ifname]", file="network selection")
    found = {"name": name, "namespace": namespace, "interface": ifname}
    return {key: value for key, value in found.items() if value}


def _selection(item: Any, index: int, namespace: str) -> NetworkSelection:
    try:
        selection = NetworkSelection.model_validate(item)
    except ValidationError as error:
        place, problem = describe(error.errors(include_url=False)[0], f"[{index}]")
        raise ConfigError(problem, file="network selection", location=place) from error
    if selection.interface is not None:
        check_ifname(selection.interface)
    return selection if selection.namespace else selection.model_copy(update={"namespace": namespace})


@dataclass(frozen=True, slots=True)
class NetworkAttachmentDefinition:
    """A network as a Kubernetes object.

    Attributes:
        name: the object's.
        namespace: the object's.
        net: its configuration; None where ``spec.config`` is empty: then the network of that name on the node's disk.
        annotations: the object's, such as ``k8s.v1.cni.cncf.io/resourceName``.
    """

    name: str
    namespace: str = "default"
    net: NetworkConfigList | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_object(cls, document: Any, *, file: str | None = None) -> NetworkAttachmentDefinition:
        """Read a decoded document. A configuration without a name gets the object's.

        Raises:
            ConfigError: it is no such object, or its configuration is wrong; the error names ``file`` and the place.
        """
        try:
            found = _Object.model_validate(document)
        except ValidationError as error:
            place, problem = describe(error.errors(include_url=False)[0])
            raise ConfigError(problem, file=file, location=place) from error
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
        definitions: of those with the same namespace and name, the last counts.
    """

    def __init__(self, definitions: Iterable[NetworkAttachmentDefinition] = ()) -> None:
        self._by_name = {(one.namespace, one.name): one for one in definitions}

    @classmethod
    def from_yaml(cls, text: str | bytes, *, file: str | None = None) -> AttachmentDefinitions:
        """Read a YAML stream; documents of other kinds, and lists of objects, are looked through.

        Raises:
            ConfigError: it is no YAML, or a definition is wrong.
        """
        try:
            documents = [one for one in yaml.safe_load_all(text) if one is not None]
        except yaml.YAMLError as error:
            raise ConfigError(f"it is no YAML: {error}", file=file) from error
        objects = [inner for one in documents for inner in _objects(one)]
        return cls(
            NetworkAttachmentDefinition.from_object(one, file=file)
            for one in objects
            if isinstance(one, dict) and one.get("kind") == KIND
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AttachmentDefinitions:
        """Read a YAML file.

        Raises:
            ConfigError: as ``from_yaml`` does; also a file that cannot be read.
        """
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=os.fspath(path)) from error
        return cls.from_yaml(data, file=os.fspath(path))

    def get(self, name: str, namespace: str = "default") -> NetworkAttachmentDefinition:
        """Return a definition.

        Raises:
            NetworkNotFoundError: there is none.
        """
        found = self._by_name.get((namespace, name))
        if found is None:
            known = ", ".join("/".join(key) for key in self._by_name)
            hint = f"there are: {known}" if known else None
            raise NetworkNotFoundError(f"no {KIND} {namespace}/{name}", network=name, hint=hint)
        return found

    def request(self, selection: NetworkSelection) -> NetworkRequest:
        """Return a selection as a network request.

        Raises:
            NetworkNotFoundError: there is no such definition.
            ConfigError: a capability argument that the convention does not allow.
        """
        definition = self.get(selection.name, selection.namespace or "default")
        return NetworkRequest(
            definition.net or definition.name,
            selection.interface,
            capability_args=selection.capability_args(),
            network_args={"cni": selection.cni_args} if selection.cni_args else None,
        )


def _objects(document: Any) -> Sequence[Any]:
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else [document]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, with what Kubernetes' plugins want to know of it.

    Attributes:
        namespace: the pod's.
        name: the pod's.
        uid: the pod's.
        sandbox_id: the ID of its infrastructure container, which is the container's ID for CNI.
        netns: the path of its network namespace.
    """

    namespace: str
    name: str
    uid: str
    sandbox_id: str
    netns: str | None = None

    def args(self) -> tuple[tuple[str, str], ...]:
        """Return CNI_ARGS as the kubelet's runtimes give them."""
        return (
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", self.namespace),
            ("K8S_POD_NAME", self.name),
            ("K8S_POD_INFRA_CONTAINER_ID", self.sandbox_id),
            ("K8S_POD_UID", self.uid),
        )

    def container(  # noqa: PLR0913 - all that a pod's networks depend on
        self,
        *,
        default: Sequence[str | NetworkRequest],
        selection: str = "",
        definitions: AttachmentDefinitions | None = None,
        capability_args: Capabilities | None = None,
        args: Mapping[str, str] | None = None,
        ip: str | None = None,
        mac: str | None = None,
    ) -> Container:
        """Return the container to set up: the cluster's networks, then those that the pod selects as net1, net2, ...

        Args:
            default: the cluster's networks; they are eth0, ..., and get ``capability_args``.
            selection: the annotation ``k8s.v1.cni.cncf.io/networks``.
            definitions: what the selection selects from.
            capability_args: port mappings, bandwidth and the like.
            args: further CNI_ARGS.
            ip: the address that is asked for, as CNI_ARGS ``IP``.
            mac: the hardware address that is asked for, as CNI_ARGS ``MAC``.

        Raises:
            ConfigError: the selection, ``ip`` or ``mac``.
            InvalidIdentifierError: the selection.
            NetworkNotFoundError: likewise.
        """
        chosen = parse_selection(selection, self.namespace)
        known = definitions or AttachmentDefinitions()
        names = _net_names([one.interface for one in chosen])
        cluster = [NetworkRequest.parse(one) if isinstance(one, str) else one for one in default]
        requests = [
            *(_with_capabilities(one, capability_args or {}) for one in cluster),
            *(_named(known.request(one), name) for one, name in zip(chosen, names, strict=True)),
        ]
        return Container(
            self.sandbox_id, self.netns, requests, args=(*self.args(), *(args or {}).items(), *_asked(ip, mac))
        )


def _asked(ip: str | None, mac: str | None) -> list[tuple[str, str]]:
    CapabilityArgs(ips=None if ip is None else (ip,), mac=mac)  # raises ConfigError
    return [(key, text) for key, text in (("IP", ip), ("MAC", mac)) if text is not None]


def _with_capabilities(request: NetworkRequest, capability_args: Capabilities) -> NetworkRequest:
    given = merged(as_mapping(capability_args), as_mapping(request.capability_args))
    return NetworkRequest(request.network, request.ifname, request.args, given, request.network_args)


def _named(request: NetworkRequest, ifname: str) -> NetworkRequest:
    return NetworkRequest(request.network, ifname, request.args, request.capability_args, request.network_args)


def _net_names(given: Sequence[str | None]) -> list[str]:
    """Return interface names as Multus gives them: net and the selection's number, from 1."""
    return [name if name is not None else f"net{index}" for index, name in enumerate(given, 1)]


def network_status(result: ContainerResult) -> list[dict[str, Any]]:
    """Return what the annotation ``k8s.v1.cni.cncf.io/network-status`` says; the first network is the default."""
    rows = [one for one in result.attached if one.ifname != "lo"]
    return [
        {
            "name": one.network,
            "interface": one.own.name,
            "ips": [str(address.ip) for address in one.own.addresses],
            **({"mac": one.own.mac} if one.own.mac else {}),
            **({"mtu": one.own.mtu} if one.own.mtu else {}),
            "default": index == 0,
            "dns": one.result.dns.to_json(),
        }
        for index, one in enumerate(rows)
    ]
