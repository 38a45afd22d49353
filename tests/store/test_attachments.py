"""Between an attachment and its record: what is recorded, which of it is used, and the public view."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from helpers import RESULT, RT, attached, network

from libcni.config import jsontext
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import RecordError, VersionError
from libcni.kernel.namespace import namespace_identity
from libcni.store.attachments import (
    Attachment,
    attachments_of,
    iter_attachments_of,
    new_record,
    recorded_conf,
    recorded_network,
    recorded_result,
)
from libcni.store.model import CORRUPT, DETACHING, PENDING, READY, STALE_BOOT, MadeByGo, Ours, Record, Unreadable
from libcni.store.place import Place
from libcni.store.present_interfaces import Sight
from libcni.store.recorded_interface import place_of
from libcni.store.records import RecordStore
from store.canned import FULL, written


def view(record: Record) -> Attachment:
    return attachments_of([record], RecordStore("/none"))[0]


def test_the_public_view() -> None:
    record = attached(
        network("a"), created=1700000000.5, path="/cache/x", capability_args='{"mac":1}', args=(("K", "V"),)
    )
    seen = view(record)
    assert seen == Attachment(
        container_id="c1",
        ifname="eth0",
        network="net",
        netns="/run/netns/blue",
        state=READY,
        created=datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC),
        path="/cache/x",
        config=network("a").raw,
        args=(("K", "V"),),
        capability_args={"mac": 1},
    )
    assert seen.record is record
    assert seen.result is not None
    assert seen.result.to_dict() == RESULT


def test_the_public_view_of_what_says_little() -> None:
    seen = view(Unreadable(state=CORRUPT, problem="it is empty", created=None))
    assert (seen.created, seen.problem, seen.result, seen.capability_args) == (None, "it is empty", None, {})
    assert view(Ours(created=1e300)).created is None


def test_an_attachment_whose_namespace_is_gone(tmp_path: Path) -> None:
    netns = tmp_path / "netns"
    netns.touch()
    record = Ours("net", "c1", "eth0", READY, netns=str(netns), netns_id=namespace_identity(str(netns)), owner="me")
    assert (view(record).state, view(record).owner) == (READY, "me")
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(netns)
    assert view(record).state == "gone"
    netns.unlink()
    assert view(record).state == "gone"
    for state in (PENDING, DETACHING, STALE_BOOT):
        assert view(replace(record, state=state)).state == state


def test_a_namespace_is_left_before_the_caller_gets_the_attachment(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace that is looked at cannot end, and the caller of an iterator may take its time."""
    left: list[str] = []
    monkeypatch.setattr(Sight, "look", lambda *_: Place())
    monkeypatch.setattr(Sight, "close", lambda _: left.append("left"))
    for number, _ in enumerate(iter_attachments_of((FULL, FULL), store), 1):
        assert len(left) == number


def test_a_listing_finds_no_texts_in_the_files(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes as long as to decode the files, and nobody may ask for them."""
    asked: list[str] = []
    members = jsontext.members

    def note(text: str) -> list[jsontext.Member]:
        asked.append(text)
        return members(text)

    monkeypatch.setattr(jsontext, "members", note)
    monkeypatch.setattr(Sight, "look", lambda *_: place_of(FULL))
    written(store, FULL)
    (attachment,) = attachments_of(store.records(), store)
    assert (attachment.capability_args, asked) == ({"portMappings": [{"hostPort": 8080}]}, [])
    Path(attachment.path).unlink()
    assert pickle.loads(pickle.dumps(attachment)).record == attachment.record
    assert (attachment.record.plugins, attachment.record.result) == (FULL.plugins, FULL.result)
    assert attachment.record.capability_args == FULL.capability_args


def test_a_path_that_did_not_exist_at_the_add_has_not_gone(tmp_path: Path) -> None:
    """Go records no identity of the namespace, so only the missing path shows that it has gone."""
    netns = str(tmp_path / "netns")
    made_here = Ours("net", "c1", "eth0", READY, netns=netns, version="1.0.0")
    made_by_go = MadeByGo("net", "c1", "eth0", READY, netns=netns)
    assert (view(made_here).state, view(made_by_go).state) == (READY, "gone")
    assert view(replace(made_by_go, netns="opaque")).state == READY
    (tmp_path / "netns").touch()
    # A namespace that exists now was made after the ADD.
    assert (view(made_here).state, view(made_by_go).state) == ("gone", READY)


def test_an_unreadable_record_holds_no_configuration() -> None:
    assert recorded_network(Unreadable(state=CORRUPT, config=network("a").raw)) is None


def test_the_recorded_network_is_the_one_that_was_used() -> None:
    net = network("a", disableCheck=True).with_version("0.4.0").with_plugins(network({"type": "b", "x": 1}).plugins)
    again = recorded_network(new_record(net, RT))
    assert again is not None
    assert again.plugins == net.plugins
    assert (again.name, again.cni_version, again.disable_check) == ("net", "0.4.0", True)


def test_recorded_parameters_alone() -> None:
    rt = RuntimeConf("c1", "/n", "eth0", args=[("K", "V")], capability_args={"a": 1}, network_args={"cni": {}})
    assert recorded_conf(attached(rt=rt)) == rt
    assert recorded_conf(attached(rt=RT)) == RuntimeConf("c1", RT.netns, "eth0", (), {}, {})


def test_recorded_results() -> None:
    assert recorded_result(attached(), "0.4.0").cni_version == "0.4.0"
    with pytest.raises(VersionError):
        recorded_result(attached(), "7.0.0")
    with pytest.raises(RecordError, match="/x: the record has no result") as caught:
        recorded_result(attached(result=None, path="/x"))
    assert caught.value.path == "/x"
    with pytest.raises(RecordError, match="/x: the recorded result cannot be read"):
        recorded_result(attached(result="5", path="/x"))


@pytest.mark.parametrize(("version", "meant"), [("", "0.1.0"), ("1.0.0", "1.0.0")])
def test_a_recorded_result_without_a_version(version: str, meant: str) -> None:
    assert recorded_result(attached(result="{}", version=version)).cni_version == meant
