"""Go libcni as a third runtime with the same records, beside the runtimes and the person of ``neighbours``."""

from __future__ import annotations

import base64
from pathlib import Path

from conformance.golang import call
from nodes import PLUGIN_PATH, PLUGINS, Namespace

from libcni import NetworkConfigList
from reliability.neighbours import INTERFACES, Key, May, Picture, SharedNode, Step, identity


class GoNode(SharedNode):
    """A SharedNode with a runtime of Go's, whose containers are g0 to g3. Its records have no owner and no numbers."""

    def __init__(self, root: Path, host: Namespace, seed: int, program: Path) -> None:
        super().__init__(root, host, seed)
        self.program = program

    def weights(self) -> dict[Step, int]:
        return {**super().weights(), self._go_add: 20, self._go_del: 10}

    def _go(self, verb: str, net: NetworkConfigList, container: str, path: str, ifname: str) -> None:
        rt = {"container_id": container, "netns": path, "ifname": ifname}
        step = {"kind": verb, "document": base64.b64encode(net.raw).decode(), "rt": rt, "timeout": 30}
        job = {"path": [PLUGINS], "cacheDir": str(self.cache), "environ": {"PATH": PLUGIN_PATH}, "steps": [step]}
        [[outcome]] = call(self.program, [job])
        key = f"go {verb}{' failed' if outcome.get('error') else ''}"
        self.counts[key] = self.counts.get(key, 0) + 1

    def _go_add(self, before: Picture) -> May | None:
        container, ifname = f"g{self.chance.randrange(4)}", self.chance.choice(INTERFACES)
        path, net = self.chance.choice(self.paths), self.chance.choice(self.networks)
        here = [key for key, what in before.interfaces.items() if key[0] == identity(path) and what.startswith(ifname)]
        is_attached = any((one.container_id, one.ifname) == (container, ifname) for one in self.attachments())
        if here or is_attached or not identity(path):
            return None  # Go would not refuse it, and its caller's DEL would remove what is there
        self._await_orphan()
        self._tell(container, ifname, net.name, path)
        self._go("add", net, container, path, ifname)
        return May({(container, ifname)}, target=identity(path))

    def _go_del(self, before: Picture) -> May | None:
        listed = [one for one in self.attachments() if one.container_id.startswith("g")]
        if not listed:
            return None
        one = self.chance.choice(listed)
        pair = (one.container_id, one.ifname)
        here = [key for key in before.interfaces if key[0] == identity(one.netns)]
        others = [key for key in here if before.interfaces[key].startswith(one.ifname) and self.makers[key] != pair]
        if others:
            return None  # Go would remove it
        self._tell(*pair, one.netns)
        net = next(net for net in self.networks if net.name == one.network)
        self._go("del", net, one.container_id, one.netns, one.ifname)
        return May({pair})

    def _unrecorded(self, key: Key, ifname: str) -> bool:
        of_go = {(identity(one.netns), one.ifname) for one in self.attachments() if not one.record.version}
        return super()._unrecorded(key, ifname) and (key[0], ifname) not in of_go
