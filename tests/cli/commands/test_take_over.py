"""``libcni take-over``, and the sweeps of each owner before and after."""

from __future__ import annotations

from cli.node import CommandNode, containers


def test_an_owner_sweeps_only_its_own(node: CommandNode) -> None:
    node.add("plain")
    assert node.run("add", "dbnet", node.netns("ours"), "-c", "ours", "--owner", "podman").code == 0
    assert "podman" in node.run("attachments").out
    assert node.run("gc", "dbnet", "--none-valid", LIBCNI_OWNER="podman").code == 0
    assert containers(node) == ["plain"]
    assert node.run("gc", "dbnet", "--none-valid", "--owner", "other").code == 0
    assert containers(node) == ["plain"]
    taken = node.run("take-over", "--from", "", "--to", "podman", "-o", "json").data
    assert [(one["container_id"], one["owner"]) for one in taken] == [("plain", "podman")]
    node.change_record("plain", "dbnet", bootId="another")
    ran = node.run("repair", "-o", "json").data
    assert [one["needs"] for one in ran["outcomes"]] == [[["owner", "podman"]]]
    assert ran["commands"] == ["libcni repair --yes --owner podman"]
    assert node.run("repair", "--yes").code == 0
    assert containers(node) == ["plain"]
    assert "plain" in node.run("doctor").out, "the doctor shows the attachments of all owners"
    assert node.run("repair", "--yes", "--owner", "podman").code == 0
    assert containers(node) == []
