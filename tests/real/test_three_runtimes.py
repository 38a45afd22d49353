"""Containers of apptainer, of containerd and of this library on one node, all on one network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers import peer_files

from libcni.testing import wait_until
from real.containerd_node import IMAGE, ContainerdNode, containerd_node, why_no_node

pytestmark = [pytest.mark.slow, pytest.mark.may_skip]  # the packages are of sid

ROOTFS = """
mkdir -p /run/rootfs/{bin,proc,sys,dev,tmp,etc,root,var/tmp}
cp /bin/busybox /run/rootfs/bin
touch /run/rootfs/etc/{resolv.conf,hosts,passwd,group,localtime}
"""
SETTINGS = {"mount home", "mount tmp", "config passwd", "config group", "config resolv_conf"}


def prepare(files: Path) -> tuple[list[str], str]:
    """Return the command of apptainer, and a configuration for a node without more than busybox."""
    # A program that is not in /usr looks below its own directory.
    for link in ("usr/etc/apptainer", "usr/lib/etc/apptainer"):
        (files / link).parent.mkdir(exist_ok=True)
        if not (files / link).is_symlink():
            (files / link).symlink_to(files / "etc/apptainer")
    (files / "usr/lib/var/lib/apptainer/mnt/session").mkdir(parents=True, exist_ok=True)
    lines = []
    for line in (files / "etc/apptainer/apptainer.conf").read_text(encoding="utf-8").splitlines():
        key = line.lstrip("#").partition(" =")[0]
        if key in SETTINGS:
            lines.append(f"{key} = no")
        elif not line.startswith(("bind path", "enable overlay", "enable underlay")):
            lines.append(line)
    lines += ["enable overlay = no", "enable underlay = no"]
    lines += ["cni configuration path = /etc/cni/net.d", "cni plugin path = /opt/cni/bin"]
    return [str(files.parent / "bin/apptainer"), "--config", "/run/apptainer.conf"], "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def node() -> Iterator[ContainerdNode]:
    if reason := why_no_node():
        pytest.skip(reason)
    program, configuration = prepare(peer_files("apptainer"))
    with containerd_node(peer_files("containerd@sid")) as made:
        made.env["APPTAINER_CONFIGDIR"] = "/run/apptainer"
        made.shell(ROOTFS)
        made.write("/run/apptainer.conf", configuration)
        before = records(made)
        words = ["exec", "--no-privs", "--net", "--network", "containerd-net", "/run/rootfs"]
        made.start(*program, *words, "/bin/busybox", "sleep", "600")
        try:
            wait_until(lambda: records(made) - before, 120.0)
        except TimeoutError:
            raise AssertionError(made.said()) from None  # what apptainer has printed
        made.run("ip", "netns", "add", "mine")
        made.libcni("add", "containerd-net", "/run/netns/mine", "-c", "mine", "--owner", "me")
        made.shell(f"ctr images import --no-unpack {made.root}/pause.tar")
        made.run("ctr", "run", "--detach", "--cni", "--snapshotter", "native", IMAGE, "by-hand")
        yield made


def records(node: ContainerdNode) -> set[str]:
    return set(node.shell("ls /var/lib/cni/results").split())


def listed(node: ContainerdNode) -> dict[str, dict[str, Any]]:
    found = json.loads(node.libcni("attachments", "-n", "containerd-net", "-o", "json"))
    return {one["container_id"]: one for one in found}


def of_apptainer(node: ContainerdNode) -> str:
    """Return the ID of apptainer's container: the number of its process."""
    [found] = [one for one in listed(node) if one.isdigit()]
    return found


def reservations(node: ContainerdNode) -> str:
    return node.shell("cd /var/lib/cni/networks/containerd-net; head -v -n 1 10.*")


def test_the_containers_of_all_are_listed(node: ContainerdNode) -> None:
    found = listed(node)
    assert {"mine", "default-by-hand", of_apptainer(node)} <= found.keys()
    assert len(found) == 5 + 3
    assert found["mine"]["owner"] == "me"
    assert {found[name]["state"] for name in ("mine", "default-by-hand")} == {"ready"}


def test_the_doctor_is_content_with_all(node: ContainerdNode) -> None:
    told = node.libcni("doctor", code=None)
    assert "no problems found" in told, told


@pytest.mark.parametrize(
    "command",
    [
        ("gc", "containerd-net", "--valid", "mine", "--owner", "me"),
        ("repair", "--yes", "--owner", "me"),
        ("repair", "--yes", "--include-go"),
        ("repair", "--yes", "--check", "--include-go"),
    ],
    ids=" ".join,
)
def test_sweeps_touch_only_their_own(node: ContainerdNode, command: tuple[str, ...]) -> None:
    before = records(node), reservations(node)
    node.libcni(*command, code=None)
    assert (records(node), reservations(node)) == before
    assert node.traffic() == {}
    process = of_apptainer(node)
    inside = node.shell("for p in $(pgrep -x busybox); do nsenter -t $p -n ip -4 -o address show eth0; done")
    assert listed(node)[process]["addresses"][0] in inside


def test_a_sweep_of_ours_detaches_ours(node: ContainerdNode) -> None:
    others = records(node) - {"containerd-net-mine-eth0"}
    node.libcni("gc", "containerd-net", "--none-valid", "--owner", "me", code=None)
    assert records(node) == others
    assert node.traffic() == {}


def test_what_ended_by_itself_left_nothing(node: ContainerdNode) -> None:
    """Apptainer detaches its own; ``ctr`` does not, and repair does it for the dead container."""
    process = of_apptainer(node)
    node.shell(f"kill {process}")
    wait_until(lambda: process not in listed(node), 30.0, "apptainer does not end")
    node.shell(
        "ctr task kill --signal KILL by-hand; ctr task delete --force by-hand; ctr container delete by-hand", code=None
    )
    node.break_with("true")
    node.libcni("repair", "--yes", "--include-go", code=None)
    assert not {"default-by-hand", process} & listed(node).keys()
    assert "no problems found" in node.libcni("doctor", code=None)
    assert node.traffic() == {}
