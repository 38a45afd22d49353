"""Differences from the newest Go libcni that no vector shows: the section ``newest`` of go-differences.yaml."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import libcni
from libcni.manager import AttachmentResult, Container, ContainerResult
from libcni.plugin import Plugin, PluginResult, Request, VerbError
from libcni.testing import call_plugin

ADDRESS = {"ips": [{"address": "10.1.0.2/16"}]}


@pytest.mark.parametrize("plugin", [{"args": "x"}, {"capabilities": False}])
def test_args_and_capabilities_must_be_objects(plugin: dict[str, object]) -> None:
    document = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "p", **plugin}]}
    with pytest.raises(libcni.ConfigError, match=rf"plugins\[0\]\.{next(iter(plugin))}"):
        libcni.NetworkConfigList.from_dict(document)


def test_an_empty_version_is_no_version_of_a_result() -> None:
    result = libcni.Result.from_bytes(json.dumps({"cniVersion": "1.0.0", **ADDRESS}))
    with pytest.raises(libcni.VersionError):
        result.as_version("")


@pytest.mark.parametrize(("own", "version"), [({}, "0.4.0"), ({"cniVersion": "1.0.0"}, "1.0.0")])
def test_a_document_without_a_version_has_the_given_one(own: dict[str, str], version: str) -> None:
    assert libcni.Result.from_bytes(json.dumps({**own, **ADDRESS}), "0.4.0").cni_version == version


@pytest.mark.parametrize("own", [{}, {"cniVersion": ""}])
def test_a_previous_result_without_a_version_has_the_configurations(own: dict[str, str]) -> None:
    plugin = Plugin("p")
    seen: list[PluginResult | None] = []

    @plugin.add
    def add(request: Request) -> None:
        seen.append(request.prev_result)

    @plugin.delete
    def delete(request: Request) -> None:
        raise VerbError("not called")

    call_plugin(plugin, "ADD", {"cniVersion": "1.0.0", "name": "n", "prevResult": {**own, **ADDRESS}})
    assert [previous.ips for previous in seen if previous is not None] == [ADDRESS["ips"]]


def test_records_of_a_single_plugin_are_read_by_its_list(tmp_path: Path, fake_path: str, fake_state: Path) -> None:
    conf = libcni.PluginConfig.from_dict(
        {"cniVersion": "1.0.0", "name": "n", "type": "fake-bridge", "ipam": {"subnet": "10.1.0.0/16"}}
    )
    cni = libcni.CNIConfig([fake_path], tmp_path / "cache")
    rt = libcni.RuntimeConf("c1", "/run/netns/none", "eth0")
    added = cni.add_network(conf, rt)
    net = libcni.NetworkConfigList.from_plugin(conf)
    assert cni.get_network_list_cached_result(net, rt) == added
    assert cni.get_network_list_cached_config("n", rt) is not None
    cni.del_network(conf, rt)
    left = [path.relative_to(fake_state) for path in fake_state.rglob("*") if path.is_file()]
    assert not [path for path in left if not path.parts[0].startswith(".")]  # hidden: the log of calls


def test_a_bare_result_is_no_record(tmp_path: Path, fake_path: str) -> None:
    net = libcni.NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "fake-tuning"}]})
    cni = libcni.CNIConfig([fake_path], tmp_path)
    path = tmp_path / "results/n-c1-eth0"
    path.parent.mkdir()
    path.write_text(json.dumps({"cniVersion": "1.0.0", **ADDRESS}))
    with pytest.raises(libcni.RecordError, match="its kind is None"):
        cni.check_network_list(net, libcni.RuntimeConf("c1", "/run/netns/none", "eth0"))
    report = cni.del_network_list(net, libcni.RuntimeConf("c1", "", "eth0"))
    assert (report.record, [plugin.state for plugin in report.plugins]) == ("unreadable", ["done"])
    assert [path.name.partition(".")[0] for path in (tmp_path / "corrupt").iterdir()] == ["n-c1-eth0"]


def test_check_runs_nothing_without_the_namespace(tmp_path: Path, fake_path: str, fake_state: Path) -> None:
    net = libcni.NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "missing"}]})
    cni = libcni.CNIConfig([fake_path], tmp_path)
    record = {
        "kind": "cniCacheV1", "containerId": "c1", "ifName": "eth0", "networkName": "n", "netns": "/run/netns/none",
        "config": base64.b64encode(net.raw).decode(), "result": {"cniVersion": "1.0.0"},
    }  # fmt: skip
    path = tmp_path / "results/n-c1-eth0"
    path.parent.mkdir()
    path.write_text(json.dumps(record))
    with pytest.raises(libcni.NotAttachedError, match="the namespace no longer exists"):
        cni.check_network_list(net, libcni.RuntimeConf("c1", None, "eth0"))


@pytest.mark.parametrize("name", ["all", "default", "eth%d"])
def test_names_with_a_meaning_for_the_kernel_are_refused(name: str) -> None:
    with pytest.raises(libcni.InvalidIdentifierError):
        libcni.validate_interface_name(name)


def test_addresses_without_an_index_belong_to_their_networks_interface() -> None:
    results = [
        libcni.Result.from_bytes(json.dumps({"cniVersion": "0.2.0", "ip4": {"ip": f"10.0.0.{n}/24"}})) for n in (1, 2)
    ]
    each = [AttachmentResult(f"n{index}", f"eth{index}", result) for index, result in enumerate(results)]
    interfaces = ContainerResult("c1", "/ns", tuple(each)).interfaces
    assert {name: interface.addresses[0].address for name, interface in interfaces.items()} == {
        "eth0": "10.0.0.1/24", "eth1": "10.0.0.2/24",
    }  # fmt: skip


def test_an_address_in_cni_args_is_passed_on_as_it_is() -> None:
    assert Container("c1", args={"IP": "172.16"}).args == (("IP", "172.16"),)
    with pytest.raises(libcni.ConfigError):
        libcni.CapabilityArgs(ips=["172.16"])
