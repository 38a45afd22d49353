"""CNIConfig with real processes, real records and real locks."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import RESULT, document, network
from nodes import FakeNode
from processes import fork, wait

from libcni import AsyncCNIConfig, CNIConfig, RuntimeConf
from libcni.errors import CNIError, ConfigError, NotAttachedError, PluginError, PluginTimeoutError, RecordError
from libcni.store.boot import boot_id, pid_namespace
from libcni.testing import wait_until

CAPABLE = {"type": "a", "capabilities": {"mac": True, "ips": False}, "x": 1}


@pytest.fixture(autouse=True)
def _plugins(node: FakeNode) -> None:
    for name in ("a", "b"):
        node.plugin(name)


@pytest.fixture
def cni(node: FakeNode) -> CNIConfig:
    return node.cni


@pytest.fixture
def rt(node: FakeNode) -> RuntimeConf:
    return RuntimeConf("c1", node.netns("c1"), "eth0")


def test_the_main_job(node: FakeNode, cni: CNIConfig, rt: RuntimeConf) -> None:
    net = network(CAPABLE, "b")
    result = cni.add_network_list(net, rt)
    assert result.to_dict() == RESULT
    (attachment,) = cni.get_cached_attachments()
    assert (attachment.network, attachment.container_id, attachment.ifname) == ("net", "c1", "eth0")
    assert (attachment.state, attachment.netns, attachment.path) == ("ready", rt.netns, str(node.record()))
    assert attachment.created is not None
    assert abs(attachment.created.timestamp() - time.time()) < 60
    assert attachment.record.uptime is not None
    assert (attachment.record.boot, attachment.record.pid_namespace) == (boot_id(), pid_namespace())
    cni.check_network_list(net, rt)
    report = cni.del_network_list(net, rt)
    assert [one.plugin for one in report.plugins] == ["b", "a"]
    assert node.verbs() == ["ADD a", "ADD b", "CHECK a", "CHECK b", "DEL b", "DEL a"]
    assert cni.get_cached_attachments() == []
    assert (cni.path, cni.cache_dir) == ((str(node.bin),), str(node.cache))
    assert sorted(os.listdir(node.cache)) == ["locks", "locks.plugins", "results", "tmp"]
    assert os.listdir(node.results) == os.listdir(node.cache / "tmp") == []


@pytest.mark.parametrize("kind", [CNIConfig, AsyncCNIConfig])
def test_a_client_shows_its_directories_and_owner(kind: type[CNIConfig | AsyncCNIConfig]) -> None:
    cni = kind("/a:/b", "/c", conf_dir="/d", owner="me", env={"TOKEN": "secret"})
    assert repr(cni) == f"{kind.__name__}(path=('/a', '/b'), cache_dir='/c', conf_dir='/d', owner='me')"


@pytest.mark.parametrize("kind", [CNIConfig, AsyncCNIConfig])
def test_a_relative_namespace_stays_the_same_after_the_program_changed_its_directory(
    node: FakeNode, rt: RuntimeConf, kind: type[CNIConfig | AsyncCNIConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.kind = kind
    (node.bin / "link").symlink_to(node.conf_dir)
    monkeypatch.chdir(node.bin)
    node.cni.add_network_list(network("a"), rt.with_netns("link/../ns/c1"))
    monkeypatch.chdir("/")
    (attachment,) = node.cni.get_cached_attachments()
    assert attachment.state == "ready"
    monkeypatch.chdir(node.root)
    node.cni.check_network_list(network("a"), rt.with_netns("ns/c1"))
    node.cni.del_network_list(network("a"), rt.with_netns("ns/c1"))
    monkeypatch.chdir("/")
    seen = [call.env["CNI_NETNS"] for call in node.fakes.calls]
    assert [os.path.realpath(path) for path in seen] == [rt.netns] * 3


def test_a_namespace_that_is_no_path_stays_as_it_is(node: FakeNode, cni: CNIConfig) -> None:
    cni.add_network_list(network("a"), RuntimeConf("c1", "vm:17/4", "eth0"))
    cni.del_network_list(network("a"), RuntimeConf("c1", None, "eth0"))
    assert [call.env["CNI_NETNS"] for call in node.fakes.calls] == ["vm:17/4"] * 2


def test_a_limit_of_file_sizes_stops_no_clean_up(node: FakeNode, cni: CNIConfig, rt: RuntimeConf) -> None:
    quiet = node.bin / "quiet"  # other fakes write files themselves
    body = 'cat > /dev/null; echo \'{"cniVersion": "1.0.0"}\''
    quiet.write_text(f"#!/bin/sh\nmkdir {node.root}/$CNI_COMMAND\n{body}\n")
    quiet.chmod(0o755)
    cni.add_network_list(network("quiet"), rt)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(RecordError, match="ulimit -f") as caught:
            cni.add_network_list(network("quiet"), RuntimeConf("c2", rt.netns, "eth0"))
        assert caught.value.errno == errno.EFBIG
        cni.check_network_list(network("quiet"), rt)
        cni.del_network_list(network("quiet"), rt)

    assert wait(fork(limited)) == 0
    assert cni.get_cached_attachments() == []
    assert (node.root / "DEL").is_dir()


def test_the_environment(node: FakeNode, rt: RuntimeConf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNI_NETNS_OVERRIDE", "1")
    monkeypatch.setenv("CNI_ARGS", "stale")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("LIBCNI_LOCK", "stale")
    net = network("a")

    def env_with(**options: Any) -> dict[str, str]:
        cni = node.client(path=[node.bin, "/more", ""], **options)
        cni.add_network_list(net, rt, on_existing="allow")
        return dict(node.last_call("a").env)

    got = env_with()
    assert {name: text for name, text in got.items() if name.startswith("CNI_")} == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": rt.netns,
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "",
        "CNI_PATH": f"{node.bin}:/more",
        "CNI_NETNS_OVERRIDE": "1",  # the user's own
    }
    assert (got["KEPT"], got["PATH"]) == ("1", os.environ["PATH"])
    assert got["LIBCNI_LOCK"].count(":") > 1
    assert not env_with(env=[]).keys() & {"KEPT", "CNI_NETNS_OVERRIDE"}
    narrowed = env_with(env=["PATH", "NOT_SET", "CNI_NETNS_OVERRIDE"])
    assert narrowed.keys() >= {"PATH", "CNI_NETNS_OVERRIDE"}
    assert not narrowed.keys() & {"KEPT", "NOT_SET"}
    replaced = env_with(env={"PATH": "/bin", "MINE": "2", "EMPTY": "", "CNI_ARGS": "x", "CNI_FOO": "y"})
    assert [replaced[name] for name in ("PATH", "MINE", "EMPTY", "CNI_ARGS")] == ["/bin", "2", "", ""]
    assert not replaced.keys() & {"KEPT", "CNI_FOO"}
    # They are decoded once, and again after each change.
    monkeypatch.setenv("KEPT", "\udcff2")
    assert env_with()["KEPT"] == "\udcff2"
    monkeypatch.delenv("KEPT")
    assert "KEPT" not in env_with()
    monkeypatch.setattr(os, "environ", {**os.environ, "KEPT": "3"})
    assert env_with()["KEPT"] == "3"


def test_a_string_is_split_like_cni_path(node: FakeNode) -> None:
    assert CNIConfig("/a::/b", node.cache).path == CNIConfig([Path("/a"), "/b"], node.cache).path == ("/a", "/b")


# names instead of configurations


@pytest.mark.parametrize("now", [document("b"), {"broken": True}, None], ids=["changed", "broken", "gone"])
def test_a_configuration_that_changed_between_add_and_del(
    node: FakeNode, cni: CNIConfig, rt: RuntimeConf, now: dict[str, Any] | None
) -> None:
    path = node.configure("net", "a")
    drop_in = node.write("net/x.conf", {"type": "b", "dropped": 1})
    cni.add_network_list("net", rt)
    drop_in.unlink()
    path.unlink()
    if now is not None:
        node.write("10-net.conflist", now)
    cni.check_network_list("net", rt)
    cni.del_network_list("net", rt)
    assert node.verbs() == ["ADD a", "ADD b", "CHECK a", "CHECK b", "DEL b", "DEL a"]
    assert node.last_call("b", "DEL").config["dropped"] == 1
    assert cni.get_cached_attachments() == []


def test_a_configuration_directory_that_cannot_be_read_stops_no_del(
    node: FakeNode, rt: RuntimeConf, caplog: pytest.LogCaptureFixture
) -> None:
    cni = node.client(conf_dir=node.netns("file"))
    cni.add_network_list(network("a"), rt)
    cni.check_network_list("net", rt)
    cni.del_network_list("net", rt)
    assert node.verbs() == ["ADD a", "CHECK a", "DEL a"]
    assert "Not a directory" in caplog.text
    with pytest.raises(ConfigError, match="Not a directory"):
        cni.add_network_list("net", rt)


# time and locks


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), True, "5"])
def test_a_timeout_that_is_none_is_refused_everywhere(
    cni: CNIConfig, rt: RuntimeConf, node: FakeNode, timeout: Any
) -> None:
    with pytest.raises((ValueError, TypeError), match="timeout must be a number of seconds"):
        cni.add_network_list(network("a"), rt, timeout=timeout)
    for name in ("timeout", "plugin_timeout", "cleanup_timeout"):
        with pytest.raises((ValueError, TypeError), match=f"{name} must be a number of seconds"):
            CNIConfig([], node.cache, **{name: timeout})


# other seams


def test_stderr_of_a_success_goes_where_it_is_wanted(
    node: FakeNode, rt: RuntimeConf, caplog: pytest.LogCaptureFixture
) -> None:
    node.plugin("a", "echo said >&2")
    net = network("a")
    with caplog.at_level(logging.WARNING, "libcni.plugin"):
        node.client().add_network_list(net, rt)
    assert [record.message for record in caplog.records] == ["a ADD: said"]
    file = io.StringIO()
    node.client(stderr=file).check_network_list(net, rt)
    assert file.getvalue() == "said\n"
    told: list[tuple[str, str]] = []
    node.client(stderr=lambda call, text: told.append((call.verb, text))).del_network_list(net, rt)
    assert told == [("DEL", "said\n")]
    assert len(caplog.records) == 1


def test_allow_replaces_the_record_where_it_is(node: FakeNode) -> None:
    cni = node.client()
    first, second = RuntimeConf("c", "", "eth0"), RuntimeConf("b-c", "", "eth0")
    cni.add_network_list(network("a", name="a-b"), first)
    cni.add_network_list(network("a", name="a"), second)
    cni.del_network_list(network("a", name="a-b"), first)
    cni.add_network_list(network("a", name="a"), second, on_existing="allow")
    assert len(cni.get_cached_attachments()) == 1
    cni.del_network_list(network("a", name="a"), second)
    assert cni.get_cached_attachments() == []


def test_a_document_is_no_network(cni: CNIConfig, rt: RuntimeConf) -> None:
    document: Any = {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a"}]}
    for verb in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        with pytest.raises(TypeError, match="a NetworkConfigList or a network's name"):
            verb(document, rt)


def test_the_time_of_a_roll_back_is_shared_out_over_the_plugins(node: FakeNode, rt: RuntimeConf) -> None:
    node.plugin("a")
    node.plugin("hangs", "sleep 60")
    cni = node.client(timeout=1.0, cleanup_timeout=2.0)
    with pytest.raises(PluginTimeoutError) as caught:
        cni.add_network_list(network("a", "hangs"), rt)
    assert [type(error) for error in caught.value.rollback_errors] == [PluginTimeoutError]
    assert node.verbs() == ["ADD a", "ADD hangs", "DEL hangs", "DEL a"]


def test_forget_waits_for_the_add_that_runs_and_leaves_what_it_attached(node: FakeNode) -> None:
    begun = node.root / "begun"
    node.plugin("slow", f"touch {begun}; sleep 0.5")
    cni = node.client()
    adding = threading.Thread(target=cni.add_network_list, args=(network("slow"), RuntimeConf("c1", None, "eth0")))
    adding.start()
    wait_until(begun.exists)
    (listed,) = cni.get_cached_attachments()
    assert listed.state == "pending"
    for call in (cni.forget_attachment, cni.del_attachment):
        with pytest.raises(RecordError, match="after the attachment was listed"):
            call(listed)
    adding.join()
    assert [one.state for one in cni.get_cached_attachments()] == ["ready"]
    assert node.verbs() == ["ADD slow"]


def test_a_pending_record_can_be_taken_over(node: FakeNode, rt: RuntimeConf) -> None:
    node.plugin("bad", "[ $CNI_COMMAND != ADD ] || exit 1")
    theirs = node.client(owner="theirs")
    with pytest.raises(PluginError):
        theirs.add_network_list(network("bad"), rt, rollback=False)
    mine = node.client(owner="mine")
    assert mine.gc_network_list(network("bad"), []).detached == ()
    (listed,) = mine.get_cached_attachments()
    taken = mine.take_over_attachment(listed)
    assert (taken.state, taken.owner) == ("pending", "mine")
    for call in (theirs.forget_attachment, theirs.del_attachment, theirs.take_over_attachment):
        with pytest.raises(RecordError, match="after the attachment was listed"):
            call(listed)
    assert theirs.gc_network_list(network("bad"), []).detached == ()
    assert len(mine.gc_network_list(network("bad"), []).detached) == 1


def test_a_recorded_attachment_is_all_that_check_needs(node: FakeNode, cni: CNIConfig, rt: RuntimeConf) -> None:
    cni.add_network_list(node.network("a"), rt)
    [attachment] = cni.get_cached_attachments()
    assert cni.check_attachment(attachment).plugins == ("a",)
    assert asyncio.run(node.async_client().check_attachment(attachment)).plugins == ("a",)
    assert node.verbs() == ["ADD a", "CHECK a", "CHECK a"]
    forbidden = node.network("a", disableCheck=True)
    assert cni.check_network_list(forbidden, rt).plugins == (), "nothing is known of the attachment"
    assert len(node.verbs()) == 3
    cni.del_attachment(attachment)
    with pytest.raises(NotAttachedError):
        cni.check_attachment(attachment)


@pytest.mark.parametrize(
    "work",
    [
        lambda cni: cni.network("nowhere"),
        lambda cni: cni.find_plugin("nowhere"),
        lambda cni: cni.networks(),
        lambda cni: cni.get_cached_attachments(),
        lambda cni: list(cni.iter_cached_attachments()),
        lambda cni: cni.get_network_list_cached_config("net", RuntimeConf("c1", None, "eth0")),
    ],
)
def test_what_runs_no_verb_names_the_client_in_its_errors_too(node: FakeNode, work: Any) -> None:
    (node.root / "file").touch()
    cni = node.client(cache_dir=node.root / "file", conf_dir=node.root / "file")
    with pytest.raises(CNIError) as caught:
        work(cni)
    assert caught.value.client["cache_dir"] == str(node.root / "file")


@pytest.mark.parametrize("verb", ["check_attachment", "del_attachment"])
def test_the_hint_about_an_unreadable_record_acts_on_the_clients_records(node: FakeNode, verb: str) -> None:
    node.cache.joinpath("results").mkdir(parents=True)
    node.cache.joinpath("results", "net-c1-eth0").write_text("torn")
    [corrupt] = node.cni.get_cached_attachments()
    with pytest.raises(RecordError, match=f"libcni repair --yes .*--cache-dir {node.cache}"):
        getattr(node.cni, verb)(corrupt)
    with pytest.raises(RecordError, match=f"libcni repair --yes .*--cache-dir {node.cache}"):
        asyncio.run(getattr(node.async_client(), verb)(corrupt))


def test_the_events_of_an_attachment_are_those_of_its_file(node: FakeNode, rt: RuntimeConf) -> None:
    node.configure("net", "a", "b")
    node.cni.add_network_list("net", rt)
    [listed] = node.cni.get_cached_attachments()
    assert [event for _, event in listed.events] == ["started", "step a", "complete"]
    assert listed.created is not None
    assert all(-0.01 < (at - listed.created).total_seconds() < 60 for at, _ in listed.events)
    node.plugin("b", "exit 1")
    with pytest.raises(PluginError):
        node.cni.del_network_list("net", rt)
    assert [event for _, event in listed.events][-1] == "detach"
    node.strip_record()
    assert listed.events == ()
    node.record().unlink()
    assert listed.events == ()
