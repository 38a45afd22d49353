"""A reload beside another runtime, with the real firewall."""

from __future__ import annotations

import subprocess
from contextlib import suppress

import pytest
from nodes import Namespace, RealNode

from libcni import CNIError, RuntimeConf

pytestmark = pytest.mark.real

THEIRS = 'tcp dport 9090 dnat to 10.99.0.2:80 comment "c1"'

# As portmap's with nftables: its rules have the container's ID alone. While the DEL runs, the other runtime ends its
# container of this ID.
PORTMAP = """chain="ip cni_hostport hostports"
case $CNI_COMMAND in
ADD) nft add rule $chain tcp dport 8080 dnat to 10.234.0.2:80 comment '"c1"';;
DEL) nft flush chain $chain; touch {ended};;
esac"""


def test_a_port_of_another_runtime_that_ends_meanwhile_stays_ended(node: RealNode, container: Namespace) -> None:
    ended = node.root / "ended"
    tables = "add table ip cni_hostport; add chain ip cni_hostport hostports"
    subprocess.run(["nft", f"{tables}; add rule ip cni_hostport hostports {THEIRS}"], check=True)
    node.plugin("portmap", PORTMAP.format(ended=ended))
    node.configure("net", node.bridge("10.234.0.0/24"), "portmap")
    node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    [attachment] = node.cni.get_cached_attachments("c1")
    with suppress(CNIError):
        node.cni.reload_attachment(attachment)
    assert (THEIRS in node.host.run("nft", "list", "ruleset")) is not ended.exists()
    assert "eth0" in container.links()
