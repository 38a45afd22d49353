"""Records as Go libcni writes them are read here, and those written here are read by Go."""

from __future__ import annotations

import base64
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from moments import CHANGES, moments

import libcni
from conformance.exact import plain
from conformance.golang import call
from conformance.vectors import TESTDATA
from libcni.testing import RecordingExecutor

RECORDS = TESTDATA / "records"
CASES: list[dict[str, Any]] = json.loads((RECORDS / "cases.json").read_text(encoding="utf-8"))
NAMES = [case["file"] for case in CASES]


def runtime_conf(case: dict[str, Any]) -> libcni.RuntimeConf:
    rt = case["rt"]
    args = [(key, value) for key, value in rt["args"]] if rt["args"] else None
    return libcni.RuntimeConf(rt["container_id"], rt["netns"], rt["ifname"], args, rt["capability_args"])


def network(case: dict[str, Any]) -> libcni.NetworkConfigList:
    return libcni.NetworkConfigList.from_dict(case["document"])


def client(cache: Path, executor: RecordingExecutor | None = None) -> libcni.CNIConfig:
    return libcni.CNIConfig(["/plugins"], cache, executor=executor or RecordingExecutor(), durable=False)


@pytest.fixture(params=CASES, ids=NAMES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
def cache(case: dict[str, Any], tmp_path: Path) -> Path:
    """Return a cache directory that holds the case's file, as Go wrote it."""
    (tmp_path / "results").mkdir()
    shutil.copy(RECORDS / case["file"], tmp_path / "results")
    return tmp_path


def test_result_and_configuration_are_read(case: dict[str, Any], cache: Path) -> None:
    cni, net = client(cache), network(case)
    bare = libcni.RuntimeConf(case["rt"]["container_id"], None, case["rt"]["ifname"])
    result = cni.get_network_list_cached_result(net, bare)
    assert result is not None
    assert result.to_dict() == case["recorded"]
    found = cni.get_network_list_cached_config(net, bare)
    assert found is not None
    assert json.loads(found[0]) == case["document"]
    assert (found[1].args or (), dict(found[1].capability_args or {})) == (
        runtime_conf(case).args or (),
        case["rt"]["capability_args"] or {},
    )


def test_the_attachment_is_listed(case: dict[str, Any], cache: Path) -> None:
    (attachment,) = client(cache).get_cached_attachments(case["rt"]["container_id"])
    assert (attachment.network, attachment.container_id, attachment.ifname, attachment.state) == (
        case["document"]["name"],
        case["rt"]["container_id"],
        case["rt"]["ifname"],
        # Go libcni 1.1 records the namespace in the result alone.
        "gone" if case["recorded"].get("interfaces") else "unknown",
    )


def test_the_attachment_is_detached_from_the_record_alone(case: dict[str, Any], cache: Path) -> None:
    executor = RecordingExecutor()
    cni = client(cache, executor)
    (attachment,) = cni.get_cached_attachments()
    if attachment.netns:
        cni.del_attachment(attachment)
    else:
        cni.del_network_list(attachment.network, libcni.RuntimeConf(attachment.container_id, "", attachment.ifname))
    assert [plugin for _, plugin in executor.verbs] == [plugin["type"] for plugin in case["document"]["plugins"]][::-1]
    sent = executor.calls[0].config.get("prevResult")
    assert sent == (None if case["document"]["cniVersion"] == "0.3.1" else case["recorded"])
    assert list((cache / "results").iterdir()) == []


def go_step(case: dict[str, Any], kind: str) -> dict[str, Any]:
    document = base64.b64encode(json.dumps(case["document"]).encode()).decode()
    return {"kind": kind, "document": document, "rt": case["rt"], "timeout": 30}


@pytest.mark.slow
def test_go_still_writes_these_files(case: dict[str, Any], go_program: Path, tmp_path: Path) -> None:
    write_with_go(go_program, case, tmp_path)
    written = (tmp_path / "cache" / "results" / case["file"]).read_bytes()
    assert written == (RECORDS / case["file"]).read_bytes()


def write_with_go(program: Path, case: dict[str, Any], directory: Path) -> None:
    """Let Go libcni attach, with plugins that print the case's result."""
    (directory / "bin").mkdir()
    for plugin in case["document"]["plugins"]:
        path = directory / "bin" / plugin["type"]
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(case['result'])}\nEND\n", encoding="utf-8")
        path.chmod(0o755)
    job = {"path": [str(directory / "bin")], "cacheDir": str(directory / "cache"), "steps": [go_step(case, "add")]}
    ((outcome,),) = call(program, [job])
    assert "error" not in outcome


@pytest.mark.slow
def test_go_reads_the_record_at_every_moment(case: dict[str, Any], each_go_program: Path, tmp_path: Path) -> None:
    """After each change of the disk in an attachment's life, and in the middle of each write to its record."""
    snapshots: list[Path] = []
    written = tmp_path / "cache" / "results" / case["file"]

    def copy(number: int) -> None:
        if written.exists():
            snapshots.append(tmp_path / str(number))
            (snapshots[-1] / "results").mkdir(parents=True)
            shutil.copy(written, snapshots[-1] / "results")

    printed = libcni.Outcome(stdout=json.dumps(case["result"]).encode())
    cni, net, rt = (
        client(tmp_path / "cache", RecordingExecutor({("*", "ADD"): printed})),
        network(case),
        runtime_conf(case),
    )
    with moments(copy, CHANGES):
        cni.add_network_list(net, rt)
        cni.take_over_attachment(cni.get_cached_attachments()[0])
        cni.del_network_list(net, rt)
    dice = random.Random(case["file"])
    files = [(one / "results" / case["file"]).read_bytes() for one in snapshots]
    writes = [pair for pair in itertools.pairwise(files) if pair[1].startswith(pair[0][:-1])]
    for number in range(40):  # any other byte at which a write is stopped, or a reader comes
        old, new = dice.choice(writes)
        cut = dice.randrange(len(new))
        snapshots.append(tmp_path / f"cut{number}")
        (snapshots[-1] / "results").mkdir(parents=True)
        (snapshots[-1] / "results" / case["file"]).write_bytes(new[:cut] + old[cut:])
    bare = {**case, "rt": {**case["rt"], "args": None, "capability_args": None}}
    steps = [go_step(bare, "cached_config"), go_step(bare, "cached_result")]
    outcomes = call(each_go_program, [{"path": [], "cacheDir": str(one), "steps": steps} for one in snapshots])
    assert len(snapshots) > 5
    whole = 0
    for snapshot, (config, result) in zip(snapshots, outcomes, strict=True):
        data = (snapshot / "results" / case["file"]).read_bytes()
        try:
            record = json.loads(data)
        except ValueError:  # a member that is half written
            assert "error" in config or not config["value"], data
            continue
        whole += 1
        value = plain(config["value"])
        assert value["config"] == case["document"], data
        recorded = {key: value[key] or None for key in ("args", "capability_args")}
        assert recorded == {key: case["rt"][key] for key in recorded}, data
        if "result" in record:
            told = plain(result["value"]["result"])
            assert {"dns": {}, **told} == {"dns": {}, **case["recorded"]}, data  # 1.1.2 adds an empty dns
    assert whole > 5
