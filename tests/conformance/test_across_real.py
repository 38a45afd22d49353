"""An attachment made by Go libcni is checked and detached here, and the other way round, with real plugins."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import libcni
from conformance.golang import call
from libcni.testing import NetworkNamespace, network_namespace

PLUGINS = "/usr/lib/cni"
MAC = "0a:58:0a:c8:00:07"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.xdist_group("host-links"),
]


class Place:
    """A namespace, a network of its own, and both libraries on the same records."""

    def __init__(self, program: Path, directory: Path, namespace: NetworkNamespace, version: str) -> None:
        self.leases = directory / "leases"
        self.cache = directory / "cache"
        self.namespace = namespace
        self.version = version
        self.bridge = f"cx{uuid4().hex[:8]}"
        self.document = json.dumps(self._network()).encode()
        self.net = libcni.NetworkConfigList.from_bytes(self.document)
        self.rt = libcni.RuntimeConf(
            "across-1",
            namespace.path,
            "eth0",
            args={"IgnoreUnknown": "1", "WHO": "me"},
            capability_args={"mac": MAC, "portMappings": [{"hostPort": 28080, "containerPort": 80, "protocol": "tcp"}]},
        )
        self.tools = _iptables_alone(directory / "tools")
        self.cni = libcni.CNIConfig([PLUGINS], self.cache, env={"PATH": self.tools})
        self.program = program

    def _network(self) -> dict[str, Any]:
        ranges = [[{"subnet": "10.200.77.0/24"}]]
        return {
            "cniVersion": self.version,
            "name": f"across-{self.bridge}",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge,
                    "isGateway": True,
                    "ipam": {"type": "host-local", "ranges": ranges, "dataDir": str(self.leases)},
                },
                {"type": "tuning", "capabilities": {"mac": True}},
                {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False},
            ],
        }

    def go(self, *kinds: str) -> None:
        """Let Go libcni do steps; they must all succeed."""
        assert self.rt.args is not None
        rt = {
            "container_id": self.rt.container_id,
            "netns": self.rt.netns,
            "ifname": self.rt.ifname,
            "args": [list(pair) for pair in self.rt.args],
            "capability_args": dict(self.rt.capability_args or {}),
        }
        document = base64.b64encode(self.document).decode()
        steps = [{"kind": kind, "document": document, "rt": rt, "timeout": 30} for kind in kinds]
        job = {"path": [PLUGINS], "cacheDir": str(self.cache), "environ": {"PATH": self.tools}, "steps": steps}
        (outcomes,) = call(self.program, [job])
        assert [outcome.get("error") for outcome in outcomes] == [None] * len(kinds)

    def is_attached(self) -> bool:
        """Whether the interface has its address, and the address its lease; never one without the other."""
        addresses = self.namespace.interfaces().get("eth0", [])
        leases = [path.name for path in self.leases.rglob("10.*")]
        assert [address.partition("/")[0] for address in addresses if "." in address] == leases
        return bool(leases)

    def has_record(self) -> bool:
        """Whether anything is on record."""
        return any((self.cache / "results").iterdir())


def _iptables_alone(directory: Path) -> str:
    """Make a PATH without ip6tables: where it is, portmap 1.1.1 looks for an IPv4 address in IPv6 rules on CHECK."""
    directory.mkdir()
    (directory / "iptables").symlink_to(str(shutil.which("iptables")))
    return str(directory)


@pytest.fixture(params=["0.3.1", "0.4.0", "1.0.0"])
def place(request: pytest.FixtureRequest, go_program: Path, tmp_path: Path) -> Iterator[Place]:
    with network_namespace() as namespace:
        place = Place(go_program, tmp_path, namespace, request.param)
        yield place
        last = libcni.CNIConfig([PLUGINS], tmp_path / "last", env={"PATH": place.tools})
        last.del_network_list(place.net, place.rt)
    subprocess.run(["ip", "link", "delete", place.bridge], check=True)


def test_go_attaches_and_this_library_checks_and_detaches(place: Place) -> None:
    place.go("add")
    assert place.is_attached()
    (attachment,) = place.cni.get_cached_attachments("across-1")
    assert (attachment.network, attachment.ifname, attachment.state) == (place.net.name, "eth0", "ready")
    bare = libcni.RuntimeConf("across-1", place.namespace.path, "eth0")
    if place.version != "0.3.1":
        place.cni.check_network_list(place.net, bare)
    place.cni.del_network_list(place.net, bare)
    assert not place.is_attached()
    assert not place.has_record()


def test_this_library_attaches_and_go_checks_and_detaches(place: Place) -> None:
    result = place.cni.add_network_list(place.net, place.rt)
    assert result.cni_version == place.version
    assert place.is_attached()
    place.go(*([] if place.version == "0.3.1" else ["check"]), "del")
    assert not place.is_attached()
    assert not place.has_record()
    if place.version != "0.3.1":
        with pytest.raises(libcni.NotAttachedError):
            place.cni.check_network_list(place.net, place.rt)
