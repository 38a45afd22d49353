"""An attachment made by Go libcni is checked and detached here, and the other way round, with real plugins."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from nodes import PLUGIN_PATH, PLUGINS, Namespace, RealNode

import libcni
from conformance.golang import call

MAC = "0a:58:0a:c8:00:07"

pytestmark = [pytest.mark.slow, pytest.mark.real]


class AcrossNode(RealNode):
    """A node with one network, and both libraries on the same records."""

    def __init__(self, root: Path, host: Namespace, container: Namespace, program: Path, version: str) -> None:
        super().__init__(root, host)
        self.program = program
        self.container = container
        self.version = version
        tuning = {"type": "tuning", "capabilities": {"mac": True}}
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False}
        self.net = self.network(self.bridge("10.200.77.0/24"), tuning, portmap, cniVersion=version)
        self.rt = libcni.RuntimeConf(
            "across-1",
            container.path,
            "eth0",
            args={"IgnoreUnknown": "1", "WHO": "me"},
            capability_args={"mac": MAC, "portMappings": [{"hostPort": 28080, "containerPort": 80, "protocol": "tcp"}]},
        )

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
        document = base64.b64encode(self.net.raw).decode()
        steps = [{"kind": kind, "document": document, "rt": rt, "timeout": 30} for kind in kinds]
        job = {"path": [PLUGINS], "cacheDir": str(self.cache), "environ": {"PATH": PLUGIN_PATH}, "steps": steps}
        (outcomes,) = call(self.program, [job])
        assert [outcome.get("error") for outcome in outcomes] == [None] * len(kinds)

    def is_attached(self) -> bool:
        """Whether the interface has its address, and the address its lease; never one without the other."""
        addresses = self.container.addresses("eth0") if "eth0" in self.container.links() else []
        assert [address.partition("/")[0] for address in addresses] == list(self.leased())
        return bool(addresses)

    def has_record(self) -> bool:
        """Whether anything is on record."""
        return any(self.results.iterdir())


@pytest.fixture(params=["0.3.1", "0.4.0", "1.0.0"])
def across(
    request: pytest.FixtureRequest, go_program: Path, tmp_path: Path, host: Namespace, container: Namespace
) -> AcrossNode:
    return AcrossNode(tmp_path, host, container, go_program, request.param)


def test_go_attaches_and_this_library_checks_and_detaches(across: AcrossNode) -> None:
    across.go("add")
    assert across.is_attached()
    (attachment,) = across.cni.get_cached_attachments("across-1")
    assert (attachment.network, attachment.ifname, attachment.state) == (across.net.name, "eth0", "ready")
    bare = libcni.RuntimeConf("across-1", across.container.path, "eth0")
    if across.version != "0.3.1":
        across.cni.check_network_list(across.net, bare)
    across.cni.del_network_list(across.net, bare)
    assert not across.is_attached()
    assert not across.has_record()


def test_this_library_attaches_and_go_checks_and_detaches(across: AcrossNode) -> None:
    result = across.cni.add_network_list(across.net, across.rt)
    assert result.cni_version == across.version
    assert across.is_attached()
    across.go(*([] if across.version == "0.3.1" else ["check"]), "del")
    assert not across.is_attached()
    assert not across.has_record()
    if across.version != "0.3.1":
        with pytest.raises(libcni.NotAttachedError):
            across.cni.check_network_list(across.net, across.rt)
