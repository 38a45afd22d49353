"""A pod's arguments and annotation, and the definitions that it selects: as Multus reads them, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIError, ConfigError
from libcni.errors import NetworkNotFoundError
from libcni.manager import (
    AttachmentDefinitions,
    Pod,
    parse_selection,
)
from manager.fakes import ManagerNode

POD = Pod("shop", "web-0", "u-1", "s1", "/ns")
YAML = """
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: store
  namespace: shop
  annotations: {k8s.v1.cni.cncf.io/resourceName: vendor.example/dev}
spec:
  config: '{"cniVersion": "1.0.0", "type": "store", "capabilities": {"ips": true, "mac": true}}'
---
kind: List
items:
- kind: NetworkAttachmentDefinition
  metadata: {name: ondisk}
- kind: NetworkAttachmentDefinition
  metadata: {name: listed, namespace: shop}
  spec: {config: '{"cniVersion": "1.0.0", "name": "real-name", "plugins": [{"type": "store"}]}'}
"""


def test_a_pods_arguments() -> None:
    assert dict(POD.args()) == {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": "shop",
        "K8S_POD_NAME": "web-0",
        "K8S_POD_INFRA_CONTAINER_ID": "s1",
        "K8S_POD_UID": "u-1",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", "shop", None)]),
        (" a , ns/b@net7 ,c@x", [("a", "shop", None), ("b", "ns", "net7"), ("c", "shop", "x")]),
        (
            '[{"name": "a"}, {"name": "b", "namespace": "ns", "interface": "x"}]',
            [("a", "shop", None), ("b", "ns", "x")],
        ),
        ('{"name": "a"}', [("a", "shop", None)]),
        ("", []),
        ("  ", []),
    ],
)
def test_selections(text: str, expected: list[Any]) -> None:
    found = [(one.name, one.namespace, one.interface) for one in parse_selection(text, "shop")]
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "a@",
        "@x",
        "a,,b",
        "/a",
        "x/y/z",
        "ns/",
        "[1]",
        '[{"name": ""}]',
        '[{"nam": "a"}]',
        "[",
        '[{"name":"a","ips":"x"}]',
    ],
)
def test_bad_selections_say_what_is_wrong(text: str) -> None:
    with pytest.raises(ConfigError, match="network selection"):
        parse_selection(text)


def test_an_unknown_key_and_a_bad_gateway_are_refused() -> None:
    with pytest.raises(ConfigError, match="vlan"):
        parse_selection('[{"name": "a", "vlan": 7}]')
    with pytest.raises(ConfigError, match="default-route"):
        parse_selection('[{"name": "a", "default-route": ["10.0.0.1"]}]')


def test_capabilities_of_a_selection() -> None:
    (one,) = parse_selection(
        '[{"name": "a", "ips": ["10.0.0.9/24"], "mac": "02:00:00:00:00:01", "bandwidth": {"ingressRate": 1000},'
        ' "portMappings": [{"hostPort": 80, "containerPort": 8080}], "infiniband-guid": "02:00:00:00:00:00:00:01",'
        ' "deviceID": "0000:04:00.5"}]'
    )
    assert json.loads(json.dumps(one.capability_args())) == {
        "ips": ["10.0.0.9/24"],
        "mac": "02:00:00:00:00:01",
        "bandwidth": {"ingressRate": 1000},
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "infinibandGUID": "02:00:00:00:00:00:00:01",
        "deviceID": "0000:04:00.5",
    }


def test_definitions_in_yaml_get_the_objects_name_where_they_have_none() -> None:
    definitions = AttachmentDefinitions.from_yaml(YAML)
    store, listed = definitions.get("store", "shop"), definitions.get("listed", "shop")
    assert store.net is not None
    assert (store.net.name, store.net.plugins[0].type) == ("store", "store")
    assert store.annotations == {"k8s.v1.cni.cncf.io/resourceName": "vendor.example/dev"}
    assert listed.net is not None
    assert listed.net.name == "real-name"
    assert definitions.get("ondisk").net is None


def test_a_definition_that_is_not_there() -> None:
    with pytest.raises(NetworkNotFoundError, match="there are: shop/store, default/ondisk, shop/listed"):
        AttachmentDefinitions.from_yaml(YAML).get("store")


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("{config: '{'}", "spec.config"),
        ('{config: \'{"type": 1, "cniVersion": "1.0.0"}\'}', "spec.config: type"),
        ("{config: 7}", "spec.config"),
    ],
)
def test_a_bad_definition_says_where(spec: str, place: str) -> None:
    text = f"kind: NetworkAttachmentDefinition\nmetadata: {{name: n}}\nspec: {spec}"
    with pytest.raises(ConfigError) as caught:
        AttachmentDefinitions.from_yaml(text, file="nad.yaml")
    assert "nad.yaml" in str(caught.value)
    assert place in str(caught.value)


def test_a_pod_gets_the_clusters_network_and_those_that_it_selects(node: ManagerNode) -> None:
    node.configure("cluster", {"type": "cluster", "capabilities": {"portMappings": True}})
    node.configure("ondisk")
    node.plugin("store")
    definitions = AttachmentDefinitions.from_yaml(YAML)
    selection = (
        '[{"name": "store", "ips": ["10.0.0.9/24"], "cni-args": {"k": 1}}, {"name": "ondisk", "namespace": "default"}]'
    )
    container = POD.container(
        default=["cluster"],
        selection=selection,
        definitions=definitions,
        capability_args={"portMappings": [{"hostPort": 80, "containerPort": 80}]},
        args={"TENANT": "blue"},
        ip="10.0.0.8",
        mac="02:00:00:00:00:08",
    )
    node.manager().set_up(container)
    assert node.calls("ADD") == ["ADD cluster s1 eth0", "ADD store s1 net1", "ADD ondisk s1 net2"]
    pod_args = (
        "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u-1;"
        "TENANT=blue"
    )
    assert node.last_call("cluster", "ADD", "eth0").env["CNI_ARGS"] == f"{pod_args};IP=10.0.0.8;MAC=02:00:00:00:00:08"
    assert node.last_call("store", "ADD", "net1").env["CNI_ARGS"] == pod_args
    assert node.last_call("store", "ADD", "net1").config["runtimeConfig"] == {"ips": ["10.0.0.9/24"]}
    assert node.last_call("store", "ADD", "net1").config["args"] == {"cni": {"k": 1}}
    assert "portMappings" in node.last_call("cluster", "ADD", "eth0").config["runtimeConfig"]


@pytest.mark.parametrize("text", ["{", "a: 2001-13-01", f"a: {'1' * 5000}", "[" * 100_000])
def test_text_that_is_no_yaml_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(ConfigError, match=r"nad\.yaml: .*it is neither JSON nor YAML"):
        AttachmentDefinitions.from_yaml(text, file="nad.yaml")


def test_a_missing_file_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        AttachmentDefinitions.from_file(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"ip": "10.0.0.300"}, "ips"),
        ({"mac": "02:00"}, "mac"),
        ({"selection": "none"}, "shop/none"),
        ({"selection": '[{"name": "store", "mac": "nope"}]'}, "mac"),
    ],
)
def test_a_pod_that_asks_for_what_cannot_be_is_refused(bad: dict[str, str], said: str) -> None:
    with pytest.raises(CNIError, match=said):
        POD.container(default=["cluster"], definitions=AttachmentDefinitions.from_yaml(YAML), **bad)  # type: ignore[arg-type]
