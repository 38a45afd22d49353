"""Real plugins touch only what is one's own: a neighbour's interface, rules and record stay as they are."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import libcni
from libcni import (
    AsyncCNIConfig,
    CNIConfig,
    ConfigError,
    DelPolicy,
    InterfaceExistsError,
    NamespaceMismatchError,
    NetworkConfigList,
    PluginError,
    RecordError,
    RuntimeConf,
)

from .namespaces import PLUGIN_PATH, PLUGINS, Namespace

pytestmark = pytest.mark.real


PASS_ON = """[ $CNI_COMMAND != ADD ] || echo "$config" | tr -d '\\n' | sed 's/.*"prevResult":\\(.*\\)}$/\\1/'"""


class Client:
    """A client whose verbs are called alike, whether they block or run on asyncio."""

    def __init__(self, kind: type[CNIConfig | AsyncCNIConfig], *args: Any, **settings: Any) -> None:
        self._cni = kind(*args, **settings)
        self.records = CNIConfig(*args, **settings)

    def __call__(self, verb: str, *args: Any, **options: Any) -> Any:
        async def awaited() -> Any:
            return await getattr(self._cni, verb)(*args, **options)

        if isinstance(self._cni, AsyncCNIConfig):
            return asyncio.run(awaited())
        return getattr(self._cni, verb)(*args, **options)


class Machine:
    """A machine with one bridge network, its records and addresses."""

    def __init__(self, directory: Path, host: Namespace, kind: type[CNIConfig | AsyncCNIConfig]) -> None:
        self.directory = directory
        self.host = host
        self.kind = kind
        self.cache = directory / "cache"
        self.addresses = directory / "ipam"
        self.conf = directory / "net.d"
        self.conf.mkdir()
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.cni = self.client("")

    def client(self, owner: str) -> Client:
        path = [self.bin, PLUGINS]
        env = {"PATH": PLUGIN_PATH}
        return Client(self.kind, path, self.cache, conf_dir=self.conf, owner=owner, env=env)

    def network(self, name: str = "net", *plugins: dict[str, Any], bridge: Any = (), **more: Any) -> NetworkConfigList:
        ipam = {"type": "host-local", "subnet": "10.98.0.0/24", "dataDir": str(self.addresses)}
        first = {"type": "bridge", "bridge": f"br-{name}", "isGateway": True, "ipam": ipam, **dict(bridge)}
        return NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": name, **more, "plugins": [first, *plugins]})

    def shell(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\nconfig=$(cat)\n{body}\n")
        path.chmod(0o755)

    def rules(self) -> str:
        done = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True, env={"PATH": PLUGIN_PATH})
        return "\n".join(line.partition(" [")[0] for line in done.stdout.splitlines() if not line.startswith("#"))

    def reserved(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.addresses.rglob("10.*")}

    def everything_of(self, namespace: Namespace) -> Any:
        """Return all that a neighbour could lose: interfaces, addresses, rules and records."""
        links = [(link["ifname"], link.get("address")) for link in namespace.ip("link")]
        records = {path.name: path.read_bytes() for path in (self.cache / "results").glob("*")}
        return links, namespace.ip("address"), self.reserved(), self.rules(), records


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def machine(tmp_path: Path, host: Namespace, request: pytest.FixtureRequest) -> Machine:
    return Machine(tmp_path, host, request.param)


def conf(container_id: str, namespace: Namespace | str, ifname: str = "eth0", **more: Any) -> RuntimeConf:
    return RuntimeConf(container_id, namespace if isinstance(namespace, str) else namespace.path, ifname, **more)


def states(machine: Machine) -> list[tuple[str, str]]:
    return [(one.container_id, one.state) for one in machine.cni.records.get_cached_attachments()]


# before the first plugin


def test_an_interface_that_a_person_made_is_refused_and_stays(machine: Machine, container: Namespace) -> None:
    subprocess.run(["ip", "-n", container.name, "link", "add", "eth0", "type", "veth", "peer", "x"], check=True)
    before = machine.everything_of(container)
    with pytest.raises(InterfaceExistsError) as caught:
        machine.cni("add_network_list", machine.network(), conf("c1", container))
    assert (caught.value.ifname, caught.value.netns) == ("eth0", container.path)
    assert 'on_existing="allow"' in str(caught.value)
    assert machine.everything_of(container) == before
    assert machine.host.links() == ["lo"]


def test_the_interface_of_another_container_in_the_same_namespace_is_refused_and_stays(
    machine: Machine, container: Namespace
) -> None:
    net = machine.network()
    machine.cni("add_network_list", net, conf("one", container))
    before = machine.everything_of(container)
    with pytest.raises(InterfaceExistsError):
        machine.cni("add_network_list", net, conf("two", container))
    assert machine.everything_of(container) == before
    assert states(machine) == [("one", "ready")]
    machine.cni("check_network_list", net, conf("one", container))


def test_allow_lets_a_plugin_work_on_an_interface_that_exists(machine: Machine, container: Namespace) -> None:
    subprocess.run(["ip", "-n", container.name, "link", "add", "eth0", "type", "veth", "peer", "x"], check=True)
    machine.shell(
        "mtu",
        """[ $CNI_COMMAND != ADD ] || {
ip -n "$(basename "$CNI_NETNS")" link set "$CNI_IFNAME" mtu 1400; echo '{"cniVersion":"1.0.0"}'; }""",
    )
    net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "tune", "plugins": [{"type": "mtu"}]})
    with pytest.raises(InterfaceExistsError):
        machine.cni("add_network_list", net, conf("c1", container))
    machine.cni("add_network_list", net, conf("c1", container), on_existing="allow")
    assert container.link("eth0")["mtu"] == 1400


def test_lo_is_no_foreign_interface(machine: Machine, container: Namespace) -> None:
    document = {"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}
    machine.cni("add_network_list", NetworkConfigList.from_dict(document), conf("c1", container, "lo"))
    assert states(machine) == [("c1", "ready")]


@pytest.mark.parametrize("path", ["/proc/self/ns/net", "/proc/thread-self/ns/net"])
def test_the_programs_own_namespace_is_refused(machine: Machine, path: str) -> None:
    before = machine.everything_of(machine.host)
    with pytest.raises(ConfigError, match="of this program itself"):
        machine.cni("add_network_list", machine.network(), conf("c1", path))
    assert machine.everything_of(machine.host) == before
    assert states(machine) == []


def test_the_programs_own_namespace_by_another_path(machine: Machine) -> None:
    with pytest.raises(ConfigError):
        machine.cni("add_network_list", machine.network(), conf("c1", machine.host))
    machine.cni("add_network_list", machine.network(), conf("c1", machine.host), allow_own_netns=True)
    machine.cni("del_network_list", machine.network(), conf("c1", machine.host))


def test_without_the_privilege_to_look_add_goes_on(machine: Machine, container: Namespace) -> None:
    """As a user who may not enter namespaces, with a plugin that needs no privilege."""
    machine.shell("fake", """[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'""")
    net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "fake"}]})
    machine.directory.chmod(0o777)
    for directory in machine.directory.parents:
        if directory.owner() == "root" and str(directory).startswith("/tmp/"):
            directory.chmod(directory.stat().st_mode | 0o755)
    machine.cache.mkdir(mode=0o777)
    machine.cache.chmod(0o777)
    import_module("concurrent.futures.thread")  # this user may not be able to read Python's modules
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.setuid(65534)
            machine.cni("add_network_list", net, conf("c1", container, "lo0"))
            machine.cni("add_network_list", net, conf("c2", container, "lo"))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# DEL and CHECK


def test_del_in_the_namespace_of_another_container_is_refused(
    machine: Machine, container: Namespace, other: Namespace
) -> None:
    net = machine.network()
    machine.cni("add_network_list", net, conf("one", container))
    machine.cni("add_network_list", net, conf("two", other))
    before = machine.everything_of(container), machine.everything_of(other)
    for verb in ("del_network_list", "check_network_list"):
        with pytest.raises(NamespaceMismatchError) as caught:
            machine.cni(verb, net, conf("one", other))
        assert (caught.value.netns, caught.value.recorded_netns) == (other.path, container.path)
    assert (machine.everything_of(container), machine.everything_of(other)) == before
    machine.cni("del_network_list", net, conf("one", other), policy=DelPolicy(use_given=True))
    assert "eth0" not in other.links()


def test_a_path_that_leads_to_a_neighbour_by_now_is_not_entered(
    machine: Machine, container: Namespace, other: Namespace, tmp_path: Path
) -> None:
    net = machine.network()
    path = tmp_path / "ns"
    path.symlink_to(container.path)
    machine.cni("add_network_list", net, conf("one", str(path)))
    path.unlink()
    path.symlink_to(other.path)
    machine.cni("add_network_list", net, conf("two", other))
    links = other.links()
    assert dict(states(machine)) == {"one": "gone", "two": "ready"}
    machine.cni("del_network_list", net, conf("one", str(path)))
    assert other.links() == links
    assert dict(states(machine)) == {"two": "ready"}
    machine.cni("check_network_list", net, conf("two", other))


def test_a_del_that_fails_leaves_detaching_and_the_next_del_completes_it(
    machine: Machine, container: Namespace
) -> None:
    flag = machine.directory / "busy"
    machine.shell("last", f"[ $CNI_COMMAND != DEL ] || [ ! -e {flag} ] || exit 1\n{PASS_ON}")
    net = machine.network("net", {"type": "last"})
    machine.cni("add_network_list", net, conf("c1", container))
    flag.touch()
    with pytest.raises(PluginError):
        machine.cni("del_network_list", net, conf("c1", container))
    assert states(machine) == [("c1", "detaching")]
    with pytest.raises(libcni.NotAttachedError, match="its DEL has begun"):
        machine.cni("check_network_list", net, conf("c1", container))
    flag.unlink()
    machine.cni("del_network_list", net, conf("c1", container))
    assert states(machine) == []
    assert machine.reserved() == {"10.98.0.1": machine.reserved()["10.98.0.1"]} if machine.reserved() else True
    assert container.links() == ["lo"]


# an interface is not one's own because of its name


def test_del_without_a_record_in_the_namespace_of_another_container_is_refused(
    machine: Machine, container: Namespace
) -> None:
    net = machine.network()
    machine.client("theirs")("add_network_list", net, conf("one", container))
    before = machine.everything_of(container)
    for rt in (conf("two", container), conf("one", container)):
        with pytest.raises(NamespaceMismatchError, match="belongs to container one, network net"):
            machine.cni("del_network_list", machine.network("second"), rt)
    assert machine.everything_of(container) == before
    machine.cni("del_network_list", net, conf("two", ""))
    assert machine.everything_of(container) == before
    machine.cni("del_network_list", net, conf("two", container), policy=DelPolicy(use_given=True))
    assert container.links() == ["lo"]


def remake_by_hand(namespace: Namespace) -> None:
    subprocess.run(["ip", "-n", namespace.name, "link", "del", "eth0"], check=True)
    subprocess.run(["ip", "-n", namespace.name, "link", "add", "eth0", "type", "veth", "peer", "x"], check=True)


@pytest.mark.parametrize("way", ["del", "del by the record", "gc", "use_given", "DEL again"])
def test_an_interface_that_a_person_made_in_the_place_of_ones_own_stays(
    machine: Machine, container: Namespace, way: str
) -> None:
    flag = machine.directory / "busy"
    machine.shell("last", f"[ $CNI_COMMAND != DEL ] || [ ! -e {flag} ] || exit 1\n{PASS_ON}")
    net = machine.network("net", {"type": "last"})
    machine.cni("add_network_list", net, conf("c1", container))
    (attachment,) = machine.cni.records.get_cached_attachments()
    if way == "DEL again":
        flag.touch()
        with pytest.raises(PluginError):
            machine.cni("del_network_list", net, conf("c1", container))
        flag.unlink()
    remake_by_hand(container)
    link = container.link("eth0")
    if way == "del by the record":
        machine.cni("del_attachment", attachment)
    elif way == "gc":
        machine.cni("gc_network_list", net, [])
    elif way == "use_given":
        machine.cni("del_network_list", net, RuntimeConf("c1", None, "eth0"), policy=DelPolicy(use_given=True))
    else:
        machine.cni("del_network_list", net, conf("c1", container))
    assert container.link("eth0") == link
    assert states(machine) == []
    assert "10.98.0.2" not in machine.reserved()


def test_a_namespace_with_the_inode_of_one_that_has_gone_is_another_one(machine: Machine, container: Namespace) -> None:
    """The kernel gives the inode of a removed namespace to the next one."""
    net = machine.network()
    machine.cni("add_network_list", net, conf("one", container))
    subprocess.run(["ip", "netns", "del", container.name], check=True)
    subprocess.run(["ip", "netns", "add", container.name], check=True)
    path = machine.cache / "results" / "net-one-eth0"
    document = json.loads(path.read_bytes())
    status = os.stat(container.path)
    document["libcni"]["netnsId"] = [status.st_dev, status.st_ino]
    path.write_text(json.dumps(document))
    machine.cni("add_network_list", net, conf("two", container))
    links, reserved = container.ip("address"), machine.reserved()
    machine.cni("gc_network_list", net, [("two", "eth0")])
    assert container.ip("address") == links
    assert {text.split()[0] for text in machine.reserved().values()} == {"two"}
    assert len(reserved) == 2
    machine.cni("check_network_list", net, conf("two", container))


@pytest.mark.parametrize("way", ["del", "gc", "add"])
def test_an_add_that_did_not_end_owns_no_interface_that_another_one_made_later(
    machine: Machine, container: Namespace, way: str
) -> None:
    machine.shell("nope", "[ $CNI_COMMAND != ADD ] || exit 1")
    bridge = json.loads(machine.network().raw)["plugins"][0]
    document = {"cniVersion": "1.0.0", "name": "early", "plugins": [{"type": "nope"}, bridge]}
    early = NetworkConfigList.from_dict(document)
    with pytest.raises(PluginError):
        machine.cni("add_network_list", early, conf("one", container), rollback=False)
    machine.cni("add_network_list", machine.network(), conf("two", container))
    links = container.ip("address")
    if way == "gc":
        machine.cni("gc_network_list", early, [])
    elif way == "del":
        machine.cni("del_network_list", early, conf("one", container))
    else:
        with pytest.raises(InterfaceExistsError):
            machine.cni("add_network_list", machine.network(), conf("one", container))
    assert container.ip("address") == links
    assert states(machine) == [("two", "ready")]


@pytest.mark.parametrize("rollback", [True, False], ids=["rolled back", "detached later"])
@pytest.mark.parametrize("maker", ["a person", "another container", "the same container"])
def test_allow_that_fails_leaves_the_interface_that_was_there(
    machine: Machine, container: Namespace, maker: str, *, rollback: bool
) -> None:
    if maker == "a person":
        subprocess.run(["ip", "-n", container.name, "link", "add", "eth0", "type", "veth", "peer", "x"], check=True)
    else:
        name = "two" if maker == "another container" else "one"
        machine.client("theirs")("add_network_list", machine.network("theirs"), conf(name, container))
    before = machine.everything_of(container)
    net = machine.network()
    with pytest.raises(PluginError):
        machine.cni("add_network_list", net, conf("one", container), on_existing="allow", rollback=rollback)
    if not rollback:
        machine.cni("del_network_list", net, conf("one", container))
    assert machine.everything_of(container) == before


def test_allow_that_fails_leaves_an_earlier_attachment_of_the_same_network(
    machine: Machine, container: Namespace
) -> None:
    net = machine.network()
    machine.cni("add_network_list", net, conf("c1", container))
    before = machine.everything_of(container)
    with pytest.raises(PluginError) as caught:
        machine.client("theirs")("add_network_list", net, conf("c1", container), on_existing="allow")
    assert caught.value.rollback_errors == ()
    assert machine.everything_of(container) == before
    machine.cni("check_network_list", net, conf("c1", container))
    machine.cni("del_network_list", net, conf("c1", container))
    assert (container.links(), states(machine)) == (["lo"], [])


def test_replace_detaches_nothing_if_the_new_interface_is_refused(
    machine: Machine, container: Namespace, other: Namespace
) -> None:
    net = machine.network()
    machine.cni("add_network_list", net, conf("c1", container))
    subprocess.run(["ip", "-n", other.name, "link", "add", "eth0", "type", "veth", "peer", "x"], check=True)
    before = machine.everything_of(container)
    with pytest.raises(InterfaceExistsError):
        machine.cni("add_network_list", net, conf("c1", other), on_existing="replace")
    assert machine.everything_of(container) == before


@pytest.mark.parametrize("verb", ["forget_attachment", "del_attachment"])
def test_only_the_attachment_that_was_listed_is_forgotten_or_detached(
    machine: Machine, container: Namespace, verb: str
) -> None:
    net = machine.network()
    machine.cni("add_network_list", net, conf("c1", container))
    (listed,) = machine.cni.records.get_cached_attachments()
    machine.cni("del_network_list", net, conf("c1", container))
    machine.cni("add_network_list", net, conf("c1", container))
    before = machine.everything_of(container)
    with pytest.raises(RecordError, match="rewritten after the attachment was listed"):
        machine.cni(verb, listed)
    assert machine.everything_of(container) == before


# GC and owners


def test_gc_detaches_only_its_own_owners_attachments(machine: Machine, container: Namespace, other: Namespace) -> None:
    net = machine.network()
    mine, theirs = machine.client("mine"), machine.client("theirs")
    mine("add_network_list", net, conf("one", container))
    theirs("add_network_list", net, conf("two", other))
    before = other.ip("address")
    assert [one.owner for one in mine.records.get_cached_attachments()] == ["mine", "theirs"]
    report = mine("gc_network_list", net, [])
    assert [one.container_id for one in report.detached] == ["one"]
    assert other.ip("address") == before
    theirs("check_network_list", net, conf("two", other))
    assert machine.cni("gc_network_list", net, []).detached == ()
    (left,) = mine.records.get_cached_attachments()
    assert mine("take_over_attachment", left).owner == "mine"
    assert [one.container_id for one in mine("gc_network_list", net, []).detached] == ["two"]


def test_the_list_for_the_plugins_has_every_living_attachment(machine: Machine) -> None:
    machine.shell(
        "lister",
        f"""case $CNI_COMMAND in
ADD) echo '{{"cniVersion":"1.1.0"}}';; GC) echo "$config" > {machine.directory}/list;; esac""",
    )
    net = NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "a-b", "plugins": [{"type": "lister"}]})
    mine, theirs = machine.client("mine"), machine.client("theirs")
    for client, name in ((mine, "gone"), (mine, "torn-1"), (theirs, "foreign")):
        client("add_network_list", net, conf(name, f"/run/netns/{name}"))
    torn = machine.cache / "results" / "a-b-torn-1-eth0"
    torn.write_bytes(torn.read_bytes()[:40])
    mine("gc_network_list", net, [("unrecorded", "eth7")])
    sent = json.loads((machine.directory / "list").read_text())["cni.dev/valid-attachments"]
    pairs = {(one["containerID"], one["ifname"]) for one in sent}
    assert {("unrecorded", "eth7"), ("torn-1", "eth0"), ("foreign", "eth0")} <= pairs
    assert ("gone", "eth0") not in pairs


# roll-back and ways out


def test_the_roll_back_removes_the_rules_of_the_firewall(
    machine: Machine, container: Namespace, other: Namespace
) -> None:
    net = machine.network("net", {"type": "firewall"}, {"type": "tuning", "mac": "nonsense"})
    elsewhere = {"ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": str(machine.addresses)}}
    neighbour = machine.network("other", {"type": "firewall"}, bridge=elsewhere)
    machine.cni("add_network_list", neighbour, conf("c0", other))
    before = machine.rules(), other.ip("address")
    with pytest.raises(PluginError) as caught:
        machine.cni("add_network_list", net, conf("c1", container))
    assert caught.value.rollback_errors == ()
    assert (machine.rules(), other.ip("address")) == before
    assert "10.98" not in machine.rules()
    assert "10.99" in machine.rules()
    assert container.links() == ["lo"]


MISTAKES: dict[str, Callable[[Machine], tuple[dict[str, Any], dict[str, Any]]]] = {
    "a wrong subnet": lambda machine: (
        {"bridge": {"ipam": {"type": "host-local", "subnet": "10.98.0.0/99", "dataDir": str(machine.addresses)}}},
        {},
    ),
    "an address outside": lambda _: ({}, {"args": {"IP": "192.168.77.7"}}),
    "a misspelt ipam": lambda _: ({"bridge": {"ipam": {"type": "host-locl"}}}, {}),
    "a version that the plugins do not know": lambda _: ({"cniVersion": "1.1.0"}, {}),
    "a bad port": lambda _: (
        {"plugins": [{"type": "portmap", "capabilities": {"portMappings": True}}]},
        {"capability_args": {"portMappings": [{"hostPort": "abc", "containerPort": 80, "protocol": "tcp"}]}},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("then", ["the same network", "another network", "del", "gc"])
def test_a_mistake_is_mended_by_mending_it(machine: Machine, container: Namespace, mistake: str, then: str) -> None:
    config, arguments = MISTAKES[mistake](machine)
    plugins = config.pop("plugins", [])
    wrong = machine.network("net", *plugins, **config)
    with pytest.raises(libcni.CNIError):
        machine.cni("add_network_list", wrong, conf("c1", container, **arguments))
    right = machine.network("net", *plugins)
    if "br-net" in machine.host.links():
        # Debian's bridge plugin cannot use a bridge whose first ADD failed: it sets the MAC, which is zero then.
        subprocess.run(["ip", "link", "del", "br-net"], check=True)
    (machine.conf / "net.conflist").write_bytes(right.raw)
    if then == "another network":
        machine.cni("add_network_list", machine.network("second"), conf("c1", container))
        assert states(machine) == [("c1", "ready")]
        return
    if then == "del":
        machine.cni("del_network_list", right, conf("c1", container))
        assert states(machine) == []
    if then == "gc":
        machine.cni("gc_network_list", right, [])
        assert states(machine) == []
    machine.cni("add_network_list", right, conf("c1", container))
    assert states(machine) == [("c1", "ready")]
    machine.cni("del_network_list", right, conf("c1", container))
    assert container.links() == ["lo"]


def test_forget_is_the_way_out_and_says_what_may_be_left(machine: Machine, container: Namespace) -> None:
    machine.shell(
        "stuck", """[ $CNI_COMMAND != DEL ] || exit 1; [ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'"""
    )
    net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "stuck"}]})
    machine.cni("add_network_list", net, conf("c1", container))
    with pytest.raises(PluginError):
        machine.cni("del_network_list", net, conf("c1", container))
    with pytest.raises(PluginError) as caught:
        machine.cni("add_network_list", net, conf("c1", container))
    assert "forget_attachment" in str(caught.value)
    (left,) = machine.cni.records.get_cached_attachments()
    assert machine.cni("forget_attachment", left).plugins == ("stuck",)
    assert states(machine) == []
    machine.cni("add_network_list", net, conf("c1", container))


def test_a_record_of_go_with_a_drop_in_is_detached_with_the_configuration_at_hand(
    machine: Machine, container: Namespace
) -> None:
    """Go libcni records the document without its drop-ins. All paths find the drop-in's plugin all the same."""
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    bare = machine.network("net", loadOnlyInlinedPlugins=False)
    (machine.conf / "net.conflist").write_bytes(bare.raw)
    (machine.conf / "net").mkdir()
    (machine.conf / "net" / "10-portmap.conf").write_text(json.dumps(portmap))
    net = libcni.load_network_conf(machine.conf, "net")
    assert [plugin.type for plugin in net.plugins] == ["bridge", "portmap"]
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    rt = conf("c1", container, capability_args=ports)
    for way in ("del_attachment", "gc", "replace"):
        machine.cni("add_network_list", net, rt)
        assert "8080" in machine.rules()
        (path,) = (machine.cache / "results").glob("net-*")
        document = json.loads(path.read_bytes())
        del document["libcni"]
        path.write_text(json.dumps(document))
        (attachment,) = machine.cni.records.get_cached_attachments()
        if way == "del_attachment":
            machine.cni("del_attachment", attachment)
        elif way == "gc":
            machine.cni("gc_network_list", net, [])
        else:
            machine.cni("add_network_list", machine.network("second"), conf("c1", container), on_existing="replace")
            machine.cni("del_network_list", machine.network("second"), conf("c1", container))
        assert "8080" not in machine.rules(), way


@pytest.mark.parametrize("kind", ["space", "rights"])
def test_replace_detaches_nothing_if_the_new_record_cannot_be_written(
    machine: Machine, container: Namespace, kind: str
) -> None:
    machine.cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "libcni-test", machine.cache], check=True)
    try:
        net = machine.network()
        machine.cni("add_network_list", net, conf("c1", container))
        before = container.ip("address")
        if kind == "space":
            with (machine.cache / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while True:
                    filler.write(b"x" * 4096)
        else:
            subprocess.run(["mount", "-o", "remount,ro", machine.cache], check=True)
        with pytest.raises(RecordError):
            machine.cni("add_network_list", net, conf("c1", container), on_existing="replace")
        assert container.ip("address") == before
        assert states(machine) == [("c1", "ready")]
    finally:
        subprocess.run(["umount", machine.cache], check=True)


def test_macvlan_whose_master_has_gone(machine: Machine, container: Namespace) -> None:
    subprocess.run(["ip", "link", "add", "up0", "type", "veth", "peer", "up1"], check=True)
    ipam = {"type": "host-local", "subnet": "10.97.0.0/24", "dataDir": str(machine.addresses)}
    net = NetworkConfigList.from_dict(
        {"cniVersion": "1.0.0", "name": "mac", "plugins": [{"type": "macvlan", "master": "up0", "ipam": ipam}]}
    )
    machine.cni("add_network_list", net, conf("c1", container))
    subprocess.run(["ip", "link", "del", "up0"], check=True)
    with pytest.raises(PluginError, match="Link not found"):
        machine.cni("del_network_list", net, conf("c1", container))
    assert states(machine) == [("c1", "detaching")]
    with pytest.raises(PluginError) as caught:
        machine.cni("add_network_list", machine.network(), conf("c1", container))
    assert "forget_attachment" in str(caught.value)
    (left,) = machine.cni.records.get_cached_attachments()
    assert machine.cni("forget_attachment", left).plugins == ("macvlan",)
    machine.cni("add_network_list", machine.network(), conf("c1", container))


def test_a_plugin_that_cannot_be_found_any_more(machine: Machine, container: Namespace) -> None:
    machine.shell("extra", PASS_ON)
    net = machine.network("net", {"type": "extra"})
    machine.cni("add_network_list", net, conf("c1", container))
    (machine.bin / "extra").unlink()
    with pytest.raises(libcni.PluginNotFoundError, match="skip_missing"):
        machine.cni("del_network_list", net, conf("c1", container))
    report = machine.cni("del_network_list", net, conf("c1", container), policy=DelPolicy(skip_missing=True))
    assert [(one.plugin, one.state) for one in report.plugins] == [("extra", "skipped"), ("bridge", "done")]
    assert states(machine) == []
    assert container.links() == ["lo"]


@pytest.mark.parametrize("way", ["del", "del by the record", "gc", "add again"])
def test_a_namespace_that_has_gone(machine: Machine, container: Namespace, way: str) -> None:
    net = machine.network("net", {"type": "firewall"})
    machine.cni("add_network_list", net, conf("c1", container))
    subprocess.run(["ip", "netns", "del", container.name], check=True)
    ((_, state),) = states(machine)
    assert state == "gone"
    (attachment,) = machine.cni.records.get_cached_attachments()
    if way == "del":
        machine.cni("del_network_list", net, conf("c1", container))
    elif way == "del by the record":
        machine.cni("del_attachment", attachment)
    elif way == "gc":
        machine.cni("gc_network_list", net, [])
    subprocess.run(["ip", "netns", "add", container.name], check=True)
    if way == "add again":
        machine.cni("add_network_list", net, conf("c1", container))
        machine.cni("del_network_list", net, conf("c1", container))
    assert (states(machine), machine.reserved()) == ([], {})
    assert "10.98.0" not in machine.rules()
