"""The format of a record: Go libcni's, byte for byte, and one key more."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from config.test_jsontext import objects
from hypothesis import given
from hypothesis import strategies as st

from libcni import _system as system
from libcni.errors import RecordError
from libcni.store import record as record_module
from libcni.store.place import NOT_OURS
from libcni.store.record import (
    CORRUPT,
    LEGACY,
    PENDING,
    READY,
    STALE_BOOT,
    Record,
    boot_id,
    decode,
    encode,
)
from libcni.store.records import RecordStore
from store.canned import FULL, GO_BARE, GO_FULL, RESULT, bare, put


def test_the_bytes_are_gos_and_one_key_more() -> None:
    data = encode(FULL)
    assert data.endswith(b"}," + GO_FULL[1:])
    assert list(json.loads(data)) == [
        "libcni",
        "kind",
        "containerId",
        "config",
        "ifName",
        "networkName",
        "netns",
        "cniArgs",
        "capabilityArgs",
        "result",
    ]
    assert list(json.loads(data)["libcni"]) == [
        "detaching",
        "state",
        "created",
        "uptime",
        "bootId",
        "netnsId",
        "pidNamespace",
        "cniVersion",
        "owner",
        "plugins",
        "networkArgs",
    ]


def test_what_is_empty_is_left_out_as_in_go() -> None:
    assert list(json.loads(encode(bare()))) == ["libcni", "kind", "containerId", "config", "ifName", "networkName"]
    assert b"\n" not in encode(FULL)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode(encode(FULL), "/p") == replace(FULL, path="/p")
    assert decode(encode(bare(state=PENDING)), "/p") == bare(state=PENDING, path="/p")


def test_gos_files_are_read() -> None:
    go = replace(
        FULL, netns_id=None, version="", plugins=(), network_args="", created=None, boot="", owner="", path="/p"
    )
    assert decode(GO_FULL, "/p") == go
    assert decode(GO_BARE, "/p") == Record("net", "c1", "eth0", path="/p")


@given(objects, objects, st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda t: "\0" not in t))
def test_results_and_plugins_keep_their_text(plugin: str, result: str, netns: str) -> None:
    record = bare(plugins=(plugin,), result=result, netns=netns)
    assert decode(encode(record), "") == record


@pytest.mark.parametrize(("boot", "state"), [(boot_id(), READY), ("another", STALE_BOOT), ("", READY)])
def test_a_record_of_another_boot_is_stale(boot: str, state: str) -> None:
    assert decode(encode(replace(FULL, boot=boot)), "").state == state


def test_without_a_boot_id_nothing_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "boot_id", lambda: "")
    assert decode(encode(replace(FULL, boot="another")), "").state == READY


def test_the_boot_id_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def unreadable(*_args: object, **_more: object) -> str:
        raise PermissionError

    monkeypatch.setattr(system, "open", unreadable)
    with pytest.raises(RecordError, match="boot ID cannot be read"):
        boot_id.__wrapped__()


def _changed(**more: Any) -> bytes:
    return json.dumps({**json.loads(GO_FULL), **more}).encode()


def _own(**more: Any) -> bytes:
    document = json.loads(encode(replace(FULL, plugins=())))
    return json.dumps({**document, "libcni": {**document["libcni"], **more}}).encode()


BAD: list[tuple[bytes, str]] = [
    (b"", "it is empty"),
    (b"\0" * 100, "it is empty"),
    (b" \n", "it is empty"),
    (GO_FULL[:50], "not a record"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[]", "not an object"),
    (b"[" * 100_000, "not a"),
    (b"{}", "its kind is None"),
    (_changed(kind="cniCacheV2"), "cniCacheV2"),
    (_changed(containerId=5), "string"),
    (_changed(containerId=""), "container ID"),
    (_changed(containerId="../x"), "container ID"),
    (_changed(networkName="a/b"), "network name"),
    (_changed(ifName="a" * 16), "interface name"),
    (json.dumps({k: v for k, v in json.loads(GO_FULL).items() if k != "networkName"}).encode(), "networkName"),
    (_changed(config=5), "string"),
    (_changed(config="a"), "base64"),
    (_changed(cniArgs=5), "not a record"),
    (_changed(cniArgs=[["K"]]), "not a record"),
    (_changed(cniArgs=[["K", 5]]), "string"),
    (_changed(capabilityArgs=[1]), "capabilityArgs is not an object"),
    (_changed(netns=5), "string"),
    (_changed(netns="/a\0b"), "NUL"),
    (_changed(libcni=5), "libcni is not an object"),
    (_changed(libcni=None), "libcni is not an object"),
    (_changed(libcni=[]), "libcni is not an object"),
    (_changed(libcni={"state": "ready"}), "not a record"),
    (_own(state="done"), "its state is 'done'"),
    (_own(state="corrupt"), "its state is 'corrupt'"),
    (_own(netnsId=[1]), "not a record"),
    (_own(netnsId="ab"), "a number was expected"),
    (_own(created="now"), "a number was expected"),
    (_own(created=True), "a number was expected"),
    (_own(pidNamespace="here"), "a number was expected"),
    (_own(plugins={}), "plugins is not an array"),
    (_own(plugins="ab"), "plugins is not an array"),
    (_own(networkArgs=[1]), "networkArgs is not an object"),
    (_own(netnsId=[1, 1.5]).replace(b"1.5", b"1e400"), "is too large"),
    (_own(created=1.5).replace(b"1.5", b"1e400"), "a number is too large"),
]


@pytest.mark.parametrize(("state", "ifindex"), [("pending", NOT_OURS), ("ready", None)])
def test_the_interface_that_existed_before_an_add_of_0_2_0_is_not_the_adds(state: str, ifindex: int | None) -> None:
    """After a kill nobody knows whether a plugin has changed it; DEL must not remove it."""
    assert decode(_own(shared=True, ifindex=2, state=state), "/a").ifindex == ifindex


def test_a_record_with_other_fields() -> None:
    record = Record(network="a", created=1.5)
    assert record.with_fields(state=PENDING, path="/a") == replace(record, state=PENDING, path="/a")
    with pytest.raises(TypeError, match="sate"):
        record.with_fields(sate=PENDING)


@pytest.mark.parametrize(("data", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_cannot_be_read_is_corrupt_and_says_why(data: bytes, problem: str) -> None:
    record = decode(data, "/p")
    assert (record.state, record.path, record.identity) == (CORRUPT, "/p", ("", "", ""))
    assert problem in record.problem
    assert len(record.problem) < 400


@given(st.binary(max_size=40) | objects.map(str.encode))
def test_no_bytes_are_an_error(data: bytes) -> None:
    assert decode(data, "/p").path == "/p"


def test_a_cut_off_file_is_never_taken_for_a_record() -> None:
    data = encode(FULL)
    assert {decode(data[:end], "").state for end in range(len(data))} == {CORRUPT}


@pytest.mark.parametrize("text", [RESULT, '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"}}'])
def test_bare_results_of_before_0_8_are_read(store: RecordStore, text: str) -> None:
    put(store, "net-c1-eth0", text.encode())
    found = store.find(("net", "c1", "eth0"))
    assert found is not None
    assert (found.state, found.result, found.identity) == (LEGACY, text, ("net", "c1", "eth0"))
    assert store.find(("net", "c1", "eth1")) is None
    assert [record.state for record in store.records()] == [LEGACY]
    assert [record.state for record in store.records("c1")] == [LEGACY]
    assert store.of_interface("c1", "eth0") == []


def test_a_record_without_an_owner_belongs_to_none() -> None:
    data = encode(FULL).replace(b',"owner":"a-runtime"', b"")
    assert b"owner" not in data
    found = decode(data, "")
    assert (found.state, found.owner) == (READY, "")


def test_an_unknown_boot_is_an_error_and_not_remembered(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = store.begin(FULL)
    boot_id.cache_clear()
    real = os.open

    def none_left(path: Any, *args: Any, **more: Any) -> int:
        if "boot_id" in str(path):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(system, "open", none_left)
        with pytest.raises(RecordError, match="boot ID cannot be read: Too many open files"):
            store.find(FULL.identity)
        with pytest.raises(RecordError, match="boot ID cannot be read"):
            store.records()
    assert store.records() == [begun]
