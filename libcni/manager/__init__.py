"""Attach a container to all of its networks at once, as go-cni and ocicni do in Go.

from libcni import CNIConfig
from libcni.manager import Container, NetworkManager

manager = NetworkManager(CNIConfig("/opt/cni/bin"), loopback=True)
result = manager.set_up(Container("c1", "/run/netns/c1", ["front", "back@net1"]))
result.addresses, result.resolv_conf
manager.tear_down("c1")

The names are resolved on first use: a program that blocks does not load asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.manager.async_manager import AsyncNetworkManager
    from libcni.manager.container import Container, NetworkRequest, PlannedAttachment, pod_args
    from libcni.manager.container_result import AttachmentResult, ContainerResult, InterfaceResult
    from libcni.manager.manager import NetworkManager
    from libcni.manager.namespaces import NamespaceError, NamespaceMaker
    from libcni.manager.networks import LOOPBACK, NetworkSet
    from libcni.manager.report import Item, Report
    from libcni.manager.status import ManagerStatus, NetworkState

_MODULES = {
    "async_manager": "AsyncNetworkManager",
    "container": "Container NetworkRequest PlannedAttachment pod_args",
    "container_result": "AttachmentResult ContainerResult InterfaceResult",
    "manager": "NetworkManager",
    "namespaces": "NamespaceError NamespaceMaker",
    "networks": "LOOPBACK NetworkSet",
    "report": "Item Report",
    "status": "ManagerStatus NetworkState",
}

__all__ = [
    "LOOPBACK", "AsyncNetworkManager", "AttachmentResult", "Container", "ContainerResult", "InterfaceResult", "Item",
    "ManagerStatus", "NamespaceError", "NamespaceMaker", "NetworkManager", "NetworkRequest", "NetworkSet",
    "NetworkState", "PlannedAttachment", "Report", "pod_args",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers read the imports above, and report misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
