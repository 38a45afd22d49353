"""Nodes for tests: one with fake plugins below a directory, and one with the real plugins in a namespace of its own."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import pytest
from helpers import RESULT, document, network

from libcni import AsyncCNIConfig, CNIConfig, NetworkConfigList
from libcni.config.versions import ALL_VERSIONS
from libcni.testing import FakeCall, FakePlugins, NetworkNamespace

PLUGINS = "/usr/lib/cni"
PLUGIN_PATH = f"{Path(__file__).parents[1] / 'testdata/no-ip6-nat'}:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH for the plugins: on it portmap's CHECK is sound. See ip6tables in that directory."""

PASS_ON = """[ $CNI_COMMAND != ADD ] || tr -d '\\n' < "$stdin" | sed 's/.*"prevResult":\\(.*\\)}$/\\1/'; exit 0"""
"""The body of a fake plugin that passes the result on."""

both_clients = pytest.mark.parametrize("node", [CNIConfig, AsyncCNIConfig], indirect=True, ids=["blocking", "asyncio"])


def make_fake_namespace(path: Path) -> None:
    """Make a file that stands for a network namespace: a FIFO, because ADD refuses regular files and directories."""
    os.mkfifo(path)


class Blocking:
    """An object for asyncio whose coroutine methods block: one test serves both clients, or both managers."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **options: asyncio.run(found(*args, **options))


class FakeNode:
    """A node below one directory: configurations, plugins of shell, records, and the clients of a runtime.

    Args:
        root: the directory.
        kind: the client's class; an AsyncCNIConfig is called blocking.
        settings: of all clients.
    """

    result: Any = RESULT
    versions: Sequence[str] = ALL_VERSIONS

    def __init__(self, root: Path, kind: type[CNIConfig | AsyncCNIConfig] = CNIConfig, **settings: Any) -> None:
        self.root = root
        self.kind = kind
        self.conf_dir, self.bin, self.cache = (root / name for name in ("net.d", "bin", "cache"))
        self.results = self.cache / "results"
        self.settings = {"path": [self.bin], "conf_dir": self.conf_dir, "durable": False, **settings}
        self.conf_dir.mkdir(parents=True)
        self.bin.mkdir()
        self.fakes = FakePlugins(self.bin)

    def client(self, **settings: Any) -> CNIConfig:
        """Return a client for this node; ``settings`` replace the node's."""
        made: Any = self.kind(**{"cache_dir": self.cache, **self.settings, **settings})
        return made if self.kind is CNIConfig else cast("CNIConfig", Blocking(made))

    def async_client(self, **settings: Any) -> AsyncCNIConfig:
        return AsyncCNIConfig(**{"cache_dir": self.cache, **self.settings, **settings})

    @cached_property
    def cni(self) -> CNIConfig:
        return self.client()

    def plugin(self, name: str, body: str = "", **options: Any) -> Path:
        """Write a plugin that runs ``body`` and then answers; the options are those of ``FakePlugins.shell``."""
        return self.fakes.shell(name, body, **{"result": self.result, "versions": self.versions, **options}).path

    def write(self, name: str | Path, document: Any) -> Path:
        """Write a file below the configuration directory: text, or a document."""
        path = self.conf_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return path

    def configure(self, name: str, *plugins: str | dict[str, Any], file: str | Path = "", **keys: Any) -> Path:
        """Write a network's file; without ``plugins`` its one plugin has the network's name. Write lacking plugins."""
        made = document(*plugins or (name,), name=name, **keys)
        self._provide(made)
        return self.write(file or f"{name}.conflist", made)

    def network(self, *plugins: str | dict[str, Any], **keys: Any) -> NetworkConfigList:
        """Return a network without writing its file; write lacking plugins."""
        self._provide(document(*plugins))
        return network(*plugins, **keys)

    def _provide(self, made: dict[str, Any]) -> None:
        for plugin in made["plugins"]:
            if not any(Path(directory, plugin["type"]).exists() for directory in self.settings["path"]):
                self.plugin(plugin["type"])

    def netns(self, name: str) -> str:
        """Make a file that stands for a network namespace, and return its path."""
        path = self.root / "ns" / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            make_fake_namespace(path)
        return str(path)

    def verbs(self) -> list[str]:
        """Return ``VERB plugin`` for each call so far, oldest first."""
        return [f"{verb} {plugin}" for verb, plugin in self.fakes.verbs]

    def calls(self, *verbs: str) -> list[str]:
        """Return the calls so far, ``VERB plugin container ifname``; of these verbs, without VERSION by default."""
        wanted = verbs or ("ADD", "DEL", "CHECK", "GC", "STATUS")
        found = [call for call in self.fakes.calls if call.verb in wanted]
        return [
            f"{one.verb} {one.plugin} {one.env['CNI_CONTAINERID']} {one.env['CNI_IFNAME']}".strip() for one in found
        ]

    def last_call(self, plugin: str, verb: str = "", ifname: str = "") -> FakeCall:
        """Return the last call of a plugin, with this verb and for this interface."""
        calls = [one for one in self.fakes.calls if one.plugin == plugin and verb in {"", one.verb}]
        return [one for one in calls if ifname in {"", one.env["CNI_IFNAME"]}][-1]

    def forget_calls(self) -> None:
        for plugin in self.fakes:
            plugin.forget()

    def states(self) -> list[str]:
        """Return the states of all attachments on record."""
        return [one.state for one in self.cni.get_cached_attachments()]

    def record(self, container: str = "c1", network: str = "net", ifname: str = "eth0") -> Path:
        return self.results / f"{network}-{container}-{ifname}"

    def change_record(self, container: str = "c1", network: str = "net", ifname: str = "eth0", **own: Any) -> None:
        """Change what a record has under ``libcni``; a pending record has the result of the plugins before the last."""
        path = self.record(container, network, ifname)
        record = json.loads(path.read_text(encoding="utf-8"))
        if own.pop("state", "") == "pending":
            del record[max(key for key in record if key.startswith("libcni."))]
            if all(record[key]["event"] != "step" for key in record if key.startswith("libcni.")):
                del record["result"]
        record["libcni"] |= own
        path.write_text(json.dumps(record), encoding="utf-8")

    def strip_record(self, *identity: str) -> None:
        """Make a record one of Go libcni's; ``identity``: the parameters of ``record``."""
        record = json.loads(self.record(*identity).read_text(encoding="utf-8"))
        of_go = {key: value for key, value in record.items() if not key.startswith("libcni")}
        self.record(*identity).write_text(json.dumps(of_go), encoding="utf-8")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


class Namespace(NetworkNamespace):
    """A network namespace, and what ``ip`` prints about it."""

    def ip(self, *words: str) -> list[dict[str, Any]]:
        """Return what ``ip -j`` prints in this namespace."""
        done = subprocess.run(["ip", "-n", self.name, "-j", *words], check=True, capture_output=True, text=True)
        answer: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return answer

    def links(self) -> list[str]:
        return [link["ifname"] for link in self.ip("link")]

    def link(self, name: str) -> dict[str, Any]:
        [link] = self.ip("link", "show", "dev", name)
        return link

    def addresses(self, name: str) -> list[str]:
        """Return the global addresses of an interface, as address/prefix."""
        [interface] = self.ip("address", "show", "dev", name)
        return [f"{a['local']}/{a['prefixlen']}" for a in interface["addr_info"] if a["scope"] == "global"]

    def links_and_addresses(self) -> list[tuple[int, str, str, list[str]]]:
        """Return each interface's number, name, MAC and addresses, without the states that change by themselves."""
        return [
            (
                link["ifindex"],
                link["ifname"],
                link["address"],
                [one["local"] for one in link["addr_info"] if one["scope"] == "global"],
            )
            for link in self.ip("address")
        ]

    def routes(self) -> dict[str, str | None]:
        """Return the IPv4 routes: destination -> gateway."""
        return {route["dst"]: route.get("gateway") for route in self.ip("-4", "route")}

    def rules(self, table: str, text: str = "") -> list[str]:
        """Return the iptables rules of a table that contain a text."""
        return [line for line in self.run("iptables", "-t", table, "-S").splitlines() if text in line]


NewNamespace = Callable[[], Namespace]


@pytest.fixture
def new_namespace(cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]]) -> Iterator[NewNamespace]:
    """Return a function that makes a network namespace; all are removed, whatever happens."""
    with ExitStack() as stack:
        yield lambda: Namespace(stack.enter_context(cni_namespaces()).name)


@pytest.fixture
def host(new_namespace: NewNamespace) -> Iterator[Namespace]:
    """Play the machine in a namespace of its own.

    Bridges, veths and firewall rules are made there. They vanish with it, and none of this machine is touched.
    """
    namespace = new_namespace()
    with namespace.entered():
        namespace.run("ip", "link", "set", "lo", "up")
        yield namespace


@pytest.fixture
def container(host: Namespace, new_namespace: NewNamespace) -> Namespace:
    return new_namespace()


@pytest.fixture
def other(host: Namespace, new_namespace: NewNamespace) -> Namespace:
    return new_namespace()


@cache
def plugins_know_gc() -> bool:
    """Return whether the real plugins know spec 1.1.0. Those of Debian 12 (release 1.1.1) do not, those of 1.9.1 do."""
    asked = {"CNI_COMMAND": "VERSION"}
    done = subprocess.run([f"{PLUGINS}/bridge"], env=asked, input=b"{}", capture_output=True, check=True)
    return "1.1.0" in json.loads(done.stdout)["supportedVersions"]


class RealNode(FakeNode):
    """A FakeNode with the real plugins, which come after the fake ones, in the network namespace ``host``."""

    def __init__(self, root: Path, host: Namespace, kind: type[CNIConfig | AsyncCNIConfig] = CNIConfig) -> None:
        super().__init__(root, kind, path=[root / "bin", PLUGINS], env={"PATH": PLUGIN_PATH}, durable=True)
        self.host = host
        self.leases = root / "leases"

    def bridge(self, subnet: str, **more: Any) -> dict[str, Any]:
        """Return a bridge plugin with host-local; ``more``: further keys of both, those of ``ipam`` under its name."""
        ipam = {"type": "host-local", "dataDir": str(self.leases), "subnet": subnet, **more.pop("ipam", {})}
        return {"type": "bridge", "bridge": "br-node", "isGateway": True, "ipam": ipam, **more}

    def leased(self) -> dict[str, str]:
        """Return the addresses that host-local holds, each with the container and the interface that have it."""
        return dict(sorted((path.name, path.read_text()) for path in self.leases.rglob("10.*")))


@pytest.fixture
def real_node(tmp_path: Path, host: Namespace) -> RealNode:
    return RealNode(tmp_path, host)
