"""What breaks on a node: each as a script for its shell, and what must come of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from real.containerd_node import BRIDGE, CONTAINERD_NET


@dataclass(frozen=True)
class Breakage:
    """One thing that is broken.

    Attributes:
        script: breaks it. ``inside POD WORDS`` runs a command in a pod's network namespace; ``${ip[POD]}``,
            ``${id[POD]}``, ``${netns[POD]}``, ``${veth[POD]}`` and ``${pid[POD]}`` are its address, its container, the
            path of its namespace, its interface on the node, and its process.
        says: a regular expression for what the doctor says of it.
        undo: what a person does, if repair cannot: after it, the node is in order. "": repair's commands mend it.
        loses: whether connections fail.
        gone: the pods that are no more.
    """

    script: str
    says: str
    undo: str = ""
    loses: bool = True
    gone: tuple[str, ...] = ()


_RECORD = "/var/lib/cni/results/containerd-net-${id[api-0]}-eth0"
_CONF = "/etc/cni/net.d/10-containerd-net.conflist"
_POOL = "/var/lib/cni/networks/containerd-net"
_BRIDGE = json.dumps({"cniVersion": CONTAINERD_NET["cniVersion"], "name": CONTAINERD_NET["name"], **BRIDGE})

BREAKAGES = {
    "interface-down": Breakage("inside web-0 ip link set eth0 down", "eth0.*(is )?down"),
    "host-end-down": Breakage("ip link set ${veth[web-1]} down", "down"),
    "out-of-the-bridge": Breakage("ip link set ${veth[db-0]} nomaster", "bridge"),
    "bridge-down": Breakage("ip link set cni0 down", "bridge cni0"),
    "gateway-lost": Breakage("ip address del 10.213.7.1/27 dev cni0", "10.213.7.1/27"),
    "flannel-host-end-down": Breakage("ip link set ${veth[cache-0]} down", "down"),
    "default-route-lost": Breakage("inside api-0 ip route del default", "0.0.0.0/0"),
    "address-lost": Breakage("inside db-0 ip -4 address flush dev eth0", "address"),
    "wrong-gateway": Breakage(
        "inside web-1 ip route replace default via 10.213.7.29", "10.213.7.29",
        "inside web-1 ip route replace default via 10.213.7.1",
    ),
    "no-forwarding": Breakage("sysctl -qw net.ipv4.ip_forward=0", "forward"),
    "forwarding-dropped": Breakage(
        "iptables -P FORWARD DROP", "FORWARD", "iptables -P FORWARD ACCEPT",
    ),
    "masquerade-lost": Breakage(
        "iptables -t nat -S POSTROUTING | grep -- ${ip[web-1]} | sed 's/^-A/-D/' | sed 's/\"//g' |"
        " while read -r rule; do"
        " chain=${rule##* }; iptables -t nat -D POSTROUTING $(iptables -t nat -L POSTROUTING --line-numbers -n |"
        " grep $chain | cut -d' ' -f1 | head -1); done",
        "masquerade|rule",
    ),
    "ports-lost": Breakage("iptables -t nat -F CNI-HOSTPORT-DNAT", "rule"),
    "ports-not-asked": Breakage(
        "iptables -t nat -F PREROUTING; iptables -t nat -F OUTPUT", "port 18080/tcp|4 attachments.*rules",
    ),
    "port-caught-before": Breakage(
        "iptables -t nat -I PREROUTING -p tcp --dport 18080 -j DNAT --to-destination 10.213.7.29:80", "18080",
        "iptables -t nat -D PREROUTING -p tcp --dport 18080 -j DNAT --to-destination 10.213.7.29:80",
    ),
    "reservation-lost": Breakage(f"rm {_POOL}/${{ip[api-0]}}", "reserv", loses=False),
    "reservation-of-nobody": Breakage(f"printf 'dead\\neth0' >{_POOL}/10.213.7.25", "dead|10.213.7.25", loses=False),
    "pool-full-of-the-dead": Breakage(
        f"for n in $(seq 2 30); do [ -e {_POOL}/10.213.7.$n ] || printf 'dead%s\\neth0' $n >{_POOL}/10.213.7.$n; done",
        "10.213.7.", loses=False,
    ),
    "path-unmounted": Breakage(
        "umount ${netns[db-0]} && rm ${netns[db-0]}", "path|mount", loses=False,
    ),
    "record-lost": Breakage(f"mv {_RECORD} /run/kept", "record", f"mv /run/kept {_RECORD}", loses=False),
    "record-torn": Breakage(
        f"cp {_RECORD} /run/kept && truncate -s 100 {_RECORD}", "record", f"mv /run/kept {_RECORD}", loses=False,
    ),
    "plugin-missing": Breakage(
        "mv /opt/cni/bin/portmap /run/kept", "portmap", "mv /run/kept /opt/cni/bin/portmap", loses=False,
    ),
    "configuration-missing": Breakage(
        f"mv {_CONF} /run/kept", "no usable configuration file|file", f"mv /run/kept {_CONF}", loses=False,
    ),
    "another-subnet-first": Breakage(
        f"sed 's/10[.]213[.]7/10.215.9/; s/containerd-net/aaa-net/' {_CONF} >/etc/cni/net.d/00-aaa.conflist",
        "00-aaa|aaa-net|different", "rm /etc/cni/net.d/00-aaa.conflist", loses=False,
    ),
    "two-with-one-address": Breakage(
        "inside db-0 ip address add ${ip[api-0]}/27 dev eth0", "${ip[api-0]}|duplicate|address",
        "inside db-0 ip address del ${ip[api-0]}/27 dev eth0; inside api-0 ip neigh flush all; ip neigh flush all",
    ),
    "interface-deleted": Breakage("ip link del ${veth[api-0]}", "api-0"),
    "pod-crashed": Breakage(
        "kill -9 ${pid[cache-1]}; while [ -e /proc/${pid[cache-1]} ]; do sleep 0.05; done;"
        " umount ${netns[cache-1]} || true; rm -f ${netns[cache-1]}",  # containerd 2 may do it first
        "cache-1|dead|namespace", loses=False, gone=("cache-1",),
    ),
    "killed-within-add": Breakage(
        # A reservation and rules, and neither a record nor a process.
        "ip netns add half; CNI_COMMAND=ADD CNI_CONTAINERID=half CNI_NETNS=/run/netns/half CNI_IFNAME=eth0"
        f" CNI_PATH=/opt/cni/bin /opt/cni/bin/bridge <<<'{_BRIDGE}' >/dev/null; ip netns del half;"
        " while ip -br link show master cni0 | grep -q LOWERLAYERDOWN; do sleep 0.1; done",
        "half|rules for 10.213.7", loses=False,
    ),
    "address-changed-by-hand": Breakage(
        "inside api-0 ip address flush dev eth0; inside api-0 ip address add 10.213.7.20/27 dev eth0;"
        " inside api-0 ip route add default via 10.213.7.1",
        "${ip[api-0]} is not on eth0, which has 10.213.7.20/27 instead",
    ),
    "gateway-with-another-prefix": Breakage(
        "ip address del 10.213.7.1/27 dev cni0; ip address add 10.213.7.1/24 dev cni0",
        "bridge cni0 has another address, 10.213.7.1/24", loses=False,
    ),
    "flannel-bridge-down": Breakage("ip link set flannel0 down", "bridge flannel0 .*link-down"),
    "flannel-gateway-lost": Breakage("ip address flush dev flannel0 scope global", "10.244.1.1/24"),
    "one-bridge-not-forwarded": Breakage("sysctl -qw net.ipv4.conf.cni0.forwarding=0", "conf/cni0/forwarding"),
    "packets-to-the-node-dropped": Breakage(
        "iptables -I INPUT -i cni0 -j DROP", "chain INPUT of iptables", "iptables -D INPUT -i cni0 -j DROP",
    ),
    "forwarding-dropped-for-flannel": Breakage(
        "iptables -P FORWARD DROP; iptables -A FORWARD -i cni0 -j ACCEPT; iptables -A FORWARD -o cni0 -j ACCEPT",
        "chain FORWARD of iptables", "iptables -P FORWARD ACCEPT; iptables -F FORWARD",
    ),
    "port-caught-by-legacy": Breakage(
        "iptables-legacy -t nat -I PREROUTING -p tcp --dport 18080 -j DNAT --to-destination 10.213.7.29:80",
        "port 18080/tcp leads to 10.213.7.29", "iptables-legacy -t nat -F PREROUTING",
    ),
    "port-returned": Breakage(
        "iptables -t nat -I CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 18081 -j RETURN",
        "port 18081/tcp leads to no container",
        "iptables -t nat -D CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 18081 -j RETURN",
    ),
    "record-emptied": Breakage(
        f"cp {_RECORD} /run/kept && : >{_RECORD}", "move the file away", f"mv /run/kept {_RECORD}", loses=False,
    ),
    "path-of-another": Breakage(
        "umount ${netns[db-0]}; mount --bind /proc/${pid[web-1]}/ns/net ${netns[db-0]}",
        "no longer leads to the namespace, but the namespace lives",
        "umount ${netns[db-0]}; mount --bind /proc/${pid[db-0]}/ns/net ${netns[db-0]}", loses=False,
    ),
    "second-bridge": Breakage(
        "ip link add cni1 type bridge; ip address add 10.213.7.1/27 dev cni1; ip link set cni1 up",
        "the address 10.213.7.1 is on cni1, too", "ip link del cni1", loses=False,
    ),
    "hairpin-off": Breakage(
        "bridge link set dev ${veth[cache-0]} hairpin off", "hairpin",
        "bridge link set dev ${veth[cache-0]} hairpin on", loses=False,
    ),
    "empty-reservation": Breakage(f": >{_POOL}/10.213.7.23", "10.213.7.23", loses=False),
    "records-read-only": Breakage(
        "mount -o remount,ro /var/lib/cni", "read-only", "mount -o remount,rw /var/lib/cni", loses=False,
    ),
}  # fmt: skip

PAIRS = [
    ("interface-down", "ports-lost"),
    ("bridge-down", "gateway-lost"),
    ("path-unmounted", "pod-crashed"),
    ("reservation-lost", "pool-full-of-the-dead"),
    ("default-route-lost", "no-forwarding"),
    ("interface-deleted", "reservation-of-nobody"),
    ("record-torn", "host-end-down"),
    ("out-of-the-bridge", "masquerade-lost"),
]
THREES = [
    ("interface-down", "ports-not-asked", "reservation-of-nobody"),
    ("pod-crashed", "gateway-lost", "host-end-down"),
    ("path-unmounted", "default-route-lost", "pool-full-of-the-dead"),
    ("no-forwarding", "ports-lost", "flannel-host-end-down"),
]
