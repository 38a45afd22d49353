"""Check the configuration directory."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from libcni.config.distribution_directories import other_conf_dirs
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import missing_files
from libcni.diagnosis.report import Checked, NodeFinding, Observations
from libcni.errors import ConfigError, Hint, counted

_KEYS: tuple[tuple[str, type, str], ...] = (
    ("bridge", bool, "isgateway isdefaultgateway forceaddress ipmasq hairpinmode promiscmode macspoofchk enabledad"),
    ("bridge", bool, "portisolation preservedefaultvlan disablecontainerinterface"),
    ("bridge", int, "mtu vlan"), ("bridge", str, "bridge ipmasqbackend"),
    ("ptp", bool, "ipmasq"), ("ptp", int, "mtu"), ("ptp", str, "ipmasqbackend"),
    ("portmap", bool, "snat masqall"), ("portmap", int, "markmasqbit"), ("portmap", str, "backend"),
    ("macvlan", str, "master mode"), ("macvlan", int, "mtu"), ("macvlan", bool, "linkincontainer"),
    ("ipvlan", str, "master mode"), ("ipvlan", int, "mtu"), ("ipvlan", bool, "linkincontainer"),
    ("vlan", str, "master"), ("vlan", int, "mtu vlanid"), ("vlan", bool, "linkincontainer"),
    ("firewall", str, "backend ingresspolicy"),
)  # fmt: skip
"""The types of the keys of the CNI project's plugins, with the keys in small letters."""
_TYPES = {(plugin, key): kind for plugin, kind, keys in _KEYS for key in keys.split()}

_LONGEST_NAME, _LAST_VLAN = 15, 4094

_error = partial(NodeFinding, "configuration", "error")


def check_configuration(node: NodeState) -> Observations:
    """Find unusable configuration files."""
    path, configurations = node.cni.conf_dir, node.directory
    if configurations is None or not os.path.isdir(path):
        seen = "it is not a directory" if os.path.lexists(path) else "there is no such directory"
        others = other_conf_dirs(path)
        remedy = (
            f"configurations may be in {others}: choose one with --conf-dir"
            if others
            else "create the directory, and put a .conflist file there"
        )
        if os.path.isdir(path):
            seen, remedy = "it cannot be read", "run as root"
        yield _error("no-configuration", path, seen, "no network can be used", remedy)
        return
    if not configurations.networks:
        seen, remedy = "no usable network configuration", "put a .conflist file there"
        yield _error("no-configuration", path, seen, "no container can be attached", remedy)
    unusable = f" and {counted(len(configurations.problems), 'unusable file')}" if configurations.problems else ""
    yield Checked("configuration", f"{counted(len(configurations.networks), 'network')}{unusable} in {path}")
    yield from writable_by_others("configuration", path)
    for name in sorted(
        filter(None, (*(net.file for net in configurations.networks), *(one.file for one in configurations.problems)))
    ):
        yield from writable_by_others("configuration", name)
    for problem in configurations.problems:
        seen = f"{problem.location}: {problem.problem}" if problem.location else problem.problem
        # Name both files if two have one network name: each of them is in order by itself.
        remedy, meaning = _remedy(problem, path), "the network of this file cannot be used"
        if problem.file and problem.file == node.blocking_file:
            meaning += "; containerd reads this file first, and no new pod starts: cni plugin not initialized"
            if node.networks:
                net = node.next_network
                meaning += f". CRI-O skips it and attaches pods to {net.name} of {os.path.basename(net.file or '?')}"
        yield _error("unusable-file", problem.file or path, seen, meaning, remedy)
    for net in configurations.networks:
        yield from _wrong_types(net)
        for path in missing_files(net):
            yield _error(
                "file-missing", path, f"it does not exist, but the plugins of {net.name} ({net.file}) read it",
                "no container can be attached to it",
                "the plugin's daemon on this node writes the file: restart the daemon, and read its log",
            )  # fmt: skip


def _wrong_types(net: NetworkConfigList) -> Iterator[NodeFinding]:
    """Find values that the project's plugins cannot decode, such as a number in quotation marks."""
    for index, document in enumerate(plugin_documents(net)):
        kind = str(document.get("type"))
        for key, value in document.items():
            if problem := _refused_value(kind, key, value):
                yield _error(
                    "unusable-file", net.file or net.name, f"plugins[{index}].{problem}",
                    f"the plugin refuses the file, so no container can be attached to {net.name}",
                    "correct the value",
                )  # fmt: skip
            # Go's decoder knows a key in any case, and null as no value.
            wanted = _TYPES.get((kind, key.lower()))
            if wanted is not None and value is not None and type(value) is not wanted:
                right = "true or false" if wanted is bool else "a whole number" if wanted is int else "a text"
                quoted = ", without quotation marks" * (isinstance(value, str) and wanted is not str)
                yield _error(
                    "unusable-file", net.file or net.name,
                    f"plugins[{index}].{key}: {json.dumps(value)[:60]} is not {right}",
                    f"the plugin {kind} refuses the file, so no container can be attached to {net.name}",
                    f"write {right} there{quoted}",
                )  # fmt: skip


def _refused_value(kind: str, key: str, value: object) -> str:
    """Return the key and what is wrong with its value, if a plugin of the CNI project or the kernel refuses it."""
    if (kind, key) in {("bridge", "bridge"), ("bridge", "vlan"), ("vlan", "vlanId")}:
        if isinstance(value, str) and len(value) > _LONGEST_NAME:
            return f"{key}: {value} has more than {_LONGEST_NAME} characters, and no interface can have that name"
        if isinstance(value, int) and not 0 <= value <= _LAST_VLAN:
            return f"{key}: {value} is no VLAN: they have the numbers to {_LAST_VLAN}"
    if (kind, key) == ("tuning", "sysctl") and isinstance(value, dict):
        return next((f"sysctl: the kernel has no setting {name}" for name in value if _is_unknown(str(name))), "")
    if key == "ipam" and isinstance(value, dict) and value.get("type") == "host-local":
        ranges = value.get("ranges")
        sets = [one for one in ranges if isinstance(one, list)] if isinstance(ranges, list) else []
        spans = [value, *(span for one in sets for span in one if isinstance(span, dict))]
        for subnet in (str(span["subnet"]) for span in spans if span.get("subnet")):
            with suppress(ValueError):
                whole = ipaddress.ip_network(subnet, strict=False)
                if str(whole.network_address) != str(ipaddress.ip_interface(subnet).ip):
                    return f"ipam: the subnet {subnet} is the address of a host; its network is {whole}"
    return ""


def _is_unknown(setting: str) -> bool:
    """Return whether the kernel has no setting of IP with this name, but others beside it."""
    parts = setting.split("/" if "/" in setting.partition(".")[0] else ".")
    of_ip = parts[:2] in (["net", "ipv4"], ["net", "ipv6"])
    # A container's interface may not exist here. Names of interfaces can have dots.
    if of_ip and parts[2:3] in (["conf"], ["neigh"]):
        parts = [*parts[:3], "default", parts[-1]]
    path = f"/proc/sys/{'/'.join(parts)}"
    return of_ip and ".." not in parts and os.path.isdir(os.path.dirname(path)) and not os.path.exists(path)


def _remedy(problem: ConfigError, conf_dir: str) -> str:
    hint = Hint(
        f"{problem.hint or 'correct the file, or move it elsewhere'}; then", "networks", options=("--validate",)
    )
    hint.client = {"conf_dir": conf_dir}
    return str(hint)
