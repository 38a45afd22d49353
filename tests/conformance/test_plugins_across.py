"""Plugins written with libcni.plugin, called by Go libcni."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from plugin.plugins import write_example, write_plugin
from plugin.real_plugins import DIRECTORY, IFNAME

from conformance.exact import plain
from conformance.golang import call

pytestmark = pytest.mark.slow

BRIDGE = f"cnit{secrets.token_hex(4)}"
PASSING = "plugin.delete(lambda r: None)\n"
WIRE = """
@plugin.add
def add(request):
    assert request.args["K8S_POD_NAME"] == "web"
    request.result = request.delegate_add("counter")
    index = request.result.add_interface(request.ifname, sandbox=request.netns, mtu=9000)
    request.result.ips[0]["interface"] = index
plugin.check(lambda request: request.forward("counter"))
plugin.delete(lambda request: request.forward("counter"))
"""
FULL = """
@plugin.add
def add(request):
    print("a print does no harm")
    raise VerbError("full", code=ErrorCode.TRY_AGAIN_LATER, details="all of it")
"""


class Runtime:
    """Go libcni, for one network and one container."""

    def __init__(
        self, program: Path, directory: Path, *plugins: dict[str, Any], netns: str = "/run/netns/none"
    ) -> None:
        self.program = program
        self.directory = directory
        self.path = directory / "plugins"
        self.path.mkdir()
        document = {"cniVersion": "1.0.0", "name": "gonet", "plugins": plugins}
        self.document = base64.b64encode(json.dumps(document).encode()).decode()
        args = [["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"]]
        self.rt = {"container_id": "c1", "netns": netns, "ifname": IFNAME, "args": args}

    def run(self, *kinds: str, **capabilities: Any) -> list[dict[str, Any]]:
        """Do the steps and return what Go libcni made of each: ``value`` or ``error``."""
        rt = {**self.rt, "capability_args": capabilities}
        steps = [{"kind": kind, "document": self.document, "plugin": "wire", "rt": rt} for kind in kinds]
        path = [str(self.path), str(DIRECTORY)]
        ((*outcomes,),) = call(
            self.program, [{"path": path, "cacheDir": str(self.directory / "cache"), "steps": steps}]
        )
        return [plain({key: one[key] for key in ("value", "error") if one.get(key)}) for one in outcomes]


def test_a_whole_life_in_a_chain_of_python_plugins(go_program: Path, tmp_path: Path) -> None:
    wire = {"type": "wire", "ipam": {"type": "counter", "dataDir": str(tmp_path / "pool")}}
    hosts = {"type": "hosts", "file": str(tmp_path / "hosts"), "capabilities": {"aliases": True}}
    runtime = Runtime(go_program, tmp_path, wire, hosts)
    write_example(runtime.path, "counter")
    write_example(runtime.path, "hosts")
    write_plugin(runtime.path, "wire", WIRE)
    version, added, *others = runtime.run("version", "add", "check", "del", "del", aliases=["db"])
    assert version["value"]["versions"][-1] == "1.1.0"
    assert added["value"]["result"] == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": IFNAME, "sandbox": "/run/netns/none"}],
        "ips": [{"address": "10.77.0.2/24", "gateway": "10.77.0.1", "interface": 0}],
        "dns": {},
    }
    assert others == [{}] * 3
    assert (tmp_path / "hosts").read_text(encoding="utf-8") == ""
    assert not list((tmp_path / "pool" / "gonet").iterdir())


@pytest.mark.parametrize(
    ("body", "said"), [(FULL, (11, "full", "all of it")), ("plugin.add(lambda r: 1 / 0)\n", (999, "division by zero"))]
)
def test_an_error_reaches_go_with_code_and_text(go_program: Path, tmp_path: Path, body: str, said: Any) -> None:
    runtime = Runtime(go_program, tmp_path, {"type": "broken"}, {"type": "never"})
    write_plugin(runtime.path, "broken", body + PASSING)
    write_plugin(runtime.path, "never", "plugin.add(lambda r: 1 / 0)\n" + PASSING)
    (added,) = runtime.run("add")
    error = added["error"]
    assert tuple(error[key] for key in ("code", "msg", "details") if key in error) == said
    assert 'plugin type="broken" failed (add)' in error["text"]
