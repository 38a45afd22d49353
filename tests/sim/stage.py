"""The words of which scenarios are made: verbs, events, and what must hold in the end."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, cast

from libcni import AsyncCNIConfig, CNIConfig, CNIError, LockTimeoutError, NetworkConfigList, RuntimeConf, repair_records
from libcni.store.record import CORRUPT, READY, Record, decode
from sim.disk import File
from sim.loop import OnAsyncio, SimAsyncExecutor
from sim.plugins import SimExecutor
from sim.schedule import Code, Events, Program, Sim
from sim.seam import forget_the_boot
from sim.world import NEIGHBOUR, Interface, Namespace

CACHE = "/var/lib/cni"
ORPHAN_SECONDS = 1.0
"""A plugin that outlives its runtime takes this time before its next step."""

_CHAINS = {
    "b": ("bridge",),
    "bs": ("bridge", "slow"),
    "bf": ("bridge", "fail"),
    "bw": ("bridge", "firewall"),
    "bws": ("bridge", "firewall", "slow"),
}


@cache
def networks(version: str, edition: int = 0) -> dict[str, NetworkConfigList]:
    """Return the networks; before version 1.1.0 plugins get no GC."""
    return {
        name: NetworkConfigList.from_dict(
            {"cniVersion": version, "name": name, "plugins": [{"type": one, "edition": edition} for one in chain]}
        )
        for name, chain in _CHAINS.items()
    }


def netns_of(container: str) -> str:
    """Return the path of a container's namespace."""
    return f"/run/netns/{container}"


def _has_timeout(error: BaseException) -> bool:
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return isinstance(error, LockTimeoutError) or any(map(_has_timeout, members))


class Stage:
    """A simulation, and what the runtimes on it believe.

    Attributes:
        attached: container and network of each ADD that succeeded, with no DEL since.
        disturbed: containers whose namespace or interface others have changed.
        renamed: containers whose own interface has another name now: DEL and GC refuse, and keep what is theirs.
        used: the networks of the ADDs; GC of each is run in the end.
        outcomes: "VERB container" to "ok" or the error's class.
        has_restarted: whether the runtimes start again after the race, and believe the records that are ready.
    """

    def __init__(self, sim: Sim, *containers: str, version: str = "1.1.0", on_asyncio: bool = False) -> None:
        self.sim, self.world = sim, sim.world
        self._version, self._edition = version, 0
        self.networks = networks(version)
        self.executor = SimExecutor(sim)
        self.on_asyncio = on_asyncio
        self.tasks: dict[Code, asyncio.Task[Any]] = {}
        self.outcomes: dict[str, str] = {}
        self.used: set[str] = set()
        self.attached: set[tuple[str, str]] = set()
        self.disturbed: set[str] = set()
        self.renamed: set[str] = set()
        self.has_paused = self.has_replaced = self.has_restarted = False
        for container in containers:
            self.world.add_namespace(netns_of(container), container)

    # Verbs. Each is run by a client of its own, as a runtime does that starts for each verb.

    def _client(self, owner: str = "") -> CNIConfig:
        given: dict[str, Any] = {"cache_dir": CACHE, "conf_dir": "/none", "env": {}, "timeout": 60.0}
        given["owner"] = owner
        if not self.on_asyncio:
            return CNIConfig(["/opt/cni/bin"], executor=self.executor, **given)
        client = AsyncCNIConfig(["/opt/cni/bin"], executor=SimAsyncExecutor(self.sim), **given)
        return cast("CNIConfig", OnAsyncio(self.sim, client, self.tasks))

    def _try(self, what: str, work: Callable[[], object]) -> bool:
        assert self.sim.current is not None
        name = self.sim.current.name
        try:
            work()
        except CNIError as error:
            self.outcomes[what] = type(error).__name__
            if _has_timeout(error) and not self.has_paused:
                self.sim.violate(f"{what} waited for a lock for ever")
            self.sim.log(name, f"{what}: {type(error).__name__}: {str(error)[:200]}")
            return False
        except InterruptedError:
            self.outcomes[what] = "cancelled"
            self.sim.log(name, f"{what}: cancelled")
            return False
        except Exception as error:  # noqa: BLE001 - no verb may raise anything else
            self.sim.violate(f"{what} raised {type(error).__name__}: {error}")
            return False
        self.outcomes[what] = "ok"
        self.sim.log(name, f"{what}: ok")
        return True

    def add(self, container: str, network: str, owner: str = "", **options: object) -> bool:
        """ADD."""
        rt, net = RuntimeConf(container, netns_of(container), "eth0"), self.networks[network]
        self.used.add(network)
        self.has_replaced = self.has_replaced or bool(options)
        done = self._try(f"ADD {container}", lambda: self._client(owner).add_network_list(net, rt, **options))  # type: ignore[arg-type]
        if done:
            if (container, network) in self.attached and container not in self.disturbed and not self.has_replaced:
                self.sim.violate(f"a second ADD of {container} succeeded without a DEL")
            self.attached.add((container, network))
        return done

    def add_again(self, container: str, network: str) -> None:
        """ADD after an ADD that did not end, or that nobody heard of: the container must be able to start."""
        is_ready = any(one.container_id == container and one.state == READY for _, one in self.records())
        options = {"on_existing": "replace"} if is_ready else {}
        self.alone("again", lambda: self.add(container, network, **options))
        if self.outcomes[f"ADD {container}"] != "ok":
            self.sim.violate(f"{container} cannot start again: {self.outcomes}")

    def delete(self, container: str, network: str) -> bool:
        """DEL."""
        rt, net = RuntimeConf(container, netns_of(container), "eth0"), self.networks[network]
        self.attached.discard((container, network))
        return self._try(f"DEL {container}", lambda: self._client().del_network_list(net, rt))

    def check_verb(self, container: str, network: str) -> bool:
        """CHECK."""
        rt, net = RuntimeConf(container, netns_of(container), "eth0"), self.networks[network]
        return self._try(f"CHECK {container}", lambda: self._client().check_network_list(net, rt))

    def gc(self, network: str, *valid: str) -> bool:
        """GC with these containers as valid."""
        pairs, net = [(one, "eth0") for one in valid], self.networks[network]
        return self._try(f"GC {network}", lambda: self._client().gc_network_list(net, pairs))

    def repair(self) -> bool:
        """Repair."""
        return self._try("repair", lambda: repair_records(CACHE))

    def take_over(self, container: str, network: str, owner: str) -> bool:
        """Take over the attachment of a container, if there is one: from then on it is this owner's."""

        def work() -> None:
            client = self._client(owner)
            for one in client.get_cached_attachments(container):
                client.take_over_attachment(one)
                self.attached.add((container, network))

        return self._try(f"take over {container}", work)

    # Actors.

    def runtime(self, name: str, work: Callable[[], object], beside: Code | None = None) -> Code:
        """Let a process run, or a thread of the process ``beside``."""
        return self.sim.run_code(name, work, beside)

    def alone(self, name: str, work: Callable[[], object]) -> None:
        """Run a process to its end, without exploring."""
        self.runtime(name, work)
        self.sim.run(explore=False)

    def killed(self, name: str, work: Callable[[], object], within: str) -> None:
        """Run a process, and kill it with its plugins when a plugin of this type runs."""
        victim = self.runtime(name, work)
        self.sim.run(explore=False, until=lambda: any(one.name.startswith(within) for one in self._plugins(victim)))
        for _ in self.kill(victim, plugins=True):
            pass

    def event(self, name: str, steps: Events) -> None:
        """Let something happen during the race."""
        self.sim.run_steps(name, steps)

    def race(self) -> None:
        """Run all actors to their ends, in an order that is explored."""
        self.sim.run(explore=True)

    # Events: what other programs, persons and the machine do.

    def namespace(self, container: str) -> Namespace | None:
        """Return the namespace at a container's path."""
        return self.world.namespaces.get(netns_of(container))

    def replace_namespace(self, container: str, maker: str = NEIGHBOUR) -> Events:
        """Remove the namespace; a neighbour makes one at its path, with an eth0 of the same number and address.

        ipvlan's interfaces have the hardware address of their parent.
        """
        before = self._interfaces(container).get("eth0")
        self.world.remove_namespace(netns_of(container))
        self.disturbed.add(container)
        yield f"the namespace of {container} is removed"
        made = self.world.add_namespace(netns_of(container), maker)
        interface = made.make("eth0", maker)
        interface.mac = before.mac if before else interface.mac
        yield f"a namespace of a {maker} with eth0 is at its path (inode {made.ino}, cookie {made.cookie})"

    def replace_interface(self, container: str) -> Events:
        """Remove eth0 when it is there; a neighbour makes its own."""
        yield lambda: "eth0" in self._interfaces(container)
        if self._interfaces(container).pop("eth0", None) is None:
            return
        self.disturbed.add(container)
        yield f"a neighbour removed eth0 of {container}"
        yield from self.make_interface(container)

    def make_interface(self, container: str) -> Events:
        """Let a neighbour make eth0, if there is none."""
        namespace = self.namespace(container)
        if namespace is not None and "eth0" not in namespace.interfaces:
            self.disturbed.add(container)
            yield f"a neighbour made eth0 for {container}, number {namespace.make('eth0', NEIGHBOUR).index}"

    def rename(self, container: str) -> Events:
        """Let the container rename its eth0."""
        namespace = self.namespace(container)
        if namespace is not None and "eth0" in namespace.interfaces:
            namespace.rename("eth0", "net1")
            self.disturbed.add(container)
            self.renamed.add(container)
            yield f"eth0 of {container} is renamed to net1"

    def edit(self) -> None:
        """Change each configuration, as a person does between an ADD and its DEL."""
        self._edition += 1
        self.networks = networks(self._version, self._edition)

    def _interfaces(self, container: str) -> dict[str, Interface]:
        namespace = self.namespace(container)
        return {} if namespace is None else namespace.interfaces

    def kill(self, victim: Code, *, plugins: bool, within: str = "") -> Events:
        """Kill a process, with its plugins or without; ``within``: while a plugin of this type runs."""
        if within:
            yield lambda: victim.done or any(one.name.startswith(within) for one in self._plugins(victim))
        if victim.done:
            return
        running = self._plugins(victim)
        victim.kill()
        for one in running:
            if plugins:
                one.kill()
            else:
                one.wake = self.sim.now + ORPHAN_SECONDS
        yield f"SIGKILL of {victim.name}{' and its plugins' if plugins else ''}"

    def cancel(self, victim: Code) -> Events:
        """Cancel the task of a process, if it runs on asyncio; its verb ends as after a kill."""
        if victim in self.tasks:
            self.tasks[victim].cancel()
            yield f"the task of {victim.name} is cancelled"

    def kill_plugin(self, verb: str) -> Events:
        """Kill a plugin that runs this verb."""
        yield lambda: any(one.verb == verb for one in self._plugins(None))
        for one in [one for one in self._plugins(None) if one.verb == verb][:1]:
            one.kill()
            yield f"SIGKILL of {one.name}"

    def _plugins(self, parent: Code | None) -> list[Program]:
        return [
            one
            for one in self.sim.actors
            if isinstance(one, Program) and one.process and not one.done and parent in {None, one.parent}
        ]

    def fill_disk(self) -> Events:
        """Let the next change of the disk fail."""
        self.sim.disk_error = 28
        yield "the disk is full for the next change"
        self.sim.disk_error = 0

    def pause(self) -> Events:
        """Let the machine stand still."""
        self.sim.now += 61
        self.has_paused = True
        yield "the machine stood still for 61 s"

    def power_cut(self) -> Events:
        """Cut the power; the disk keeps what is safe, and any part of the rest."""
        for one in list(self.sim.actors):
            if one.process is not None:
                one.kill()
        self.world.power_cut(self.sim.chooser.spread)
        self.attached.clear()
        forget_the_boot()
        yield f"POWER CUT; on the disk: {sorted(self.folder('results'))}"

    def go_runtime(self, container: str, network: str) -> Events:
        """Attach as Go libcni does: no locks, and the record is written in place after the last plugin."""
        conf = {"cniVersion": "1.1.0", "name": network}
        env = {"CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_NETNS": netns_of(container)}
        plugin = self.executor.start("bridge", "ADD", env, conf)
        yield lambda: plugin.done
        assert isinstance(plugin.value, tuple)
        record = {
            "kind": "cniCacheV1",
            "containerId": container,
            "config": base64.b64encode(self.networks[network].raw).decode(),
            "ifName": "eth0",
            "networkName": network,
            "netns": netns_of(container),
            "result": {"cniVersion": "1.1.0", **(plugin.value[1] or {})},
        }
        data, disk = json.dumps(record).encode(), self.world.disk
        for directory in (CACHE, f"{CACHE}/results"):
            with suppress(FileExistsError):
                disk.make_directory(directory)
        file = disk.open(f"{CACHE}/results/{network}-{container}-eth0", 0o101, None, self.sim.now)
        assert isinstance(file.inode, File)
        for end in (0, len(data) // 2, len(data)):
            file.inode.data = data[:end]
            yield f"Go wrote {end} bytes of the record of {container}"
        file.close()
        self.attached.add((container, network))

    # The end.

    def folder(self, name: str) -> dict[str, object]:
        """Return what is in a folder of the record directory."""
        try:
            return dict(self.world.disk.directory(f"{CACHE}/{name}").entries)
        except OSError:
            return {}

    def records(self) -> list[tuple[str, Record]]:
        """Return the records."""
        files = [(name, file) for name, file in self.folder("results").items() if isinstance(file, File)]
        found: list[tuple[str, Record]] = []
        self.alone("reader", lambda: found.extend((name, decode(file.data, name)) for name, file in files))
        return found

    def finish(self) -> None:
        """Let the actors race, a restarted runtime and an operator clean up, and check what must hold in the end."""
        self.race()
        if self.has_restarted:
            # They know what is attached by the records that are ready.
            self.attached = {(one.container_id, one.network) for _, one in self.records() if one.state == READY}
        self._check_ready()
        self.sim.now += 2 * 3600
        for network in sorted(self.used):
            living = sorted(container for container, name in self.attached if name == network)
            self.alone("gc", lambda network=network, living=living: self.gc(network, *living))  # type: ignore[misc]
        self.alone("repair", self.repair)
        self._check_records()
        self._check_effects()

    def _check_ready(self) -> None:
        for name, record in self.records():
            if record.state == READY:
                self._check_whole(record.container_id, record.network, f"the record {name} says ready")

    def _check_records(self) -> None:
        living = {container for container, _ in self.attached} | self.renamed
        found = dict(self.records())
        for name, record in found.items():
            if record.state == CORRUPT:
                self.sim.violate(f"the record {name} is not whole: {record.problem}")
            elif record.container_id not in living and self.outcomes.get(f"GC {record.network}", "ok") == "ok":
                self.sim.violate(f"the record {name} is left, {record.state}")
        for folder in ("tmp", "partial"):
            if left := sorted(self.folder(folder)):
                self.sim.violate(f"{folder} has {left}")
        for container, network in sorted(self.attached):
            one = found.get(f"{network}-{container}-eth0")
            if one is None or (one.version and one.state != READY):
                self.sim.violate(f"ADD of {container} succeeded, and its record is {one and one.state}")
            self._check_whole(container, network, f"ADD of {container} succeeded")

    def _check_effects(self) -> None:
        living = {container for container, _ in self.attached} | self.renamed
        by_address: dict[str, list[str]] = {}
        for one in self.world.interfaces():
            by_address.setdefault(one.address, []).append(one.maker)
            if one.maker not in living | {NEIGHBOUR}:
                self.sim.violate(f"{one.name} of {one.maker} is left")
        for address, makers in by_address.items():
            if address and len(makers) > 1 and address not in self.world.excused:
                self.sim.violate(f"{address} is on the interfaces of {makers}")
        for address, (_, owner, _) in self.world.pool.items():
            if owner not in living:
                self.sim.violate(f"the address {address} of {owner} is left")
        for address, owner in sorted(self.world.rules):
            if owner not in living:
                self.sim.violate(f"the rule of {address} for {owner} is left")

    def _check_whole(self, container: str, network: str, what: str) -> None:
        namespace = self.namespace(container)
        if container in self.disturbed or namespace is None:
            return
        interface = namespace.interfaces.get("eth0")
        owner = (network, container, "eth0")
        if interface is None or interface.maker != container or self.world.pool.get(interface.address) != owner:
            self.sim.violate(f"{what}, and its interface or address is missing")
        elif "firewall" in _CHAINS[network] and (interface.address, container) not in self.world.rules:
            self.sim.violate(f"{what}, and its rule is missing")
