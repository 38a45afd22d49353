"""The machine: the disk, processes, network namespaces and their interfaces, addresses, firewall rules.

Beliefs, each with a test with real parts in tests/real/test_beliefs.py:
- the inode number of a namespace that has ended is used again, its cookie never.
- a namespace lives as long as a mount, a socket or a process has it.
- a path leads to the namespace that is there at that moment; an interface's number is never used again in it.
- host-local gives one address to a container and interface of a network, and refuses a second one; ``ips`` in
  ``args.cni`` are the only addresses that it gives then (tests/verbs/test_reload.py).
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.disk import Choose, Disk, File, OpenFile, failure

_descriptors = itertools.count(1 << 30)  # never twice, and none of this program: finalisers close them at any time

NEIGHBOUR = "neighbour"
"""The maker of what other programs and persons make."""


def subnet_of(network: str) -> str:
    """Return the first three numbers of the addresses of a network."""
    return f"10.0.{sum(network.encode()) % 256}"


@dataclass(eq=False)
class Interface:
    """A network interface.

    Attributes:
        maker: the container whose plugin made it, or NEIGHBOUR.
        made: the step of the machine at which it got its name.
        is_astray: it was made in another one's namespace, which appeared when nobody could know.
    """

    name: str
    index: int
    mac: str
    maker: str
    made: int
    address: str = ""
    is_astray: bool = False


class Namespace:
    """A network namespace."""

    def __init__(self, world: World, ino: int, cookie: int, maker: str) -> None:
        self.world, self.ino, self.cookie, self.maker = world, ino, cookie, maker
        self.owner = 0xEFFFFFFD  # the user namespace: the machine's first one
        self.made = world.steps
        self._references = 0
        self._indices = itertools.count(2)
        self.interfaces: dict[str, Interface] = {}

    @property
    def is_alive(self) -> bool:
        """Whether something holds it."""
        return self._references > 0

    def hold(self) -> None:
        """Count a mount, a socket or a process."""
        self._references += 1

    def release(self) -> None:
        """Uncount one; the last one ends the namespace."""
        self._references -= 1
        if not self._references:
            self.interfaces.clear()
            self.world.free_inodes.append(self.ino)

    def make(self, name: str, maker: str) -> Interface:
        """Make an interface."""
        if name in self.interfaces:
            raise failure(errno.EEXIST, name)
        made = Interface(name, next(self._indices), self.world.next_mac(), maker, self.world.steps)
        self.interfaces[name] = made
        return made

    def rename(self, name: str, to: str) -> None:
        """Rename an interface."""
        moved = self.interfaces.pop(name)
        moved.name, moved.made = to, self.world.steps
        self.interfaces[to] = moved


@dataclass(eq=False)
class Process:
    """A process: the namespace that it is in, its descriptors, those that it holds, and when it looked into one.

    Attributes:
        glanced: when it asked which namespace is at a path, by its own effects and by the machine's steps.
        looked: when a look at an interface ended, by its own effects, and when it began, by the machine's steps.
        leader_has_ended: its first thread has ended, and another one runs.
        mounts: the namespaces that are mounted in its own mount namespace, by path; None: it has the machine's.
    """

    pid: int
    name: str
    namespace: Namespace
    descriptors: dict[int, OpenFile] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    held: list[Namespace] = field(default_factory=list)
    alive: bool = True
    threads: int = 0
    effects: int = 0
    glanced: tuple[int, int] = (0, 0)
    looked: tuple[int, int] = (0, 0)
    leader_has_ended: bool = False
    mounts: dict[str, Namespace] | None = None

    def glance(self) -> None:
        """Note that it asks which namespace is at a path."""
        self.glanced = self.effects, self.namespace.world.steps

    def look(self) -> None:
        """Note a look at an interface."""
        self.looked = self.effects, self.glanced[1]

    def put(self, file: OpenFile) -> int:
        """Give an open file a descriptor."""
        number = next(_descriptors)
        self.descriptors[number] = file
        self.given.add(number)
        return number

    def hold(self, namespace: Namespace) -> None:
        """Keep a namespace alive."""
        namespace.hold()
        self.held.append(namespace)

    def end(self) -> None:
        """End: the kernel closes everything."""
        if self.alive:
            self.alive = False
            for file in self.descriptors.values():
                file.close()
            for namespace in self.held:
                namespace.release()
            self.descriptors.clear()
            self.held.clear()


class World:
    """One machine. ``keeps_files``: IPAM keeps a file for each address, as host-local does; other plugins do not."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.pool: dict[str, tuple[str, str, str]] = {}  # address: network, container, interface; safe on the disk
        self.processes: dict[int, Process] = {}
        self._pids = itertools.count(1000)
        self._macs = itertools.count(1)
        self.keeps_files = False
        self.boots = 0
        self.steps = 0
        self.failed: list[tuple[str, int, int]] = []  # container, first and last step of an ADD's plugin that failed
        self._boot()

    def _boot(self) -> None:
        self.boots += 1
        self.namespaces: dict[str, Namespace] = {}  # path of the mount
        self.containers: dict[str, Process] = {}  # of an OCI runtime, each with a directory in /run/runc
        self.rules: set[tuple[str, str]] = set()  # address, container
        self.unlucky: set[str] = set()  # the containers whose ADD has failed once
        self.excused: set[str] = set()  # addresses that were freed although an interface has them: nobody could know
        self.editions: dict[tuple[str, str, str], int | None] = {}  # network, container, plugin: as the ADD had it
        self.free_inodes: list[int] = []
        self.knows_handles = False  # the kernel finds namespaces by a handle
        self._inodes, self._cookies = itertools.count(4026532000), itertools.count(2)
        self.host = Namespace(self, 4026531840, 1, "host")
        self.host.hold()

    def power_cut(self, choose: Choose) -> None:
        """Lose everything but what the disk has, and start again."""
        for process in self.processes.values():
            process.end()
        self.processes.clear()
        self.disk.power_cut(choose)
        self.disk.directory("/run").entries.clear()
        self._boot()

    def process(self, name: str) -> Process:
        """Start a process."""
        process = Process(next(self._pids), name, self.host)
        self.processes[process.pid] = process
        return process

    def start_container(self, container: str) -> Process:
        """Start a container's process in a namespace of its own."""
        process = self.containers[container] = self.process(f"the process of {container}")
        process.namespace = self.new_namespace(container)
        process.hold(process.namespace)
        return process

    def end_container(self, container: str) -> None:
        """End a container's process; its ID is free."""
        process = self.containers.pop(container, None)
        if process is not None:
            process.end()
            self.processes.pop(process.pid, None)

    def was_made_in_a_failed_add(self, interface: Interface, container: str) -> bool:
        """Return whether an interface appeared while a plugin ran that then failed.

        The limit that the library states: such a plugin may have made it, and only the time tells. So the roll-back
        takes it for its own.
        """
        return any(one == container and first <= interface.made <= last for one, first, last in self.failed)

    def next_mac(self) -> str:
        """Return a hardware address that nobody has."""
        number = next(self._macs)
        return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"

    def add_namespace(self, path: str, maker: str) -> Namespace:
        """Make a namespace and mount it at a path."""
        made = self.new_namespace(maker)
        self.mount(made, path)
        return made

    def new_namespace(self, maker: str) -> Namespace:
        """Make a namespace that nobody holds yet."""
        ino = self.free_inodes.pop() if self.free_inodes else next(self._inodes)
        return Namespace(self, ino, next(self._cookies), maker)

    def mount(self, namespace: Namespace, path: str) -> None:
        """Mount a namespace at a path."""
        self.namespaces[path] = namespace
        namespace.hold()

    def remove_namespace(self, path: str) -> None:
        """Unmount a namespace; what is mounted there next is another one."""
        self.namespaces.pop(path).release()

    def interfaces(self) -> list[Interface]:
        """Return all interfaces that live."""
        held = [one for process in self.processes.values() for one in process.held]
        every = dict.fromkeys([*self.namespaces.values(), *held])
        every = {one: None for one in every if one.owner == self.host.owner}  # what a user has there is his affair
        return [interface for namespace in every for interface in namespace.interfaces.values()]

    def by_handle(self, ino: int, cookie: int) -> Namespace:
        """Return a living namespace."""
        if not self.knows_handles:
            raise failure(errno.EOPNOTSUPP)
        open_files = [file.inode for process in self.processes.values() for file in process.descriptors.values()]
        held = [one for process in self.processes.values() for one in process.held]
        for one in (self.host, *self.namespaces.values(), *held, *open_files):
            if isinstance(one, Namespace) and (one.ino, one.cookie) == (ino, cookie):
                return one
        raise failure(errno.ESTALE)

    def allocate(self, *owner: str, wanted: Sequence[str] = ()) -> str:
        """Give out a wanted address, or the lowest free one of a network: (network, container, interface)."""
        network, container, ifname = owner
        if (network, container, ifname) in self.pool.values():
            raise failure(errno.EEXIST, f"{container} {ifname} has an address already")
        every = (f"{subnet_of(network)}.{host}" for host in range(2, 250))
        address = next((one for one in wanted or every if one not in self.pool), None)
        if address is None:
            raise failure(errno.EADDRINUSE, f"{container} {ifname} asks for {', '.join(wanted)}")
        self.pool[address] = (network, container, ifname)
        return address

    def reservation(self, path: str) -> File:
        """Return the file of an address, which names its container and interface."""
        _, network, address = path.rsplit("/", 2)
        owner = self.pool.get(address)
        if not self.keeps_files or owner is None or owner[0] != network:
            raise failure(errno.ENOENT, path)
        return File(8, data=f"{owner[1]}\r\n{owner[2]}".encode())

    def free(self, *owner: str) -> list[str]:
        """Free the addresses of an attachment, and return them."""
        freed = [address for address, one in self.pool.items() if one == owner]
        for address in freed:
            del self.pool[address]
        return freed
