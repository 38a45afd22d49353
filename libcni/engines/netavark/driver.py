"""Attach podman's containers to CNI networks, and detach them.

netavark calls a driver once for each network of a container. It does not tear down an attachment if the set-up failed,
if it cannot read the driver's answer, or if the container's namespace has gone. So a failed ``setup`` leaves nothing,
and an attachment that podman does not tear down stays on record for ``libcni repair --owner podman``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from libcni.config.runtime_conf import RuntimeConf
from libcni.engines.netavark.podman_request import OWNER, Request, read_options
from libcni.errors import CNIError, ConfigError, Hint, NetworkNotFoundError
from libcni.options import DelPolicy
from libcni.store.model import ENDED

if TYPE_CHECKING:
    from libcni.client import CNIConfig
    from libcni.config.network import NetworkConfigList
    from libcni.store.attachments import Attachment

logger: logging.Logger = logging.getLogger("libcni")

_REFUSED = {
    "subnets": ("--subnet, --gateway and --ip-range", 'write the addresses into "ipam"'),
    "ipam_driver": ("--ipam-driver", 'write the driver into "ipam" as its "type"'),
    "routes": ("--route", 'write "routes" into "ipam"'),
    "network_interface": ("--interface-name", 'write the interface of the host into "bridge" or "master"'),
    "network_dns_servers": ("--dns", 'write name servers into "dns", or use podman run --dns'),
    "internal": ("--internal", 'leave out "isGateway", "ipMasq" and the default route'),
    "ipv6_enabled": ("--ipv6", 'write a range of IPv6 addresses into "ipam"'),
}
"""Options of podman's networks that CNI lacks: the member, the options, and the CNI configuration to use instead."""
_POLICY = DelPolicy(keep_going=True)


class Driver:
    """The verbs that netavark calls on a driver: create, setup and teardown.

    Args:
        cni: a client with the owner ``OWNER``.
    """

    def __init__(self, cni: CNIConfig) -> None:
        self._cni = cni

    def create(self, network: dict[str, Any]) -> dict[str, Any]:
        """Check a new network of podman, and return it as podman shall store it.

        Raises:
            CNIError: the CNI network or one of its plugins is missing, or podman was given options that CNI lacks.
        """
        options = read_options(network)
        net = self._cni.network(options.conf)
        values = {**network, "ipam_driver": (network.get("ipam_options") or {}).get("driver")}
        for key, (flags, instead) in _REFUSED.items():
            if values.get(key):
                raise ConfigError(f"{flags} cannot be used with the driver cni", hint=f"in {net.file}: {instead}")
        _check_declared(net, options.capabilities)
        if problems := self._cni.validate_network_list(net).problems:
            raise problems[0]
        for ipam_type in filter(None, (plugin.ipam_type for plugin in net.plugins)):
            self._cni.find_plugin(ipam_type)
        # The name server of podman, aardvark-dns, serves netavark's own bridges alone.
        return {**network, "dns_enabled": False, "options": {**(network.get("options") or {}), "conf": options.conf}}

    def setup(self, netns: str, request: Request) -> dict[str, Any]:
        """Attach a container, and return podman's status block.

        Raises:
            CNIError: the container cannot be attached. No attachment is left, or a record names what is left.
        """
        from libcni.engines.netavark.status_block import (  # a teardown does not need this module
            check_granted,
            status_block,
        )

        net = self._cni.network(request.options.conf)
        rt = _runtime_conf(net, netns, request)
        own, others = self._recorded(request)
        for other in others:
            # Podman 4 left records of Go libcni, and its containers keep their IDs.
            if not (other.made_by_go and other.state in ENDED):
                whose = f"the owner {other.owner}" if other.owner else "another program"
                where = f"container {rt.container_id}, interface {rt.ifname}"
                problem = f"{where}: {whose} has already attached this interface to network {other.network}"
                raise CNIError(problem, hint=_remedy(rt))
        # If podman was killed before it stored the answer, a record of this driver is left.
        result = self._cni.add_network_list(net, rt, on_existing="replace" if own else "refuse")
        try:
            status = status_block(net.name, netns, rt.ifname, result)
            check_granted(status, net.name, rt.ifname, request.ips, request.mac)
        except BaseException as error:
            self.undo(request, error)
            raise
        return status

    def undo(self, request: Request, error: BaseException) -> None:
        """Detach what a failed ``setup`` attached, because podman does not store it; ``error``: the failure."""
        try:
            self._cni.del_attachments(self._recorded(request)[0], policy=_POLICY)
        except CNIError as problem:
            if isinstance(error, CNIError):
                error.rollback_errors = (problem,)
            logger.warning("container %s: the roll-back failed: %s", request.container_id, problem)

    def teardown(self, netns: str, request: Request) -> None:
        """Detach a container with its record alone. A container that is not attached is no error.

        Raises:
            CNIError: the attachment could not be detached; it stays on record.
        """
        rt = RuntimeConf(request.container_id, netns, request.ifname)
        own, others = self._recorded(request)
        if own:
            self._cni.del_attachments(own, policy=_POLICY)
        elif others:
            logger.warning(
                "container %s: %s stays: another owner attached it (%s)", rt.container_id, rt.ifname, _remedy(rt)
            )
        else:
            # The record is torn or lost. The reservation of an address names the container, so it is podman's.
            try:
                self._cni.del_network_list(request.options.conf, rt, policy=_POLICY)
            except NetworkNotFoundError:
                logger.warning(
                    "container %s: nothing was detached: there is no record, and network %s has no configuration",
                    rt.container_id,
                    request.options.conf,
                )

    def _recorded(self, request: Request) -> tuple[list[Attachment], list[Attachment]]:
        """Return the attachments on record of a container's interface: this driver's, and those of others."""
        recorded = self._cni.get_cached_attachments(request.container_id)
        attachments = [
            attachment for attachment in recorded if attachment.network and attachment.ifname == request.ifname
        ]
        own = [attachment for attachment in attachments if attachment.owner == OWNER]
        return own, [attachment for attachment in attachments if attachment.owner != OWNER]


def _remedy(rt: RuntimeConf) -> Hint:
    text = "if that program no longer uses the interface, detach the container from its network"
    return Hint(text, "del", container_id=rt.container_id, ifname=rt.ifname)


def _runtime_conf(net: NetworkConfigList, netns: str, request: Request) -> RuntimeConf:
    """Return the parameters of an ADD. Addresses and names go where the network's plugins read them."""
    # Podman 4 passed both, and the plugin dnsname reads K8S_POD_NAME.
    args = {"IgnoreUnknown": "1", "K8S_POD_NAME": request.container_name, **request.options.args}
    capabilities = dict(request.options.capabilities)
    network_args: dict[str, Any] = {}
    declared = {name for plugin in net.plugins for name in plugin.capabilities}
    if request.ips and "ips" in declared:
        capabilities["ips"] = list(request.ips)
    elif len(request.ips) == 1:
        # Configurations of podman 4 declare no "mac", older ones no "ips" either. CNI_ARGS hold one address.
        args["IP"] = request.ips[0]
    elif request.ips:
        network_args["cni"] = {"ips": list(request.ips)}
    if request.mac and "mac" in declared:
        capabilities["mac"] = request.mac
    elif request.mac:
        args["MAC"] = request.mac
    if request.aliases and "aliases" in declared:
        is_dnsname = any(plugin.type == "dnsname" for plugin in net.plugins)
        capabilities["aliases"] = {net.name: request.aliases} if is_dnsname else request.aliases
    if request.ports and request.options.publishes:
        capabilities["portMappings"] = request.ports
    _check_declared(net, capabilities)
    return RuntimeConf(request.container_id, netns, request.ifname, args, capabilities, network_args)


def _check_declared(net: NetworkConfigList, capabilities: Mapping[str, Any]) -> None:
    """Refuse arguments that no plugin reads: a port that is silently not published is worse than an error."""
    for name in net.unused_capabilities(capabilities):
        hint, does = None, f'declares the capability "{name}"'
        if name == "portMappings":
            hint, does = (
                f"add portmap to {net.file}, or publish no port on this network: --network NAME:ports=ignore",
                "publishes ports",
            )
        raise ConfigError(f"no plugin of CNI network {net.name} {does}", hint=hint)
