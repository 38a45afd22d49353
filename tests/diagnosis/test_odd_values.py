"""Configurations and results with values of any type."""

from __future__ import annotations

import pytest
from nodes import FakeNode

from libcni import RuntimeConf
from libcni.diagnosis import diagnose


@pytest.mark.parametrize("value", ["5", "[]", "{}", "true", '"x"', "[5]", "[[5]]", '[[{"subnet": 5}]]'])
def test_values_of_any_type_do_not_stop_the_doctor(healthy: FakeNode, value: str) -> None:
    ranges = '[[{"subnet": "10.1.0.0/30", "gateway": VALUE}, {"subnet": "fd00::/64"}]]'
    text = f"""{{"cniVersion": "1.0.0", "name": "odd", "plugins": [
        {{"type": "bridge", "bridge": VALUE, "ipMasq": VALUE}},
        {{"type": "macvlan", "master": VALUE, "linkInContainer": VALUE}},
        {{"type": "bridge", "ipam": {{"type": "host-local", "dataDir": VALUE, "ranges": VALUE, "subnet": "10.1.0.0/32"}}}},
        {{"type": "ptp", "ipam": {{"type": "host-local", "subnet": VALUE, "ranges": {ranges}, "rangeStart": VALUE}}}},
        {{"type": "ptp", "ipam": {{"type": "host-local", "subnet": "10.1.0.0/30", "gateway": "fd00::1"}}}},
        {{"type": "multus", "delegates": [
            {{"type": "bridge", "capabilities": VALUE, "ipam": {{"type": "host-local", "routes": VALUE}}}},
            {{"type": "host-device", "capabilities": VALUE, "ipam": {{"type": "static", "addresses": VALUE}}}},
            {{"type": "ptp", "ipam": {{"type": "static", "addresses": [{{"address": VALUE}}], "routes": [VALUE]}}}}
        ]}}
    ]}}"""  # noqa: E501 - one plugin on each line
    healthy.write("odd.conflist", text.replace("VALUE", value))
    for name in ("bridge", "macvlan", "ptp", "host-local", "multus"):
        healthy.plugin(name, result={"cniVersion": "1.0.0"})
    healthy.cni.add_network_list("odd", RuntimeConf("c2", healthy.netns("c2"), "eth0"))
    report = diagnose(healthy.cni)
    assert "the rest of this check" not in [one.subject for one in report.not_checked]
