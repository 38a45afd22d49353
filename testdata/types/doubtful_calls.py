"""Mistakes that a program can make with the library: both type checkers must refuse every line that ends in "doubtful".

``make types`` runs mypy and pyright over this file (scripts/doubtful_calls.py). It is never executed.
"""

import libcni
from libcni.executor import CallOptions, find_plugin
from libcni.manager import AsyncNetworkManager, Container, NetworkManager, NetworkRequest
from libcni.observe import LoggingObserver, Observer, Operation
from libcni.options import AddOptions
from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import RecordingExecutor

cni = libcni.CNIConfig("/opt/cni/bin")
async_cni = libcni.AsyncCNIConfig("/opt/cni/bin")
manager = NetworkManager(cni)
async_manager = AsyncNetworkManager(async_cni)
rt = libcni.RuntimeConf("c1", "/run/netns/c1", "eth0")
container = Container("c1", None, ["front"])

libcni.PortMapping(hostport=1, container_port=2)  # doubtful: misspelt
libcni.PortMapping(hostPort=1, containerPort=2)  # doubtful: the keys of JSON
libcni.PortMapping(host_port="80", container_port=2)  # doubtful: text for a number
libcni.PortMapping(host_port=80)  # doubtful: a value is missing
libcni.CapabilityArgs(port_mapping=[])  # doubtful: misspelt
libcni.CapabilityArgs(ips="10.0.0.1")  # doubtful: a string is no list
libcni.CapabilityArgs(tier="gold")  # doubtful: unknown keys go into extra
libcni.CapabilityArgs(dns=libcni.DNSServers(servers="10.0.0.1"))  # doubtful: a string is no list
libcni.RuntimeConf("c1", "/run/netns/c1", "eth0", {"A": 1})  # doubtful: CNI_ARGS are text
libcni.RuntimeConf("c1", "/run/netns/c1")  # doubtful: no interface
libcni.DelPolicy(True)  # doubtful: which option
libcni.NetworkConfigList.from_dict([1])  # doubtful: a list is no document
libcni.CNIConfig("/opt/cni/bin", "/x", "/etc/cni/net.d")  # doubtful: options are named
libcni.CNIConfig("/opt/cni/bin", executor=RecordingExecutor().on_asyncio)  # doubtful: an executor for asyncio
libcni.AsyncCNIConfig("/opt/cni/bin", executor=RecordingExecutor())  # doubtful: a blocking executor
cni.add_network_list("front", rt, timeout="3")  # doubtful: seconds are a number
cni.add_network_list("front", rt, on_existing="alow")  # doubtful: misspelt
cni.gc_network_list("front", ["c1"])  # doubtful: an ID is no attachment
cni.gc_network_list("front", [("c1", "eth0", "z")])  # doubtful: three parts
cni.del_network_list("front", rt).plugins[0].nope  # doubtful: no such field
NetworkManager(async_cni)  # doubtful: the client of the other kind
AsyncNetworkManager(cni)  # doubtful: the client of the other kind
manager.set_up("c1")  # doubtful: an ID is no container
manager.set_up(container, strct=True)  # doubtful: misspelt
manager.tear_down(["c1"])  # doubtful: one container at a time
NetworkRequest("front", "eth0", {"a": 1})  # doubtful: CNI_ARGS are text
LoggingObserver(level="INFO")  # doubtful: a level is a number
CallOptions(inherit=3)  # doubtful: a function that returns a descriptor
find_plugin(["bridge"], ["/opt/cni/bin"])  # doubtful: one plugin
options: AddOptions = {"on_exsting": "allow"}  # doubtful: misspelt


async def forget_to_wait() -> None:
    async_manager.set_up(container)  # doubtful: no await
    async_cni.add_network_list("front", rt).ips  # doubtful: no await
    await cni.add_network_list("front", rt)  # doubtful: nothing to wait for


class Wrong(Observer):
    def begin(self, operation: Operation) -> int:  # doubtful: environment variables, or None
        return 1


plugin = Plugin("p", versions="1.1")  # not doubtful to a type checker: the constructor refuses it


@plugin.add
def add(request: Request) -> None:
    request.result.add_ip("10.1.0.5/16", gatway="10.1.0.1")  # doubtful: misspelt
    raise VerbError("full", 11)  # doubtful: the code is named


def plugin_of(error: libcni.CNIError) -> str:
    return str(error.plugin)  # doubtful: only some errors have one
