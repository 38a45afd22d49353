"""Plugins as the library believes them to be, and the executor that runs them as processes of the world.

Beliefs, with tests with real parts in tests/real/test_beliefs.py; that of firewall is in tests/real/test_identity.py:
- bridge makes the interface first and asks IPAM then; its DEL deletes an interface by name in the namespace at a path,
  whoever made it, and succeeds if there is none; with an empty CNI_NETNS it only frees the address.
- host-local frees by network, container and interface, and its GC frees everything that is not in the list.
- firewall and portmap remove rules by the address in prevResult alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from libcni import Invocation, Outcome
from libcni.errors import PluginNotFoundError, PluginTimeoutError
from libcni.executor import CallOptions
from sim.proc import Proc
from sim.schedule import Program, Sim, Steps
from sim.world import Namespace, Process

AT_ONCE = 4
"""So many effects may lie between the library's look at an interface and the start of a plugin.

Between the look and the plugin's own work a neighbour can come, and nobody can prevent that; it takes microseconds.
"""


@dataclass
class Call:
    """One call of a plugin.

    Attributes:
        conf: its configuration; empty as long as it waits for it.
        seen: its caller knows which interface was there at this step of the machine.
        glanced: its caller knows which namespace was there at this step.
    """

    sim: Sim
    process: Process
    plugin: str
    verb: str
    container: str
    ifname: str
    netns: str
    conf: dict[str, Any]
    seen: int
    glanced: int = 0

    def enter(self) -> Namespace | None:
        """Enter the namespace that is at the path now; it lives on as long as this process."""
        world = self.sim.world
        namespace = world.namespaces.get(self.netns)
        if self.netns.startswith("/proc/"):
            with suppress(OSError):
                found = Proc(world, self.process).find(self.netns)
                namespace = found if isinstance(found, Namespace) else None
        if namespace is not None:
            self.process.hold(namespace)
        return namespace

    def is_neighbours(self, what: str, namespace: Namespace) -> bool:
        """Return whether this ADD changes the namespace of another container; note it if its caller could know that."""
        if namespace.maker == self.container:
            return False
        if namespace.made <= self.glanced:
            self.sim.violate(f"ADD for {self.container} {what} the namespace of a {namespace.maker}")
        return True

    @property
    def previous(self) -> dict[str, Any] | None:
        """The result of the plugin before."""
        found: dict[str, Any] | None = self.conf.get("prevResult")
        return found

    @property
    def addresses(self) -> list[str]:
        """The addresses in prevResult."""
        return [ip["address"].partition("/")[0] for ip in (self.previous or {}).get("ips", ())]


def _error(code: int, text: str) -> tuple[int, dict[str, Any]]:
    return 1, {"code": code, "msg": text}


def bridge(call: Call) -> Steps:
    """Make an interface, and ask IPAM for an address, in one plugin."""
    work = {"ADD": _bridge_add, "DEL": _bridge_del, "GC": _bridge_gc}
    return (yield from work[call.verb](call)) if call.verb in work else (yield from _check(call))


def _bridge_add(call: Call) -> Steps:
    world, me = call.sim.world, call.container
    namespace = call.enter()
    if namespace is None:
        return _error(3, f"no namespace at {call.netns}")
    if call.ifname in namespace.interfaces:
        return _error(101, f"{call.ifname} exists")
    is_astray = call.is_neighbours("made an interface in", namespace)
    made = namespace.make(call.ifname, me)
    made.is_astray = is_astray
    yield f"made {call.ifname} (number {made.index}, in {namespace.maker}'s namespace) for {me}"
    try:
        wanted = call.conf.get("args", {}).get("cni", {}).get("ips", ())
        address = world.allocate(call.conf["name"], me, call.ifname, wanted=wanted)
    except OSError as error:
        return _error(102, str(error))
    yield f"allocated {address} for {me}"
    made.address = address
    others = [one.maker for one in world.interfaces() if one.address == address and one is not made]
    if others and address not in world.excused:
        call.sim.violate(f"{address} is given to {me} while a live interface of {others[0]} has it")
    yield f"gave {call.ifname} of {me} the address {address}"
    interface = {"name": call.ifname, "mac": made.mac, "sandbox": call.netns}
    return 0, {"interfaces": [interface], "ips": [{"address": f"{address}/24", "interface": 0}]}


def _bridge_del(call: Call) -> Steps:
    world, me = call.sim.world, call.container
    namespace = call.enter() if call.netns else None
    yield f"DEL for {me}: entered {namespace.maker}'s namespace" if namespace else f"DEL for {me}: no namespace"
    if namespace is not None and call.ifname in namespace.interfaces:
        gone = namespace.interfaces.pop(call.ifname)
        if gone.maker != me and gone.made <= call.seen and not world.was_made_in_a_failed_add(gone, me):
            call.sim.violate(f"DEL for {me} deleted {gone.name} of {gone.maker}")
        yield f"deleted {call.ifname}, made for {gone.maker}"
    for address in world.free(call.conf["name"], me, call.ifname):
        if any(one.made > call.seen for one in world.interfaces() if one.address == address):
            world.excused.add(address)
        yield f"freed {address} of {me}"
    return 0, None


def _bridge_gc(call: Call) -> Steps:
    valid = {(one["containerID"], one["ifname"]) for one in call.conf["cni.dev/valid-attachments"]}
    world = call.sim.world
    for owner in [one for one in world.pool.values() if one[0] == call.conf["name"] and one[1:] not in valid]:
        for address in world.free(*owner):
            yield f"GC frees {address} of {owner[1]}"
            alive = [one for one in world.interfaces() if one.address == address]
            if alive:
                call.sim.violate(f"GC freed {address}, which a live interface of {alive[0].maker} has")
    return 0, None


def _check(call: Call) -> Steps:
    namespace = call.enter()
    yield f"CHECK of {call.container}"
    if call.verb == "CHECK" and (namespace is None or call.ifname not in namespace.interfaces):
        return _error(999, f"{call.ifname} is missing")
    return 0, None


def firewall(call: Call) -> Steps:
    """Make a rule for the address; DEL removes all rules of the address."""
    rules, me = call.sim.world.rules, call.container
    for address in call.addresses:
        if call.verb == "ADD":
            rules.add((address, me))
            yield f"made the rule of {address} for {me}"
        elif call.verb == "DEL":
            gone = {rule for rule in rules if rule[0] == address}
            rules -= gone
            for _, other in sorted(gone - {(address, me)}):
                call.sim.violate(f"DEL for {me} removed the rule of {other}")
            yield f"removed the rules of {address} for {me}"
    return 0, call.previous


def tuning(call: Call) -> Steps:
    """Change the interface in the namespace, whoever made it."""
    namespace = call.enter()
    if call.verb == "ADD" and namespace is not None and call.ifname in namespace.interfaces:
        call.is_neighbours(f"changed {call.ifname} in", namespace)
        yield f"changed {call.ifname} of {namespace.interfaces[call.ifname].maker}"
    return 0, call.previous


def slow(call: Call) -> Steps:
    """Take three steps."""
    for number in range(3 if call.verb in {"ADD", "DEL"} else 0):
        yield f"slow {call.verb} for {call.container}: {number + 1} of 3"
    return 0, call.previous


def fail(call: Call) -> Steps:
    """Fail each ADD."""
    yield f"works on {call.verb} for {call.container}"
    return _error(100, "it fails") if call.verb == "ADD" else (0, call.previous)


def unlucky(call: Call) -> Steps:
    """Fail the first ADD of a container by a known fault that does not happen twice."""
    yield f"works on {call.verb} for {call.container}"
    is_first = call.verb == "ADD" and call.container not in call.sim.world.unlucky
    if is_first:
        call.sim.world.unlucky.add(call.container)
    return _error(999, "iptables: Chain already exists.") if is_first else (0, call.previous)


KINDS: dict[str, Callable[[Call], Steps]] = {
    one.__name__: one for one in (bridge, firewall, tuning, slow, fail, unlucky)
}


def _run(call: Call, caller: Process) -> Steps:
    """Wait for the configuration, and run the plugin; without one it ends with the caller."""
    if not call.conf:
        yield lambda: bool(call.conf) or not caller.alive
    if not call.conf:
        return _error(6, "there is no configuration")
    return (yield from KINDS[call.plugin](call))


class SimExecutor:
    """Runs plugins as processes of the world. ``started``: how many."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.started = 0

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Find one of the plugins above."""
        if plugin not in {*KINDS, "host-local"}:
            raise PluginNotFoundError(plugin, tuple(path))
        return f"/opt/cni/bin/{plugin}"

    def start(self, plugin: str, verb: str, env: Mapping[str, str]) -> Program:
        """Start a plugin, which waits for its configuration; who runs now is its parent."""
        sim, parent = self.sim, self.sim.current
        self.started += 1
        process = sim.world.process(plugin)
        names = env["CNI_CONTAINERID"], env["CNI_IFNAME"], env["CNI_NETNS"]
        call = Call(sim, process, plugin, verb, *names, {}, 0)
        caller = parent.process if parent is not None and parent.process is not None else process
        running = sim.run_steps(f"{plugin}[{process.pid}]", _run(call, caller), process)
        running.parent, running.call = parent, call
        return running

    def feed(self, running: Program, conf: dict[str, Any]) -> None:
        """Give a plugin its configuration. The first DEL after an ADD must be given the same one."""
        call, editions, now = running.call, self.sim.world.editions, conf.get("edition")
        process = self.sim.current.process if self.sim.current else None
        call.conf, call.seen, call.glanced = conf, self._known(process, "looked"), self._known(process, "glanced")
        key = conf["name"], call.container, call.plugin
        if call.verb == "ADD":
            editions[key] = now
        elif call.verb == "DEL" and editions.pop(key, now) != now:
            self.sim.violate(f"DEL for {call.container} with another configuration of {call.plugin} than its ADD")

    def _known(self, caller: Process | None, what: str) -> int:
        """Return the step of the caller's look or glance, or this step if that was long ago."""
        if caller is None:
            return self.sim.world.steps
        effects, step = getattr(caller, what)
        return step if caller.effects - effects <= AT_ONCE else self.sim.world.steps

    def prepare(self, invocation: Invocation, options: CallOptions) -> Prepared:
        """Start the plugin of a verb ahead."""
        return Prepared(self, self._start(invocation, options, " ahead"), invocation, options)

    def _start(self, invocation: Invocation, options: CallOptions, how: str = "") -> Program:
        sim, env = self.sim, invocation.env
        inherited = options.inherit() if options.inherit is not None else -1
        netns = env["CNI_NETNS"] or "-"
        what = f"starts {invocation.plugin} {invocation.verb}{how} for {invocation.container_id}, netns {netns}"
        sim.point(what, "network")
        file = sim.me().descriptors.get(inherited)
        running = self.start(invocation.plugin, invocation.verb, env)
        if file is not None and running.process is not None:
            file.references += 1
            running.process.put(file)
        return running

    def begin(self, invocation: Invocation, options: CallOptions) -> Program:
        """Start the plugin of a verb with its configuration."""
        running = self._start(invocation, options)
        self.feed(running, json.loads(invocation.stdin))
        if options.on_started is not None:
            options.on_started()
        return running

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin to its end, or to its time limit."""
        return self.end(self.begin(invocation, options), invocation, options.timeout)

    def end(self, running: Program, invocation: Invocation, timeout: float | None) -> Outcome:
        """Wait for a plugin, and kill it at its time limit."""
        self.sim.wait(lambda: running.done, timeout)
        if not running.done:
            running.kill()
            raise PluginTimeoutError("it was stopped", invocation)
        return outcome_of(self.sim, running, invocation)


@dataclass
class Prepared:
    """A plugin that was started ahead."""

    executor: SimExecutor
    running: Program
    invocation: Invocation
    options: CallOptions

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Give it its configuration, and run it to its end."""
        sim, invocation = self.executor.sim, dataclasses.replace(self.invocation, stdin=stdin)
        sim.point(f"feeds {invocation.plugin} {invocation.verb} for {invocation.container_id}", "network")
        self.executor.feed(self.running, json.loads(stdin))
        if self.options.on_started is not None:
            self.options.on_started()
        return self.executor.end(self.running, invocation, timeout)

    def discard(self) -> None:
        """Kill it."""
        self.running.kill()


def outcome_of(sim: Sim, running: Program, invocation: Invocation) -> Outcome:
    """Return what a plugin that has ended printed."""
    value = running.value
    if invocation.verb == "ADD" and not (isinstance(value, tuple) and value[0] == 0):
        sim.world.failed.append((invocation.container_id, running.call.seen, sim.world.steps))
    if value is None:
        return Outcome(exit_status=None, signal=9)
    assert isinstance(value, tuple)
    status, answer = value
    sim.point(f"{invocation.plugin} {invocation.verb} ended with {status}", "network")
    version = json.loads(invocation.stdin)["cniVersion"]
    text = json.dumps({"cniVersion": version, **answer}).encode() if answer else b""
    return Outcome(exit_status=status, stdout=text)
