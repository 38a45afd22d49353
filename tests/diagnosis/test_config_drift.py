"""The check of recorded configurations alone, on a reading that is made by hand; and once on a real node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, PORTMAP, PORTS, MadeNode, configure
from libcni.diagnosis.config_drift import check_drift
from libcni.diagnosis.doctor import report_on
from libcni.kernel.netlink import Link


def test_a_file_whose_network_was_renamed(made: MadeNode) -> None:
    """host-local's directory has the network's name: the new one knows no address that is in use."""
    configure(made)
    [file] = Path(made.cni.conf_dir).iterdir()
    made.attach("c1")
    assert made.findings(check_drift) == []
    file.write_text(file.read_text(encoding="utf-8").replace('"net"', '"renamed"'), encoding="utf-8")
    found = made.finding(check_drift)
    assert (found.name, found.remedy) == ("no-file", f"give the network its old name again in {file}: net")
    assert "the next containers get addresses that are in use" in found.meaning


def test_a_configuration_that_has_changed_since(made: MadeNode) -> None:
    """To attach the containers again would interrupt them, and could fail: nothing does it but their next start."""
    made.attach("c1")
    configure(made)
    assert made.findings(check_drift) == []
    configure(made, {**BRIDGE, "mtu": 1400})
    found = made.finding(check_drift)
    assert "changed keys: plugins[0].mtu" in found.seen
    assert found.mends == ()
    assert found.remedy.endswith(": libcni show c1:eth0 -n net --config")


def test_a_file_that_has_lost_portmap_costs_published_ports(made: MadeNode) -> None:
    """The runtime goes on to send portMappings, and no plugin takes them: the ADD succeeds without rules."""
    made.attach("c1", BRIDGE, PORTMAP, capability_args=json.dumps(PORTS))
    made.attach("c2", BRIDGE, PORTMAP)
    configure(made, BRIDGE)
    found = made.finding(check_drift)
    assert found.meaning.endswith("; then nobody serves the published ports of c1: no plugin has portMappings")
    assert found.remedy.startswith("put portmap with its capability portMappings back into the file, or else")
    configure(made, BRIDGE, {**PORTMAP, "snat": True})
    assert made.finding(check_drift).remedy.startswith("if the change is wanted, do nothing")
    made.records.clear()
    made.attach("c3", BRIDGE, capability_args=json.dumps(PORTS))
    configure(made, {**BRIDGE, "mtu": 1400})
    assert made.finding(check_drift).remedy.startswith("if the change is wanted"), "another program served them before"


def test_a_loopback_network_needs_no_file_and_is_evidence_of_nothing(made: MadeNode) -> None:
    """containerd attaches ``lo`` of each pod to a network of its own, and each has the same addresses there."""
    plain = {**BRIDGE, "ipMasq": False}
    configure(made, plain)
    for number, pod in enumerate(("c1", "c2")):
        inside = made.attach(pod, plain)
        inside.links["lo"] = Link("lo", 1, is_up=True, addresses=["127.0.0.1/8", "::1/128", "10.1.0.77/32"])
        ips = [{"address": "127.0.0.1/8", "interface": 0}, {"address": "::1/128", "interface": 0}]
        interfaces = [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": made.records[-1].netns}]
        made.records.append(
            made.records[-1].with_fields(
                network="cni-loopback", ifname="lo", path=f"/cache/results/cni-loopback-{pod}-lo", created=number,
                config=b'{"cniVersion": "0.3.1", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}',
                result=json.dumps({"cniVersion": "0.3.1", "interfaces": interfaces, "ips": ips}),
            )
        )  # fmt: skip
    made.reserve("10.1.0.77", "dead")
    report = report_on(made.reading(), skip=["plugins"])
    assert [(one.name, [mend.kind for mend in one.mends]) for one in report.findings] == [("leak", ["release"])]


def test_records_of_go_have_no_drop_in_plugins(made: MadeNode) -> None:
    configure(made)
    (made.root / "net.d" / "net").mkdir()
    (made.root / "net.d" / "net" / "50-more.conf").write_text('{"type": "more"}', encoding="utf-8")
    made.attach("go", version="")
    assert made.findings(check_drift) == []
    made.attach("ours")
    assert made.finding(check_drift).containers == ("ours:eth0",)


def test_a_file_that_has_gone_is_in_the_newest_record(made: MadeNode) -> None:
    made.attach("c1", created=2.0)
    made.attach("c2", created=1.0)
    assert made.finding(check_drift).remedy.endswith(": libcni show c1:eth0 -n net --config")


def test_the_dead_of_a_network_without_a_file_are_named_with_who_has_their_addresses(made: MadeNode) -> None:
    """After a switch to another network plugin: the old records stay, and often the old plugin is missing."""
    made.attach("c1", {"type": "ptp", "ipam": IPAM}, state="stale-boot")
    found = made.finding(check_drift)
    assert found.seen == "it has no usable configuration file, and 1 attachment: c1; all have ended"
    assert found.meaning == "their addresses are still reserved: 10.1.0.2"
    assert found.remedy.startswith("if the network is still wanted")
    made.attach("c2", address="10.1.0.2")
    found = made.finding(check_drift)
    assert found.seen.endswith("2 attachments: c1, c2; these have ended: c1")
    assert found.meaning.startswith("their addresses are still reserved: 10.1.0.2; c2:eth0 has such an address now; ")
    assert found.meaning.endswith(
        "; the living ones work and can be detached; no further container can be attached to the network"
    )
    (made.root / "bin" / "ptp").unlink()
    detach, restore = made.finding(check_drift).remedy.split(", or remove its records: libcni forget; ")
    assert detach.startswith('to detach what has ended, install the plugins (plugin "ptp" not found in ')
    assert restore.startswith("if the network is still wanted, ")
    made.records.pop()
    assert made.finding(check_drift).remedy.endswith("), or remove its records: libcni forget"), (
        "nobody needs the network"
    )


def test_a_renamed_network_with_dead_and_with_living_containers_says_both(made: MadeNode) -> None:
    configure(made)
    [file] = Path(made.cni.conf_dir).iterdir()
    file.write_text(file.read_text(encoding="utf-8").replace('"net"', '"renamed"'), encoding="utf-8")
    made.attach("c1", state="stale-boot")
    made.attach("c2")
    found = made.finding(check_drift)
    assert found.meaning.startswith(f"their addresses are still reserved: 10.1.0.2; {file} has the same plugins under")
    made.attach("c3", network="renamed", config=json.dumps(json.loads(file.read_text())).encode())
    found = made.finding(check_drift)
    # With its old name again the file would be missing for the others.
    assert found.remedy == "others already use the new name, so restart the containers that use the old one: c2"


def test_a_directory_that_cannot_be_read_is_not_one_without_files(made: MadeNode) -> None:
    made.attach("c1")
    made.more["directory"] = None
    assert made.findings(check_drift) == []
    assert made.not_checked(check_drift) == [(made.cni.conf_dir, "the configurations cannot be read")]


@pytest.mark.real
def test_a_network_whose_file_has_gone_is_put_back_as_it_was(node: OperatorNode) -> None:
    node.attach("c1")
    file = node.conf_dir / "net.conflist"
    content = file.read_bytes()
    file.unlink()
    command = node.finding("it has no usable configuration file").remedy.rpartition(": ")[2]
    node.type(f"{command} > {file}")
    assert file.read_bytes() == content
