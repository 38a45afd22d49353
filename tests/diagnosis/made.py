"""A reading of a node that is made by hand, so that each check of the doctor can be tested alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from libcni import CNIConfig, read_config_directory
from libcni.config.host_local import Reservation
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import FORWARDING
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, by_cause
from libcni.kernel.foreign import Space
from libcni.kernel.life import Life
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.namespace_holders import Held
from libcni.kernel.netlink import IPRoute, Link, Network
from libcni.kernel.rules import Table, masquerade_chain, masquerade_mark, nft_table, ports_chain
from libcni.store.attachments import attachments_of
from libcni.store.model import READY, MadeByGo, Ours, Record
from libcni.store.records import RecordStore

IPAM = {"type": "host-local", "subnet": "10.1.0.0/24", "dataDir": "/leases"}
BRIDGE = {"type": "bridge", "bridge": "br0", "isDefaultGateway": True, "ipMasq": True, "ipam": IPAM}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
FIREWALL = {"type": "firewall"}
PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}

Check = Callable[[NodeState], Observations]


class MadeNode:
    """A node as the doctor reads it. ``attach`` adds a container that is in order; a test breaks it then.

    Nothing of it is on the machine but configurations and an empty file for each namespace.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net.d").mkdir()
        (root / "ns").mkdir()
        (root / "bin").mkdir()
        for name in ("bridge", "ptp", "portmap", "firewall", "host-local", "macvlan", "ipvlan", "tuning"):
            plugin = root / "bin" / name
            plugin.write_text("#!/bin/sh\n", encoding="utf-8")
            plugin.chmod(0o755)
        (root / "sbin").mkdir()
        for name in ("iptables", "ip6tables", "nft"):
            program = root / "sbin" / name
            program.touch(0o755)
        path = {"PATH": f"{root}/sbin"}
        self.cni = CNIConfig([root / "bin"], root / "cache", conf_dir=root / "net.d", env=path)
        bridge = Link("br0", 2, kind="bridge", is_up=True, addresses=["10.1.0.1/24"], settings=("route_localnet 1",))
        self.host = Network({"br0": bridge}, (IPRoute("10.1.0.0/24", "", 2),), 1)
        self.records: list[Record] = []
        self.spaces: dict[tuple[int, int], Space] = {}
        self.reservations: dict[tuple[str, str], list[Reservation]] = {}
        self.rules: list[str] = []
        self.blind = ""
        self.held: dict[int, Held] = {}
        self.nft_rules: dict[str, list[str]] = {}
        self.more: dict[str, Any] = {
            "forwards": dict.fromkeys(FORWARDING.values(), True),
            "started": 1000.0,
        }

    def attach(
        self,
        container: str = "c1",
        *plugins: dict[str, Any],
        address: str = "",
        gateway: str = "10.1.0.1",
        **fields: Any,
    ) -> Network:
        """Attach a container to the network ``net`` and return what is in its namespace."""
        number = len(self.records) + 2
        address = address or f"10.1.0.{number}"
        netns = str(self.netns(container))
        veth = Link(f"veth{container}", number + 10, master=2, kind="veth", is_up=True)
        self.host.links[veth.name] = veth
        eth0 = Link("eth0", 3, mac=f"02:00:00:00:00:{number:02x}", is_up=True, addresses=[f"{address}/24"])
        behind = gateway if any(one["type"] == "ptp" for one in plugins) else ""
        routes = (IPRoute("0.0.0.0/0", gateway, 3), IPRoute("10.1.0.0/24", behind, 3))
        inside = Network({"eth0": eth0}, routes, number)
        result = {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "br0"}, {"name": veth.name}, {"name": "eth0", "mac": eth0.mac, "sandbox": netns}],
            "ips": [{"address": f"{address}/24", "gateway": gateway, "interface": 2}],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        config = {"cniVersion": "1.0.0", "name": "net", "plugins": plugins or (BRIDGE,)}
        kind = Ours if fields.get("version", "1.0.0") else MadeByGo
        record = kind(
            network="net", container_id=container, ifname="eth0", state=READY, netns=netns,
            netns_id=namespace_identity(netns) if kind is Ours else None,
            config=json.dumps(config).encode(), version="1.0.0", result=json.dumps(result),
            path=f"/cache/results/net-{container}-eth0",
        ).with_fields(**fields)  # fmt: skip
        self.records.append(record)
        self.live_in(netns, inside)
        self.reserve(address, container)
        return inside

    def netns(self, container: str) -> Path:
        path = self.root / "ns" / container
        path.touch()
        return path

    def live_in(self, netns: str, network: Network | None, process: str = "") -> None:
        """Let a namespace of the node have these interfaces; None: it cannot be read."""
        identity = namespace_identity(netns)
        assert identity is not None
        self.spaces[identity] = Space(netns, process, network)

    def reserve(self, address: str, container: str, ifname: str = "eth0", changed: float = 1.0) -> None:
        found = Reservation(address, container, ifname, f"/leases/net/{address}", changed)
        self.reservations.setdefault(("net", "/leases/net"), []).append(found)

    def make_rules(self, container: str, address: str) -> None:
        """Add the rules that bridge, portmap and firewall make."""
        masquerade, ports = masquerade_chain("net", container), ports_chain("net", container)
        owner = f'name: "net" id: "{container}"'
        self.rules += [
            f"-A POSTROUTING -s {address}/32 -m comment --comment '{owner}' -j {masquerade}",
            f"-A {masquerade} -d 10.1.0.0/24 -j ACCEPT",
            f"-A {masquerade} ! -d 224.0.0.0/4 -j MASQUERADE",
            f"-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment 'dnat {owner}' -m multiport --dports 8080 -j {ports}",
            f"-A {ports} -p tcp -m tcp --dport 8080 -j DNAT --to-destination {address}:80",
            f"-A CNI-FORWARD -d {address}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A CNI-FORWARD -s {address}/32 -j ACCEPT",
        ]

    def make_nft_rules(self, container: str, address: str) -> None:
        """Add the rules that bridge and portmap 1.9.1 make with nftables; no test may need these versions."""
        mark = masquerade_mark("net", container, "eth0")
        owner = f"{mark}, net: net, if: eth0, id: {container}"
        for chain, rule in (
            ("masq", f'ip saddr {address} ip daddr != 10.1.0.0/24 masquerade comment "{owner}"'),
            ("ports", f'tcp dport 8080 dnat to {address}:80 comment "{container}"'),
            ("hairpin", f'ip saddr {address} ip daddr {address} masquerade comment "{container}"'),
        ):
            self.nft_rules.setdefault(chain, []).append(rule)

    def nft(self) -> dict[str, str]:
        """Return the tables as ``nft list table`` prints them."""
        masq, ports, hairpin = ("\n\t\t".join(self.nft_rules.get(one, ())) for one in ("masq", "ports", "hairpin"))
        return {
            "inet cni_plugins_masquerade": f"""table inet cni_plugins_masquerade {{
\tcomment "Masquerading for plugins from github.com/containernetworking/plugins"
\tchain masq_checks {{
\t\tcomment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"
\t\t{masq}
\t}}

\tchain postrouting {{
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\tip daddr 224.0.0.0/4 return
\t\tgoto masq_checks
\t}}
}}
""",
            "ip cni_hostport": f"""table ip cni_hostport {{
\tchain hostports {{
\t\t{ports}
\t}}

\tchain prerouting {{
\t\ttype nat hook prerouting priority dstnat; policy accept;
\t\tfib daddr type local jump hostports
\t}}

\tchain masquerading {{
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\t{hairpin}
\t}}
}}
""",
        }

    def reading(self) -> NodeState:
        tables = {"nat": Table(), "filter": Table()}
        shared = ["-A PREROUTING -j CNI-HOSTPORT-DNAT", "-A OUTPUT -j CNI-HOSTPORT-DNAT", "-A FORWARD -j CNI-FORWARD"]
        for rule in map(shlex.split, [*shared, *self.rules]):
            tables["filter" if "FORWARD" in rule[1] else "nat"].add(rule[1], tuple(rule))
        life = Life(by_handle=False, old_after=300)
        # What the look at a real node would find: nothing but this node, and all of it.
        seen = {
            "spaces": self.spaces,
            "walk": SimpleNamespace(
                held=self.held, blind=self.blind, outside="", sees_containers=True, pid_namespace=None
            ),
        }
        vars(life).update(seen, _own_links=[])
        reading = NodeState(
            self.cni, read_config_directory(self.cni.conf_dir),
            tuple(attachments_of(self.records, RecordStore("/none"))),
            host=self.host, life=life, spaces=self.spaces, reservations=self.reservations,
            rules={"iptables": tables, "nft": {name: nft_table(name, text) for name, text in self.nft().items()}},
        )  # fmt: skip
        return replace(reading, **self.more)

    def findings(self, check: Check) -> list[NodeFinding]:
        return list(by_cause(one for one in check(self.reading()) if isinstance(one, NodeFinding)))

    def finding(self, check: Check) -> NodeFinding:
        """Return the only finding."""
        (found,) = self.findings(check)
        return found

    def not_checked(self, check: Check) -> list[tuple[str, str]]:
        return [(one.subject, one.reason) for one in check(self.reading()) if isinstance(one, NotChecked)]

    def checked(self, check: Check) -> list[str]:
        return [one.what for one in check(self.reading()) if isinstance(one, Checked)]


def configure(made: MadeNode, *plugins: dict[str, Any]) -> Path:
    """Write the file of the network ``net``."""
    path = Path(made.cni.conf_dir, "net.conflist")
    path.write_text(json.dumps({"cniVersion": "1.0.0", "name": "net", "plugins": plugins or [BRIDGE]}))
    return path
