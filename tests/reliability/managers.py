"""Two managers that make namespaces, beside the runtimes and the person of ``neighbours``, at random."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from nodes import Blocking, Namespace
from processes import fork, kill_after

from libcni import CNIError, NetworkConfigList
from libcni.manager import AsyncNetworkManager, Container, Namespaces, NetworkManager, NetworkRequest
from reliability.neighbours import INTERFACES, May, Picture, SharedNode, Step, identity


class ManagedNode(SharedNode):
    """A SharedNode on which each owner has a manager as well; it gives the containers' names to the namespaces."""

    def __init__(self, root: Path, host: Namespace, seed: int) -> None:
        super().__init__(root, host, seed)
        self.containers = {owner: [f"rand-{self.mark}-{owner}{number}" for number in range(3)] for owner in "ab"}
        self.paths += [netns_of(name) for names in self.containers.values() for name in names]
        self.made_by: dict[int, str] = {}
        """The owner of the manager that made a namespace, by the namespace's cookie."""
        self.kills = False

    def weights(self) -> dict[Step, int]:
        own: dict[Step, int] = {
            self._set_up: 24,
            self._tear_down: 14,
            self._manager_gc: 8,
            self._killed_manager: 14,
        }
        return {**super().weights(), self._add: 10, self._del: 6, **own}

    def _someone(self) -> tuple[str, str, NetworkConfigList, str, str]:
        owner, _, net, ifname, path = super()._someone()
        return owner, self.chance.choice(self.containers[owner]), net, ifname, path

    def _manage(self, owner: str, verb: str, *args: Any, **options: Any) -> None:
        settings: dict[str, Any] = {"conf_dirs": [], "networks": self.networks, "namespaces": Namespaces()}
        manager: Any = NetworkManager(self.client(owner=owner), **settings)
        if self.kills:
            self._await_orphan()

            def work() -> None:
                logging.disable()
                with suppress(CNIError):
                    getattr(manager, verb)(*args, **options)

            kill_after(fork(work), self.chance.uniform(0.001, 0.25))
            return
        if self.chance.random() < 0.5:
            manager = Blocking(AsyncNetworkManager(self.async_client(owner=owner), **settings))
        with suppress(CNIError):
            getattr(manager, verb)(*args, **options)
            self.counts[verb] = self.counts.get(verb, 0) + 1

    def _killed_manager(self, before: Picture) -> May | None:
        self.kills = True
        try:
            return self.chance.choice([self._set_up, self._set_up, self._tear_down, self._manager_gc])(before)
        finally:
            self.kills = False

    def _set_up(self, before: Picture) -> May | None:
        owner, name, _, _, path = self._someone()
        ifnames = self.chance.sample(INTERFACES, len(INTERFACES))
        wanted = list(zip(self.networks, ifnames, strict=True))[: self.chance.choice([1, 1, 2])]
        pairs = {(name, ifname) for _, ifname in wanted}
        if not all(self._is_known(*pair, before) for pair in pairs):
            return None
        netns = path if self.chance.random() < 0.25 else None
        how = self.chance.choices(["refuse", "replace"], [2, 1])[0]
        self._tell("set_up", owner, sorted(pairs), netns, how)
        self._await_orphan()
        may = May(pairs, target=identity(netns or ""))
        if netns is None:
            may.namespaces = self._removable(owner, [name], before)
        requests = [NetworkRequest(net, ifname) for net, ifname in wanted]
        self._manage(owner, "set_up", Container(name, netns, requests), on_existing=how)
        if netns is None:
            may.target = identity(netns_of(name))
            if may.target and may.target not in before.namespaces.values():
                self.made_by[may.target] = owner
        return may

    def _tear_down(self, before: Picture) -> May | None:
        owner, name, _, _, _ = self._someone()
        pairs = {(name, ifname) for ifname in INTERFACES}
        if not all(self._is_known(*pair, before) for pair in pairs):
            return None
        self._tell("tear_down", owner, name)
        self._manage(owner, "tear_down", name)
        return May(pairs, namespaces=self._removable(owner, [name], before))

    def _manager_gc(self, before: Picture) -> May | None:
        owner = self.chance.choice("ab")
        live = [name for name in self.containers[owner] if self.chance.random() < 0.6]
        gone = [one for one in self.attachments() if one.owner == owner and one.container_id not in live]
        pairs = {(one.container_id, one.ifname) for one in gone}
        if not all(self._is_known(*pair, before) for pair in pairs):
            return None
        self._tell("gc", owner, live)
        self._manage(owner, "gc", live)
        dead = [name for names in self.containers.values() for name in names if name not in live]
        return May(pairs, {Path(one.path).name for one in gone}, namespaces=self._removable(owner, dead, before))

    def _removable(self, owner: str, names: list[str], before: Picture) -> set[str]:
        """Return the paths of the containers' namespaces that a manager of this owner made."""
        return {path for path in map(netns_of, names) if self.made_by.get(before.namespaces.get(path, 0)) == owner}


def netns_of(container: str) -> str:
    """Return the path of the namespace that a manager makes for a container."""
    return f"/run/netns/{container}"
