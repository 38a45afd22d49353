"""The words of which scenarios are made: verbs, events, and what must hold in the end."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from inspect import isgeneratorfunction
from typing import Any, ClassVar, TypeVar, cast

from libcni import AsyncCNIConfig, CNIConfig, CNIError, LockTimeoutError, NetworkConfigList, RuntimeConf
from libcni.diagnosis.acts import carry_out, held
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import NodeState
from libcni.engines.oci.annotations import Wanted
from libcni.engines.oci.container_state import ContainerState
from libcni.engines.oci.ended_containers import collect
from libcni.engines.oci.hook import Hook
from libcni.engines.oci.pins import DIRECTORY, OWNER
from libcni.kernel.life import Life, Subject
from libcni.manager import AsyncNetworkManager, Container, NetworkManager, NetworkRequest
from libcni.options import DelPolicy
from libcni.store.life_of_record import subject_of
from libcni.store.locks import LockRequest
from libcni.store.model import BEGUN, CORRUPT, READY, STATES, Record, State, Unreadable
from libcni.store.record_format import decode
from libcni.store.records import RecordStore
from sim.disk import File, OpenFile
from sim.go import last_event, read_as_go
from sim.loop import OnAsyncio, SimAsyncExecutor
from sim.plugins import SimExecutor
from sim.proc import USERS_NAMESPACE
from sim.schedule import Actor, Code, Events, Program, Sim
from sim.seam import forget_the_boot
from sim.world import NEIGHBOUR, Interface, Namespace, Process, subnet_of

CACHE = "/var/lib/cni"
_VERBS = (
    *("add", "replace", "delete", "check", "gc", "repair", "take_over", "forget", "reload", "reload_all"),
    *("set_up", "tear_down", "sweep", "start", "stop", "collect", "judge"),
)
_EVENTS = {
    **dict.fromkeys(("kill", "kill_plugin", "cancel", "pause"), (("*",), ("network", "locks"))),
    **dict.fromkeys(("power_cut", "fill_disk"), (("*",), ("network", "locks", "safe"))),
    "go_runtime": ((), ("*",)),
}
"""Event to what it reads and changes, so that the order of it and of a step matters; the others change the network.

What was read before does not matter to a death, nor what was synced, except to a power cut.
"""
_T = TypeVar("_T")
ORPHAN_SECONDS = 1.0
"""A plugin that outlives its runtime takes this time before its next step."""

_CHAINS = {
    "b": ("bridge",),
    "bs": ("bridge", "slow"),
    "bf": ("bridge", "fail"),
    "bu": ("bridge", "unlucky"),
    "bw": ("bridge", "firewall"),
    "bws": ("bridge", "firewall", "slow"),
    "bt": ("bridge", "tuning"),
    "m": ("missing",),
}


@cache
def networks(version: str, edition: int = 0) -> dict[str, NetworkConfigList]:
    """Return the networks; before version 1.1.0 plugins get no GC."""

    def plugin(name: str, kind: str) -> dict[str, Any]:
        ipam = {"ipam": {"type": "host-local", "subnet": f"{subnet_of(name)}.0/24"}} if kind == "bridge" else {}
        return {"type": kind, "edition": edition, **ipam}

    return {
        name: NetworkConfigList.from_dict(
            {"cniVersion": version, "name": name, "plugins": [plugin(name, one) for one in chain]}
        )
        for name, chain in _CHAINS.items()
    }


@lru_cache(1000)  # most schedules write the same records
def _state_in(data: bytes, name: str, _boot: int) -> State:
    return decode(data, name).state


def netns_of(container: str) -> str:
    """Return the path of a container's namespace."""
    return f"/run/netns/{container}"


def _has_timeout(error: BaseException) -> bool:
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return isinstance(error, LockTimeoutError) or any(map(_has_timeout, members))


class Stage:
    """A simulation, and what the runtimes on it believe. Its methods are the steps of races, and their events.

    Attributes:
        attached: container, network and interface of each ADD that succeeded, with no DEL since.
        disturbed: containers whose namespace or interface others have changed.
        renamed: containers whose own interface has another name now: DEL and GC refuse, and keep what is theirs.
        forgotten: containers of which a record was forgotten: what their plugins made stays.
        detached: container and network of each DEL that succeeded while nothing attached the container, and since.
        adds: how many ADDs have succeeded.
        used: the networks of the ADDs; GC of each is run in the end.
        outcomes: "VERB container" to "ok" or the error's class.
        has_restarted: whether the runtimes start again after the race, and believe the records that are ready.
        starts_ahead: whether plugins are started before their turn.
        events: the state of a record before, and what was written to it; of all simulations.
    """

    events: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self, sim: Sim, *containers: str, version: str = "1.1.0", on_asyncio: bool = False) -> None:
        self.sim, self.world = sim, sim.world
        self._version, self._edition = version, 0
        self.networks = networks(version)
        self.executor = SimExecutor(sim)
        self.on_asyncio = on_asyncio
        self.tasks: dict[Code, asyncio.Task[Any]] = {}
        self.runtimes: list[Code] = []
        self.outcomes: dict[str, str] = {}
        self.adds = 0
        self.used: set[str] = set()
        self.attached: set[tuple[str, str, str]] = set()
        self.detached: set[tuple[str, str]] = set()
        self._begun: Counter[str] = Counter()  # container: how many verbs that attach it have begun
        self._ended: Counter[str] = Counter()
        self._owners: dict[Actor | None, str] = {}  # process: the owner that it works for
        self._owner_of: dict[str, str] = {}  # container: the owner whose manager has set it up
        self.disturbed: set[str] = set()
        self.renamed: set[str] = set()
        self.forgotten: set[str] = set()
        self.has_filled_disk = False
        self.has_hook = self.has_paused = self.has_replaced = self.has_restarted = self.starts_ahead = False
        self._states: dict[str, tuple[int, State]] = {}  # record: its file, and its state
        self.recorded: dict[str, Namespace] = {}  # container: the namespace of its record
        self._interface: dict[str, Interface] = {}  # container: its eth0, as the ADD left it
        self.holders: dict[tuple[str, str], Process] = {}  # container, how
        self.verdicts: dict[str, str] = {}
        sim.readers += [self._read_as_go, self._follow]
        for container in containers:
            self.world.add_namespace(netns_of(container), container)

    # Verbs. Each is run by a client of its own, as a runtime does that starts for each verb.

    def client(self, owner: str = "", **options: float) -> CNIConfig:
        """Return a client of the owner that the process works for, or of another one."""
        owner = owner or self._owners.get(self.sim.current, "")
        given: dict[str, Any] = {"cache_dir": CACHE, "conf_dir": "/none", "env": {}, "timeout": 60.0, "owner": owner}
        given |= options
        if self.on_asyncio:
            return AsyncCNIConfig(["/opt/cni/bin"], executor=SimAsyncExecutor(self.sim), **given)  # type: ignore[return-value]
        given["start_ahead"] = "always" if self.starts_ahead else "never"
        return CNIConfig(["/opt/cni/bin"], executor=self.executor, **given)

    def _verbs(self, owner: str = "") -> CNIConfig:
        return self._blocking(self.client(owner))

    def manager(self, client: CNIConfig | None = None, policy: DelPolicy | None = None) -> NetworkManager:
        """Return a manager of the networks that are used."""
        kind = AsyncNetworkManager if self.on_asyncio else NetworkManager
        nets = [self.networks[name] for name in sorted(self.used)]
        made = kind(client or self.client(), networks=nets, policy=policy)  # type: ignore[arg-type]
        return self._blocking(cast("NetworkManager", made))

    def _blocking(self, one: _T) -> _T:
        return cast("_T", OnAsyncio(self.sim, one, self.tasks)) if self.on_asyncio else one

    def _try(self, what: str, work: Callable[[], object]) -> bool:
        assert self.sim.current is not None
        name, outcome, text = self.sim.current.name, "ok", ""
        self.sim.touch("beliefs", change=True)
        try:
            work()
        except CNIError as error:
            outcome, text = type(error).__name__, f": {str(error)[:200]}"
            if _has_timeout(error) and not self.has_paused:
                self.sim.violate(f"{what} waited for a lock for ever")
        except InterruptedError:
            outcome = "cancelled"
        except Exception as error:  # noqa: BLE001 - no verb may raise anything else
            outcome = type(error).__name__
            self.sim.violate(f"{what} raised {outcome}: {error}")
        self.sim.touch("beliefs", change=True)
        self.outcomes[what] = outcome
        self.sim.log(name, f"{what}: {outcome}{text}")
        return outcome == "ok"

    def _of(self, container: str, network: str) -> tuple[NetworkConfigList, RuntimeConf]:
        return self.networks[network], RuntimeConf(container, netns_of(container), "eth0")

    def _attached_to(self, container: str, networks: tuple[str, ...]) -> set[tuple[str, str, str]]:
        return {(container, network, f"eth{number}") for number, network in enumerate(networks)}

    def add(self, container: str, network: str, owner: str = "", **options: Any) -> None:
        self.used.add(network)
        self.has_replaced = self.has_replaced or bool(options)
        one = self._of(container, network)
        work = partial(self._verbs(owner).add_network_list, *one, **options)
        if self._attach(container, f"ADD {container}", work):
            made = self._attached_to(container, (network,))
            if made <= self.attached and container not in self.disturbed and not self.has_replaced:
                self.sim.violate(f"a second ADD of {container} succeeded without a DEL")
            self.attached |= made
            self.adds += 1

    def _attach(self, container: str, what: str, work: Callable[[], object]) -> bool:
        self.detached = {one for one in self.detached if one[0] != container}
        self._begun[container] += 1
        done = self._try(what, work)
        self._ended[container] += 1
        return done

    def replace(self, container: str, network: str) -> None:
        self.add(container, network, on_existing="replace")

    def add_again(self, container: str, network: str) -> None:
        """ADD after an ADD that did not end, or that nobody heard of."""
        is_ready = any(one.container_id == container and one.state == READY for _, one in self.records())
        if is_ready:
            self._check_whole(container, network, "eth0", f"the record of {container} says ready")
        self.alone("again", partial(self.replace if is_ready else self.add, container, network))

    def delete(self, container: str, network: str) -> None:
        one = self._of(container, network)
        self._detach(container, network, f"DEL {container}", lambda: self._verbs().del_network_list(*one))

    def _detach(self, container: str, network: str, what: str, work: Callable[[], object]) -> None:
        """Detach something. It counts as detached from the beginning, and an ADD that ended meanwhile is undone."""
        self.lose(container, network)
        self._remove(container, network, what, work)
        self.lose(container, network)

    def _remove(self, container: str, network: str, what: str, work: Callable[[], object]) -> None:
        ended = self._ended[container]
        if self._try(what, work) and self._begun[container] == ended:
            self.detached |= {(container, one) for one in self.used if network in {"", one}}

    def check(self, container: str, network: str) -> None:
        one = self._of(container, network)
        self._try(f"CHECK {container}", lambda: self._verbs().check_network_list(*one))

    def gc(self, network: str, *valid: str | tuple[str, str]) -> None:
        """GC with these interfaces as valid: a container, or with the name of its interface if that is not eth0."""
        pairs = [(one, "eth0") if isinstance(one, str) else one for one in valid]
        self._try(f"GC {network}", lambda: self._verbs().gc_network_list(self.networks[network], pairs))

    def repair(self) -> None:
        """Set corrupt records aside and remove old drafts: the part of ``libcni repair`` that needs no whole node."""

        def work() -> None:
            store, node = RecordStore(CACHE), NodeState(self._verbs())
            corrupt = [record for record in store.records() if isinstance(record, Unreadable)]
            mends = [Mend("set-aside", record.path) for record in corrupt]
            with held(node.cni, LockRequest(all_containers=True)):
                for error in carry_out(node, mends, None):
                    assert not error, error
                store.remove_old_drafts()

        self._try("repair", work)

    def take_over(self, container: str, network: str, owner: str) -> None:
        """Take over the attachment of a container, if there is one: from then on it is this owner's."""

        def work() -> None:
            client = self._verbs(owner)
            for one in client.get_cached_attachments(container):
                client.take_over_attachment(one)
                self.attached.add((container, network, "eth0"))

        self._try(f"take over {container}", work)

    def forget(self, container: str) -> None:
        """Forget the attachments of a container that are there now."""

        def work() -> None:
            client = self._verbs()
            adds = self.adds
            for one in client.get_cached_attachments(container):
                client.forget_attachment(one)
                self.forgotten.add(container)
                if adds != self.adds:
                    self.sim.violate(f"the record of a later ADD of {container} was forgotten")

        self._try(f"forget {container}", work)

    def reload(self, container: str) -> None:
        """Reload the attachments of a container."""

        def work() -> None:
            client = self._verbs()
            for one in client.get_cached_attachments(container):
                client.reload_attachment(one)

        if not self._try(f"reload {container}", work) and container in self.disturbed:
            self.lose(container)  # it was detached, because something of a neighbour is in its place

    def reload_all(self) -> None:
        """Reload all attachments of an owner."""

        def work() -> None:
            client = self._verbs()
            for one in client.get_cached_attachments():
                with suppress(CNIError):
                    client.reload_attachment(one)

        self._try("reload all", work)

    def set_up(self, container: str, *names: str) -> None:
        """Let a manager attach a container to networks, as eth0, eth1."""
        self.used.update(names)
        self._owner_of[container] = self._owners.get(self.sim.current, "")
        wanted = Container(container, netns_of(container), names)
        if self._attach(container, f"set-up {container}", lambda: self.manager().set_up(wanted)):
            self.attached |= self._attached_to(container, names)

    def tear_down(self, container: str) -> None:
        self._detach(container, "", f"tear-down {container}", lambda: self.manager().tear_down(container))

    def sweep(self) -> None:
        """Let a manager run GC; it asks the runtime which of its containers live."""
        owner = self._owners.get(self.sim.current, "")

        def living() -> list[str]:
            self.sim.touch("beliefs", change=False)
            return sorted({one for one, _, _ in self.attached if self._owner_of.get(one, "") == owner})

        self._try("sweep", lambda: self.manager().gc(living))

    def start(self, container: str, *names: str) -> None:
        """Start a container as an OCI runtime does when its ID is free: a process, then the hook."""
        self.sim.touch("network", change=True)
        self.has_hook = True
        self.sim.wait(lambda: container not in self.world.containers, None)
        self.used.update(names)
        if netns_of(container) in self.world.namespaces:
            self.world.remove_namespace(netns_of(container))
        state = ContainerState(container, "created", self.world.start_container(container).pid, "/bundle")
        wanted = Wanted([NetworkRequest(name) for name in names], (), {})
        attach = partial(Hook("/opt/cni/bin", CACHE, "/none").attach, state, wanted)
        if not self._attach(container, f"start {container}", attach):
            self.world.end_container(container)
        elif container in self.world.containers:
            self.attached |= self._attached_to(container, names)

    def stop(self, container: str) -> None:
        """End a container as an OCI runtime does: its ID is free before the hook runs."""
        self.sim.touch("network", change=True)
        self.lose(container)
        self.world.end_container(container)
        work = partial(Hook("/opt/cni/bin", CACHE, "/none").detach, container)
        self._remove(container, "", f"stop {container}", work)

    def collect(self) -> None:
        """Detach containers that have ended without the hook."""
        client = self.client(OWNER)
        self._try("collect", lambda: collect(self.manager(client), ["/run/runc"]))

    # Actors.

    def do(self, steps: str, *, alone: bool = False) -> None:
        """Take steps; ``alone``: each in a process of its own to its end, without exploring.

        A step may name the owner that the process works for: ``one/sweep``.
        """
        for step in filter(None, steps.split("; ")):
            first, *words = step.split()
            owner, _, name = first.rpartition("/")
            work = partial(self._work_for, owner, partial(getattr(self, name), *words))
            if alone and name in _VERBS:
                self.alone(name, work)
            elif isgeneratorfunction(getattr(self, name)):
                self.event(step)
                self.sim.run(explore=False)
            else:
                work()

    def _work_for(self, owner: str, work: Callable[[], object]) -> None:
        self._owners[self.sim.current] = owner
        work()

    def run(self, name: str, steps: str) -> None:
        """Let a process race."""
        self.runtimes.append(self.sim.run_code(name, lambda: self.do(steps)))

    def alone(self, name: str, work: Callable[[], object]) -> None:
        """Run a process to its end, without exploring."""
        self.sim.run_code(name, work)
        self.sim.run(explore=False)

    def killed_add(self, container: str, network: str, within: str) -> None:
        """Run an ADD, and kill it with its plugins when a plugin of this type runs."""
        victim = self.sim.run_code("killed", lambda: self.add(container, network))
        self.sim.run(explore=False, until=lambda: any(one.name.startswith(within) for one in self._plugins(victim)))
        for _ in self._kill(victim, plugins=True):
            pass

    def event(self, words: str) -> None:
        """Let something happen during the race."""
        name, *rest = words.split()
        happens = self.sim.run_steps(name, getattr(self, name)(*rest))
        happens.reads, happens.changes = _EVENTS.get(name, ((), ("network",)))

    def succeeded(self, verb: str = "") -> None:
        """Note a verb that failed; of one kind, or any."""
        if problems := {what: one for what, one in self.outcomes.items() if one != "ok" and what.startswith(verb)}:
            self.sim.violate(f"there is no way out: {problems}")

    def nothing_ran(self) -> None:
        """Note that a plugin ran."""
        if self.executor.started:
            self.sim.violate(f"{self.executor.started} plugins ran")

    def is_on_record(self, container: str) -> None:
        """Note a container without a record."""
        if not any(record.container_id == container for _, record in self.records()):
            self.sim.violate(f"{container} lives without a record")

    def lose(self, container: str, network: str = "") -> None:
        """Let the runtime of a container forget it, or its attachments to a network."""
        self.attached = {one for one in self.attached if one[0] != container or network not in {"", one[1]}}

    def restart(self, container: str) -> None:
        """Give a container a new namespace, as a runtime does that starts it again."""
        if netns_of(container) in self.world.namespaces:
            self.world.remove_namespace(netns_of(container))
        self.world.add_namespace(netns_of(container), container)
        self.lose(container)

    # The proof of life.

    def handles(self) -> None:
        """Let the kernel find namespaces by a handle."""
        self.world.knows_handles = True

    def age(self) -> None:
        """Let some minutes pass."""
        self.sim.now += 400.0

    def hold(self, container: str, how: str) -> None:
        """Let somebody hold the namespace of a container: see ``_HOLDS``."""
        namespace = self.world.namespaces.get(netns_of(container)) or self.recorded[container]
        self.recorded[container] = namespace
        holder = self.world.process(f"the holder of {container} ({how})")
        self.holders[container, how] = holder
        if how == "descriptor":
            namespace.hold()
            holder.put(OpenFile(namespace, "a descriptor", on_close=namespace.release))
            return
        holder.hold(namespace)
        if how == "mount":
            holder.mounts = {"/private/name": namespace}
        elif how in {"process", "thread"}:
            holder.namespace, holder.leader_has_ended = namespace, how == "thread"
        else:
            assert how == "socket", how

    def release(self, container: str, how: str) -> None:
        """End a holder of the namespace of a container."""
        holder = self.holders.pop((container, how))
        holder.end()
        self.world.processes.pop(holder.pid, None)

    def lose_path(self, container: str) -> None:
        """Unmount the namespace of a container."""
        self.recorded[container] = self.world.namespaces[netns_of(container)]
        self.world.remove_namespace(netns_of(container))
        self.disturbed.add(container)

    def hand_over(self, container: str, first: str, second: str) -> Events:
        """Let a namespace pass from one holder to the next, which is never without one."""
        self.hold(container, second)
        yield f"{second} holds the namespace of {container}, too"
        self.release(container, first)
        yield f"{first} does not hold the namespace of {container} any more"

    def moves(self, container: str) -> Events:
        """Let the process that holds a namespace enter another one, when the namespace has got a mount."""
        self.hold(container, "mount")
        yield f"the namespace of {container} is mounted"
        holder = self.holders["moved", "process"] = self.holders.pop((container, "process"))
        elsewhere = self.world.new_namespace(NEIGHBOUR)
        holder.hold(elsewhere)
        holder.namespace = elsewhere
        holder.held.remove(self.recorded[container])
        self.recorded[container].release()
        yield f"the process that held the namespace of {container} is in another one"

    def ends(self, container: str, how: str) -> Events:
        """End the last holder of a namespace."""
        self.release(container, how)
        yield f"the namespace of {container} has ended"

    def user_takes(self, container: str) -> Events:
        """Let a user without rights give an interface in a namespace of his own the address of a container."""
        taken = self._interface_of(container)
        user = self.world.process("a user's process")
        user.namespace = self.world.new_namespace(NEIGHBOUR)
        user.namespace.owner = USERS_NAMESPACE
        user.hold(user.namespace)
        made = user.namespace.make("eth0", NEIGHBOUR)
        made.mac, made.address = taken.mac, taken.address
        yield f"a user has {taken.address} and {taken.mac} of {container} in a namespace of his own"

    def _interface_of(self, container: str) -> Interface:
        if container not in self._interface:
            self._interface[container] = replace(self.recorded[container].interfaces["eth0"])
        return self._interface[container]

    def remember(self, container: str) -> None:
        """Remember the namespace and the interface of a container, for the steps above."""
        self.recorded[container] = self.world.namespaces[netns_of(container)]
        self._interface_of(container)

    def judge(self, container: str, how: str = "record") -> None:
        """Ask whether a container lives, by its record or by its ``address``; note an answer that is not true."""
        taken = self._interface_of(container)
        namespace = self.recorded[container]
        if how == "record":
            files = self.entries(f"{CACHE}/results").items()
            [record] = [decode(one.data, name) for name, one in files if isinstance(one, File)]
            subject = subject_of(record)
        else:
            subject = Subject(addresses=(taken.address,), age=1000.0)
        before = namespace.is_alive
        answer = Life().of(subject)
        assert self.sim.current is not None
        self.sim.log(self.sim.current.name, f"{container} is {answer.verdict}: {answer.reason}")
        if answer.is_dead and namespace.is_alive:
            self.sim.violate(f"{container} was called dead and lives: {answer.reason}")
        if answer.is_alive and not before:
            self.sim.violate(f"{container} was called alive and is dead: {answer.reason}")
        self.verdicts[container] = answer.verdict

    def judged(self, container: str, *verdicts: str) -> None:
        """Note another verdict."""
        if self.verdicts[container] not in verdicts:
            self.sim.violate(f"{container} was called {self.verdicts[container]}, not {' or '.join(verdicts)}")

    def forget_all(self) -> None:
        """Leave nothing of these steps to the checks at the end, which ask of verbs."""
        for container, how in list(self.holders):
            self.release(container, how)
        self.attached.clear()

    # Events: what other programs, persons and the machine do.

    def namespace(self, container: str) -> Namespace | None:
        """Return the namespace of a container's process, or the one at its path."""
        process = self.world.containers.get(container)
        return process.namespace if process else self.world.namespaces.get(netns_of(container))

    def replace_namespace(self, container: str, maker: str = NEIGHBOUR, how: str = "") -> Events:
        """Remove the namespace; a neighbour makes one at its path, with an eth0 of the same number and address.

        ipvlan's interfaces have the hardware address of their parent. ``how``: "empty" is without an eth0.
        """
        before = self._interfaces(container).get("eth0")
        self.world.remove_namespace(netns_of(container))
        self.disturbed.add(container)
        yield f"the namespace of {container} is removed"
        made = self.world.add_namespace(netns_of(container), maker)
        if how != "empty":
            interface = made.make("eth0", maker)
            interface.mac = before.mac if before else interface.mac
        yield f"a namespace of a {maker} with {how or 'eth0'} is at its path (inode {made.ino}, cookie {made.cookie})"

    def end(self, container: str) -> Events:
        """End a container's process by itself; its runtime has not seen it yet."""
        self.lose(container)
        self.world.end_container(container)
        yield f"the process of {container} ended"

    def unpin(self, container: str) -> Events:
        """Let a person unmount the namespace that the hook has pinned."""
        for path in [one for one in self.world.namespaces if one.startswith(f"{DIRECTORY}/{container}.")]:
            self.world.remove_namespace(path)
            yield f"a person unmounts {path}"

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

    def give_away(self, container: str) -> Events:
        """Give the addresses of a container to a neighbour: its reservations were lost."""
        for address in [one for one, (_, owner, _) in self.world.pool.items() if owner == container]:
            self.world.pool[address] = (self.world.pool[address][0], NEIGHBOUR, "eth0")
            yield f"{address} of {container} is given to a neighbour"

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

    def stopped(self, state: str, *step: str) -> None:
        """Kill the process of a step, with its plugins, as soon as a record is in a state."""
        victim = self.sim.run_code("victim", lambda: self.do(" ".join(step)))
        self.sim.run(explore=True, until=lambda: any(one == state for _, one in self._states.values()))
        for _ in self._kill(victim, plugins=True):
            pass
        self.sim.run(explore=False)

    def damage(self, container: str) -> None:
        """Let a program overwrite the record of a container with zeros."""
        for name, file in self.entries(f"{CACHE}/results").items():
            if isinstance(file, File) and f"-{container}-" in name:
                file.write(bytes(len(file.data)), 0, self.sim.now)
                self._states.pop(name, None)

    def lose_interface(self, container: str) -> Events:
        """Let a person remove eth0."""
        self._interfaces(container).pop("eth0")
        self.disturbed.add(container)
        yield f"a person removed eth0 of {container}"

    def state_of(self, container: str) -> str:
        """Return the state of the attachment of a container, as it is listed."""
        listed: list[str] = []
        client = self.client()
        self.alone("listing", lambda: listed.extend(one.state for one in client.get_cached_attachments(container)))
        return "".join(listed)

    def kill(self, *words: str) -> Events:
        """Kill the first process; ``plugins``: with its plugins; another word: while a plugin of this type runs."""
        within = [one for one in words if one != "plugins"]
        return self._kill(self.runtimes[0], plugins="plugins" in words, within="".join(within))

    def _kill(self, victim: Code, *, plugins: bool, within: str = "") -> Events:
        if within:
            yield lambda: victim.done or any(one.name.startswith(within) for one in self._plugins(victim))
        if victim.done:
            return
        running = self._plugins(victim)
        victim.kill()
        for one in running:
            # The limits that the library states: GC that runs on may free what was attached meanwhile, and nobody waits
            # for the plugin of a verb without a record.
            if plugins or not any(f"-{one.call.container}-" in name for name in self.entries(f"{CACHE}/results")):
                one.kill()
            else:
                one.wake = self.sim.now + ORPHAN_SECONDS
        yield f"SIGKILL of {victim.name}{' and its plugins' if plugins else ''}"

    def cancel(self) -> Events:
        """Cancel the task of the first process, if it runs on asyncio; its verb ends as after a kill."""
        victim = self.runtimes[0]
        if victim in self.tasks:
            self.tasks[victim].cancel()
            yield f"the task of {victim.name} is cancelled"

    def kill_plugin(self, verb: str) -> Events:
        """Kill a plugin that runs this verb."""
        yield lambda: any(one.call.verb == verb for one in self._plugins(None))
        for one in [one for one in self._plugins(None) if one.call.verb == verb][:1]:
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
        self.has_filled_disk = True
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
        self.world.power_cut(self.sim.choices.spread)
        self.attached.clear()
        self.detached.clear()
        self._states.clear()
        forget_the_boot()
        yield f"POWER CUT; on the disk: {sorted(self.entries(f'{CACHE}/results'))}"

    def go_runtime(self, container: str, network: str, how: str = "") -> Events:
        """Attach as Go libcni does: no locks, and the record is written in place after the last plugin.

        ``how``: "nowhere" writes a record without any path of the namespace.
        """
        conf = {"cniVersion": "1.1.0", "name": network, "edition": self._edition}
        env = {"CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_NETNS": netns_of(container)}
        plugin = self.executor.start("bridge", "ADD", env)
        self.executor.feed(plugin, conf)
        yield lambda: plugin.done
        assert isinstance(plugin.value, tuple)
        record: dict[str, Any] = {
            "kind": "cniCacheV1",
            "containerId": container,
            "config": base64.b64encode(self.networks[network].raw).decode(),
            "ifName": "eth0",
            "networkName": network,
            "netns": netns_of(container),
            "result": {"cniVersion": "1.1.0", **(plugin.value[1] or {})},
        }
        if how == "nowhere":
            del record["netns"], record["result"]["interfaces"]
        data, disk = json.dumps(record).encode(), self.world.disk
        for directory in (CACHE, f"{CACHE}/results"):
            with suppress(FileExistsError):
                disk.make_directory(directory)
        file = disk.open(f"{CACHE}/results/{network}-{container}-eth0", 0o101, None, self.sim.now)
        assert isinstance(file.inode, File)
        for end in (0, len(data) // 2, len(data)):
            file.inode.truncate(end and len(file.inode.data), self.sim.now)
            file.inode.write(data[:end], 0, self.sim.now)
            disk.tell(file)
            yield f"Go wrote {end} bytes of the record of {container}"
        file.close()
        self.attached.add((container, network, "eth0"))

    def _read_as_go(self, file: File, whole: bool) -> None:
        """Read a record as Go libcni does, without a lock, after each of this library's writes to it."""
        for name in [name for name, one in self.entries(f"{CACHE}/results").items() if one is file]:
            try:
                record = read_as_go(file.data)
            except ValueError as error:
                if whole:
                    self.sim.violate(f"Go cannot read the record {name}: {error}")
                continue
            network, container, ifname = record["networkName"], record["containerId"], record["ifName"]
            config = base64.b64decode(record["config"])
            if name != f"{network}-{container}-{ifname}" or json.loads(config)["name"] != network:
                self.sim.violate(f"Go reads of {container} in the record {name}")

    def _follow(self, file: File, whole: bool) -> None:
        """Check that what a reader finds in a record, after a whole or a torn write, comes next in the table."""
        for name in [name for name, one in self.entries(f"{CACHE}/results").items() if one is file]:
            state = _state_in(file.data, name, self.world.boots)
            ino, before = self._states.get(name, (0, state))
            following = {before, *STATES[before].after.values(), *(() if ino == file.ino else (BEGUN,))}
            if state not in following:
                self.sim.violate(f"the record {name} was {before}, and a reader finds it {state}")
            if whole:
                self._states[name] = file.ino, state
                self.events.add((before, last_event(file.data)))

    # The end.

    def entries(self, path: str) -> dict[str, object]:
        """Return what is in a directory."""
        try:
            return dict(self.world.disk.directory(path).entries)
        except OSError:
            return {}

    def records(self) -> list[tuple[str, Record]]:
        """Return the records."""
        files = [(name, file) for name, file in self.entries(f"{CACHE}/results").items() if isinstance(file, File)]
        found: list[tuple[str, Record]] = []
        self.alone("reader", lambda: found.extend((name, decode(file.data, name)) for name, file in files))
        return found

    def finish(self) -> None:
        """Let a restarted runtime and an operator clean up, and check what must hold in the end."""
        if self.has_restarted:
            # They know what is attached by the records that are ready.
            records = [one for _, one in self.records() if one.state == READY]
            self.attached = {(one.container_id, one.network, one.ifname) for one in records}
        for name, record in self.records():
            if record.state == READY:
                self._check_whole(record.container_id, record.network, record.ifname, f"the record {name} says ready")
        self._check_detached()
        self.sim.now += 2 * 3600
        for container in set(self.world.containers) - {one for one, _, _ in self.attached}:
            self.world.end_container(container)  # its runtime was killed
        for network in sorted(self.used):
            living = sorted((container, ifname) for container, name, ifname in self.attached if name == network)
            for owner in sorted({"", *self._owners.values()}):
                self.alone("gc", partial(self._work_for, owner, partial(self.gc, network, *living)))
        self.alone("repair", self.repair)
        if self.has_hook:
            self.alone("collect", self.collect)
        self._check_records()
        self._check_effects()

    @property
    def _living(self) -> set[str]:
        return {container for container, _, _ in self.attached} | self.renamed | self.forgotten

    def _check_records(self) -> None:
        found = dict(self.records())
        for name, record in found.items():
            if record.state == CORRUPT:
                self.sim.violate(f"the record {name} is not whole: {record.problem}")
            elif record.container_id not in self._living and self.outcomes.get(f"GC {record.network}", "ok") == "ok":
                self.sim.violate(f"the record {name} is left, {record.state}")
        for folder in ("tmp", "partial"):
            if left := sorted(self.entries(f"{CACHE}/{folder}")):
                self.sim.violate(f"{folder} has {left}")
        for container, network, ifname in sorted(self.attached):
            one = found.get(f"{network}-{container}-{ifname}")
            if container not in self.forgotten and (one is None or (one.version and one.state != READY)):
                self.sim.violate(f"ADD of {container} succeeded, and its record is {one and one.state}")
            self._check_whole(container, network, ifname, f"ADD of {container} succeeded")

    def _check_detached(self) -> None:
        """Check that a DEL that succeeded has left nothing, before a sweep hides it.

        Where the disk refuses to remove the record, DEL logs that it stays.
        """
        records = [] if self.has_filled_disk else self.records()
        left = {(one.container_id, one.network): f"the record {name}" for name, one in records}
        left |= {(one, network): address for address, (network, one, _) in self.world.pool.items()}
        for one in sorted(self.detached & left.keys()):
            if one[0] not in self.renamed:
                self.sim.violate(f"DEL of {one[0]} succeeded, and {left[one]} is left")

    def _check_effects(self) -> None:
        world = self.world
        effects = [(one.maker, one.name) for one in world.interfaces() if not one.is_astray]
        effects += [(owner, f"the address {address}") for address, (_, owner, _) in world.pool.items()]
        effects += [(owner, f"the rule of {address}") for address, owner in sorted(world.rules)]
        effects += [(name.partition(".")[0], f"the pin {name}") for name in self.entries(DIRECTORY)]
        for owner, what in effects:
            if owner not in self._living | {NEIGHBOUR}:
                self.sim.violate(f"{what} of {owner} is left")
        by_address: dict[str, list[str]] = {}
        for one in world.interfaces():
            by_address.setdefault(one.address, []).append(one.maker)
        for address, makers in by_address.items():
            if address and len(makers) > 1 and address not in world.excused:
                self.sim.violate(f"{address} is on the interfaces of {makers}")

    def _check_whole(self, container: str, network: str, ifname: str, what: str) -> None:
        namespace = self.namespace(container)
        if container in self.disturbed or namespace is None:
            return
        interface = namespace.interfaces.get(ifname)
        owner = (network, container, ifname)
        if interface is None or interface.maker != container or self.world.pool.get(interface.address) != owner:
            self.sim.violate(f"{what}, and its interface or address is missing")
        elif "firewall" in _CHAINS[network] and (interface.address, container) not in self.world.rules:
            self.sim.violate(f"{what}, and its rule is missing")
