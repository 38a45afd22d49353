"""Records as other runtimes write them, in ``testdata/records``: every reader of this library is tried with all."""

from __future__ import annotations

import base64
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from nodes import FakeNode

from conformance.vectors import TESTDATA
from libcni import (
    Attachment,
    AttachmentExistsError,
    CNIErrorGroup,
    NetworkConfigList,
    RecordError,
    RuntimeConf,
    VersionError,
)
from libcni.cli import main
from libcni.diagnosis import diagnose
from libcni.manager import NetworkManager
from libcni.testing import RecordingExecutor

RUNTIMES = sorted(path.name for path in (TESTDATA / "records").iterdir() if path.is_dir())
PORTS = {
    "containerd-1.6": [18080, 18443, 18444], "containerd-2.1": [18080, 18443, 18444],
    "crio-1.20": [], "crio-1.30": [18080], "nerdctl-2.1": [18080, 15353], "podman-4.3": [18080, 19000, 19001],
}  # fmt: skip
"""The ports of the host that the records of a runtime publish."""


class OthersNode(FakeNode):
    """A node with the records of another runtime, their networks and fake plugins. All containers live."""

    def __init__(self, root: Path, runtime: str) -> None:
        super().__init__(root)
        self.runtime = runtime
        self.results.mkdir(parents=True)
        self.documents: dict[str, dict[str, Any]] = {}
        for path in sorted((TESTDATA / "records" / runtime).iterdir()):
            text = path.read_text(encoding="utf-8")
            record = json.loads(text)
            interfaces = record["result"].get("interfaces", [])
            place = record.get("netns") or next((one["sandbox"] for one in interfaces if "sandbox" in one), "")
            text = text.replace(json.dumps(place), json.dumps(self.netns(record["containerId"]))) if place else text
            (self.results / path.name).write_text(text, encoding="utf-8")
            self.documents[path.name] = json.loads(text)
        for record in self.documents.values():
            document = json.loads(base64.b64decode(record["config"]))
            self._provide(document)
            if document["name"] != "cni-loopback":  # its runtime has it compiled in
                self.write(f"{document['name']}.conflist", document)
        if (self.bin / "bridge").exists():
            self.plugin("host-local")

    def without_namespace(self) -> list[Path]:
        """Return the records that name no namespace: CRI-O's loopback. Its version has no interfaces in results."""
        return [self.results / name for name, one in self.documents.items() if "ip4" in one["result"]]

    def refused(self) -> AbstractContextManager[Any]:
        """Expect that these are refused: nobody said whether their containers exist."""
        return pytest.raises(CNIErrorGroup, match="1 failed") if self.without_namespace() else nullcontext()

    def attachments(self) -> list[tuple[dict[str, Any], Attachment]]:
        """Return each record with its attachment."""
        found = {Path(one.path).name: one for one in self.cni.get_cached_attachments()}
        return [(record, found[name]) for name, record in self.documents.items()]


@pytest.fixture(params=RUNTIMES)
def node(request: pytest.FixtureRequest, tmp_path: Path) -> OthersNode:
    return OthersNode(tmp_path, request.param)


@pytest.fixture
def typed(node: OthersNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that types a command, and returns its exit status and what it printed."""
    monkeypatch.setenv("NETCONFPATH", str(node.conf_dir))
    monkeypatch.setenv("CNI_PATH", str(node.bin))
    monkeypatch.setenv("LIBCNI_CACHE_DIR", str(node.cache))

    def type_(*words: str) -> tuple[int, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return type_


def test_there_are_records_of_each_runtime() -> None:
    assert sorted(PORTS) == RUNTIMES


def test_each_is_listed_as_it_was_recorded(node: OthersNode) -> None:
    for record, found in node.attachments():
        names = found.network, found.container_id, found.ifname
        assert names == (record["networkName"], record["containerId"], record["ifName"])
        assert found.state == ("ready" if found.netns else "unknown")
        assert [list(pair) for pair in found.args] == record["cniArgs"]
        assert dict(found.capability_args) == record.get("capabilityArgs", {})
        assert found.config == base64.b64decode(record["config"])


def test_the_commands_list_and_show_it(node: OthersNode, typed: Any) -> None:
    code, table = typed("attachments")
    assert code == 0
    code, told = typed("attachments", "-o", "json")
    assert {one["container_id"] for one in json.loads(told)} == {one["containerId"] for one in node.documents.values()}
    for record in node.documents.values():
        args = dict(record["cniArgs"])
        pod = f"{args['K8S_POD_NAMESPACE']}/{args['K8S_POD_NAME']}" if "K8S_POD_NAMESPACE" in args else ""
        assert pod in table
        place = f"{record['containerId']}:{record['ifName']}"
        for options in ((), ("-o", "json"), ("--config",)):
            code, told = typed("show", place, "-n", record["networkName"], *options)
            assert code == 0, told
            assert told


def test_check_and_del_give_the_plugins_what_was_recorded(node: OthersNode) -> None:
    for record, found in node.attachments():
        document = json.loads(base64.b64decode(record["config"]))
        executor = RecordingExecutor()
        cni = node.client(executor=executor)
        try:
            cni.check_attachment(found)
            assert document["cniVersion"] not in {"0.2.0", "0.3.1"}
        except VersionError:
            assert document["cniVersion"] in {"0.2.0", "0.3.1"}
        if found.netns:
            cni.del_attachment(found)
        else:
            with pytest.raises(RecordError, match=r'give the namespace.s path, or ""'):
                cni.del_attachment(found)
            cni.del_network_list(found.network, RuntimeConf(found.container_id, "", found.ifname))
        deleted = [call for call in executor.calls if call.invocation.verb == "DEL"]
        assert [call.invocation.plugin for call in deleted] == [one["type"] for one in reversed(document["plugins"])]
        for call in executor.calls:
            wanted = next(one for one in document["plugins"] if one["type"] == call.invocation.plugin).get(
                "capabilities", {}
            )
            given = {key: value for key, value in record.get("capabilityArgs", {}).items() if wanted.get(key)}
            assert call.config.get("runtimeConfig", {}) == given  # the keys in their own case
            assert call.invocation.env["CNI_ARGS"] == ";".join("=".join(pair) for pair in record["cniArgs"])
            assert call.invocation.env["CNI_NETNS"] == found.netns
    assert list(node.results.iterdir()) == []


def test_a_published_port_cannot_be_published_again(node: OthersNode) -> None:
    net = NetworkConfigList.from_dict(
        {
            "cniVersion": "1.0.0",
            "name": "mine",
            "plugins": [{"type": "portmap", "capabilities": {"portMappings": True}}],
        }
    )
    cni = node.client(executor=RecordingExecutor())
    refused = []
    for port in (18080, 18443, 18444, 15353, 19000, 19001, 20000):
        mappings = [{"hostPort": port, "containerPort": 80, "protocol": one} for one in ("tcp", "udp")]
        rt = RuntimeConf(f"c{port}", node.netns("c"), "eth0", None, {"portMappings": mappings})
        try:
            cni.add_network_list(net, rt)
        except AttachmentExistsError as error:
            refused.append((port, str(error)))
    assert sorted(port for port, _ in refused) == sorted(PORTS[node.runtime])
    assert all(f"{port}/" in text for port, text in refused)


def test_the_doctor_and_the_plan_of_repair_read_it(node: OthersNode, typed: Any) -> None:
    report = diagnose(node.cni)
    for finding in report.findings:
        text = f"{finding.subject} {finding.seen} {finding.meaning} {finding.remedy}"
        assert "None" not in text
        assert not (finding.check == "drift" and finding.name == "no-file"), text
        assert "127.0.0." not in text
        # The files of the plugins' daemons are not here.
        assert finding.check not in {"records", "configuration"} or finding.name == "file-missing", text
    for command in ("doctor", "repair"):
        code, told = typed(command, *(["--include-go"] if command == "repair" else []))
        assert code in {0, 1, 2}, told
        assert "Traceback" not in told


def test_the_manager_reads_and_detaches_it(node: OthersNode) -> None:
    manager = NetworkManager(node.client(executor=RecordingExecutor()))
    for container in {record["containerId"] for record in node.documents.values()}:
        wanted = {one["networkName"] for one in node.documents.values() if one["containerId"] == container}
        result = manager.container(container)
        assert result is not None
        assert {one.network for one in result.attachments} == wanted
        with node.refused():
            manager.tear_down(container)
    assert list(node.results.iterdir()) == node.without_namespace()


def test_a_sweep_leaves_it_alone_unless_it_is_included(node: OthersNode) -> None:
    manager = NetworkManager(node.client(executor=RecordingExecutor()))
    before = sorted(path.name for path in node.results.iterdir())
    manager.gc(["other"])
    assert sorted(path.name for path in node.results.iterdir()) == before
    with node.refused():
        manager.gc(["other"], include_go=True)
    assert list(node.results.iterdir()) == node.without_namespace()
