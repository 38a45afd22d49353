"""``libcni gc``: the valid set, from words or a file, and the owner's attachments alone."""

from __future__ import annotations

import pytest

from cli.node import CommandNode, containers


def test_gc_keeps_what_is_valid(node: CommandNode) -> None:
    for name in ("a", "b", "c"):
        node.add(name)
    (node.root / "valid").write_text("b:eth0\nx:eth0\n", encoding="utf-8")
    assert node.run("gc", "dbnet", "--valid", "a", "--from-file", "valid").code == 0
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["a", "b"]
    assert node.run("gc", "dbnet", "--none-valid", "--valid", "a").code == 2
    (node.root / "list").write_text('["a"]', encoding="utf-8")
    assert node.run("gc", "dbnet", "--from-file", "list").code == 2, "JSON is no list of lines"
    assert node.run("gc", "dbnet", "ignored", "--valid", "a", "-o", "json").data["detached"] == [
        {"container_id": "b", "ifname": "eth0", "network": "dbnet"}
    ]
    assert node.run("gc", "dbnet", "--none-valid").code == 0
    assert node.cni.get_cached_attachments() == []


@pytest.mark.parametrize("name", ["shop/web-0", "web-0", "web-0:eth0"])
def test_gc_keeps_the_pod_that_is_named_as_listings_print_it(node: CommandNode, name: str) -> None:
    node.add("a", args={"K8S_POD_NAMESPACE": "shop", "K8S_POD_NAME": "web-0"})
    node.add("b")
    ran = node.run("gc", "dbnet", "--valid", name)
    assert (ran.code, "note:" in ran.err) == (0, False)
    assert containers(node) == ["a"]
    assert "did you mean shop/web-0?" in node.run("gc", "dbnet", "--valid", "shop/web-1", "--dry-run").err


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_file_does_not_mean_that_no_container_is_valid(node: CommandNode, content: str) -> None:
    node.add("a")
    (node.root / "valid").write_text(content, encoding="utf-8")
    for ran in (node.run("gc", "dbnet", "--from-file", "valid"), node.run("gc", "dbnet", "--from-file", "-", stdin="")):
        assert ran.code == 2
        assert "--none-valid" in ran.err
    assert len(node.cni.get_cached_attachments()) == 1
    assert node.run("gc", "dbnet", "--from-file", "valid", "--none-valid").code == 0
    assert node.cni.get_cached_attachments() == []


def test_gc_of_a_network_without_a_file_works_from_the_records(node: CommandNode) -> None:
    for name in ("a", "b"):
        node.add(name)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    planned = node.run("gc", "dbnet", "--valid", "a", "--dry-run", "-o", "json").data
    assert [one["container_id"] for one in planned["stale"]] == ["b"]
    assert node.run("gc", "dbnet", "--valid", "a").code == 0
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["a"]
    assert node.run("gc", "nothere", "--none-valid").code == 4


def test_gc_says_whose_attachments_it_leaves(node: CommandNode) -> None:
    node.run("add", "dbnet", node.netns("a"), "-c", "a", "--owner", "podman")
    node.run("add", "dbnet", node.netns("b"), "-c", "b", "--owner", "podman")
    ran = node.run("gc", "dbnet", "--none-valid")
    assert (ran.code, ran.out) == (0, "")
    assert "note: 2 attachments of owner podman (--owner) are left as they are" in ran.err
    assert (
        "note: 1 attachment of owner podman (--owner) is left as it is" in node.run("gc", "dbnet", "--valid", "a").err
    )
    assert "note" not in node.run("gc", "dbnet", "--valid", "a", "--valid", "b").err
    assert "note" not in node.run("gc", "dbnet", "--none-valid", "--owner", "podman").err


def test_gc_detaches_records_of_go_only_if_asked(node: CommandNode) -> None:
    for name in ("a", "b", "c"):
        node.add(name)
    for name in ("b", "c"):
        node.strip_record(name, "dbnet")
    planned = node.run("gc", "dbnet", "--valid", "c", "--dry-run")
    assert "note: 1 attachment of Go libcni (--include-go) is left as it is" in planned.err
    done = node.run("gc", "dbnet", "--valid", "c", "-o", "json").data
    assert [one["container_id"] for one in done["detached"]] == ["a"]
    assert [one["container_id"] for one in done["made_by_go"]] == ["b"]
    assert containers(node) == ["b", "c"]
    done = node.run("gc", "dbnet", "--valid", "c", "--include-go")
    assert (done.code, "note:" in done.err) == (0, False)
    assert containers(node) == ["c"]


def test_including_records_of_go_contradicts_an_owner(node: CommandNode) -> None:
    for words in (["gc", "dbnet", "--none-valid"], ["repair"]):
        ran = node.run(*words, "--include-go", "--owner", "podman")
        assert (ran.code, "--owner" in ran.err) == (2, True)
    assert node.run("gc", "--runtime", "runc", "--include-go").code == 2


def test_gc_says_which_valid_name_has_no_record(node: CommandNode) -> None:
    """A misspelt name keeps nothing, and its container is detached."""
    node.add("web-1")
    kept = node.run("gc", "dbnet", "--valid", "web", "--dry-run")
    assert (kept.out, kept.err.count("note: ")) == ("nothing would be detached\n", 0), "GC must rather keep too much"
    node.add("web")
    assert "web-1 " in node.run("gc", "dbnet", "--valid", "web", "--dry-run").out
    ran = node.run("gc", "dbnet", "--valid", "web1", "--dry-run")
    assert "note: no record names web1; did you mean web-1?\n" in ran.err
    ran = node.run("gc", "dbnet", "--valid", "web:eht0", "--valid", "web-1:eth0", "--dry-run")
    assert ran.err.startswith("note: no record names web:eht0; did you mean web:eth0?\n")
    assert ran.err.count("note: ") == 1
