"""Two verbs and one intrusion, each explored with every order; and a mixture by seed.

A scenario sets a stage, and names the actors that race when it has returned, or at ``race``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sim import seam
from sim.schedule import BySeed, Chooser, Events, Sim, Violation, all_plans
from sim.stage import Stage

Scenario = Callable[[Stage], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario."""
    SCENARIOS[function.__name__] = function
    return function


# Neighbours: what is not ours is not touched.


@scenario
def namespace_replaced_during_del(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bs"))
    s.runtime("del", lambda: s.delete("A", "bs"))
    s.event("neighbour", s.replace_namespace("A"))


@scenario
def interface_replaced_during_del(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bs"))
    s.runtime("del", lambda: s.delete("A", "bs"))
    s.event("neighbour", s.replace_interface("A"))


@scenario
def interface_replaced_while_add_fails(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bf"))
    s.event("neighbour", s.replace_interface("A"))


@scenario
def interface_replaced_after_a_kill(s: Stage) -> None:
    # In the first plugin nobody could know which interface it made.
    add = s.runtime("add", lambda: s.add("A", "bs"))
    s.event("killer", s.kill(add, plugins=True, within="slow"))
    s.event("neighbour", s.replace_interface("A"))


@scenario
def interface_made_during_add(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "b"))
    s.event("neighbour", s.make_interface("A"))


@scenario
def namespace_replaced_during_replace(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "b"))
    s.runtime("add", lambda: s.add("A", "b", on_existing="replace"))
    s.event("neighbour", s.replace_namespace("A"))
    s.has_restarted = True


@scenario
def renamed_before_del(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "b"))
    s.runtime("del", lambda: s.delete("A", "b"))
    s.runtime("add", lambda: s.add("B", "b"))
    s.event("container", s.rename("A"))


@scenario
def restarted_in_a_new_namespace(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "b"))
    s.world.remove_namespace("/run/netns/A")
    s.world.add_namespace("/run/netns/A", "A")
    s.attached.clear()
    s.alone("add", lambda: s.add("A", "b"))
    if s.outcomes["ADD A"] != "ok":
        s.sim.violate(f"ADD in a new and empty namespace is refused: {s.outcomes['ADD A']}")


@scenario
def address_given_away_before_del_is_repeated(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bw"))
    gone = s.runtime("del", lambda: s.delete("A", "bw"))
    s.event("killer", s.kill(gone, plugins=True))
    s.race()
    s.alone("other", lambda: s.add("B", "bw"))


# Races of verbs.


@scenario
def two_adds(s: Stage) -> None:
    s.runtime("one", lambda: s.add("A", "bw"))
    s.runtime("two", lambda: s.add("A", "bw"))


@scenario
def add_and_del(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bw"))
    s.runtime("del", lambda: s.delete("A", "bw"))
    s.has_restarted = True


@scenario
def add_and_gc(s: Stage) -> None:
    s.alone("setup", lambda: s.add("B", "bw"))
    s.runtime("add", lambda: s.add("A", "bw"))
    s.runtime("gc", lambda: s.gc("bw", "A", "B"))


@scenario
def add_of_another_owner_and_gc(s: Stage) -> None:
    s.alone("setup", lambda: s.add("B", "b"))  # on another network
    s.runtime("add", lambda: s.add("A", "bw", owner="another"))
    s.runtime("gc", lambda: s.gc("bw"))


@scenario
def taken_over_during_gc(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bw"))
    s.attached.clear()  # its runtime has forgotten it
    s.runtime("gc", lambda: s.gc("bw"))
    s.runtime("other", lambda: s.take_over("A", "bw", "another"))


@scenario
def add_and_repair(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bw"))
    s.runtime("repair", s.repair)


@scenario
def del_and_check(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bw"))
    s.runtime("check", lambda: s.check_verb("A", "bw"))
    s.runtime("del", lambda: s.delete("A", "bw"))


@scenario
def gc_and_the_add_of_a_half_done_container(s: Stage) -> None:
    s.killed("add", lambda: s.add("A", "bws"), "slow")
    s.edit()
    s.runtime("gc", lambda: s.gc("bws", "A"))
    s.runtime("again", lambda: s.add("A", "bws"))
    s.has_restarted = True


# Kills, power cuts, full disks.


@scenario
def killed_add_and_an_orphan(s: Stage) -> None:
    add = s.runtime("add", lambda: s.add("A", "bws"))
    s.event("killer", s.kill(add, plugins=False))
    s.runtime("next", lambda: (s.delete("A", "bws"), s.gc("bws")))
    s.has_restarted = True


@scenario
def killed_add(s: Stage) -> None:
    add = s.runtime("add", lambda: s.add("A", "bws"))
    s.event("killer", s.kill(add, plugins=False))
    s.race()
    s.add_again("A", "bws")


@scenario
def cancelled_add(s: Stage) -> None:
    add = s.runtime("add", lambda: s.add("A", "bws"))
    s.event("cancel", s.cancel(add))
    s.race()
    s.add_again("A", "bws")


@scenario
def killed_del(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bws"))
    s.edit()
    gone = s.runtime("del", lambda: s.delete("A", "bws"))
    s.event("killer", s.kill(gone, plugins=True))
    s.race()
    s.alone("again", lambda: s.delete("A", "bws"))
    if s.outcomes["DEL A"] != "ok":
        s.sim.violate(f"DEL cannot be repeated: {s.outcomes}")


@scenario
def power_cut_during_add(s: Stage) -> None:
    s.alone("setup", lambda: s.add("B", "bw"))
    s.runtime("add", lambda: s.add("A", "bw"))
    s.event("power", s.power_cut())


@scenario
def power_cut_during_a_failing_add(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bf"))
    s.event("power", s.power_cut())


@scenario
def power_cut_during_del(s: Stage) -> None:
    s.alone("setup", lambda: (s.add("B", "bw"), s.add("A", "bw")))
    s.runtime("del", lambda: s.delete("A", "bw"))
    s.event("power", s.power_cut())


@scenario
def full_disk_during_add(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bws"))
    s.event("disk", s.fill_disk())


@scenario
def full_disk_during_del(s: Stage) -> None:
    s.alone("setup", lambda: s.add("A", "bws"))
    s.runtime("del", lambda: s.delete("A", "bws"))
    s.event("disk", s.fill_disk())


@scenario
def plugin_killed(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bws"))
    s.event("oom", s.kill_plugin("ADD"))


@scenario
def plugin_killed_in_a_roll_back(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bf"))
    s.event("oom", s.kill_plugin("DEL"))


@scenario
def a_long_pause(s: Stage) -> None:
    s.runtime("add", lambda: s.add("A", "bws"))
    s.runtime("del", lambda: s.delete("A", "bws"))
    s.event("pause", s.pause())
    s.has_restarted = True


@scenario
def go_beside_gc(s: Stage) -> None:
    s.alone("setup", lambda: s.add("B", "b"))
    s.event("go", s.go_runtime("A", "b"))
    s.runtime("gc", lambda: s.gc("b", "A", "B"))


def mixture(s: Stage) -> None:
    """Verbs, threads, kills, power cuts and full disks, all chosen by the seed."""
    assert isinstance(s.sim.chooser, BySeed)
    pick: Callable[[Any], Any] = s.sim.chooser.random.choice
    network = pick(("bw", "bws", "bf"))
    for container in ("A", "B"):
        if pick((True, False)):
            s.alone("setup", lambda container=container: s.add(container, network))  # type: ignore[misc]
    if pick((True, False)):
        s.edit()
    runtimes: list[Any] = []
    for number in range(pick((2, 3))):
        container, verb = pick("AB"), pick(("add", "del", "gc", "replace", "repair"))
        work: dict[str, Callable[[], object]] = {
            "add": lambda container=container: s.add(container, network),  # type: ignore[misc]
            "del": lambda container=container: s.delete(container, network),  # type: ignore[misc]
            "gc": lambda: s.gc(network, "A", "B"),
            "replace": lambda container=container: s.add(container, network, on_existing="replace"),  # type: ignore[misc]
            "repair": s.repair,
        }
        runtimes.append(s.runtime(f"{verb}{number}", work[verb], pick((None, *runtimes))))
    for number in range(pick((0, 1, 2))):
        s.event(f"killer{number}", s.kill(pick(runtimes), plugins=pick((True, False))))
    kill_plugin = partial(s.kill_plugin, pick(("ADD", "DEL")))
    events: dict[str, Callable[[], Events]] = {"power": s.power_cut, "disk": s.fill_disk, "oom": kill_plugin}
    for name, event in events.items():
        if not pick(range(4)):
            s.event(name, event())
    s.has_restarted = True


@dataclass
class Found:
    """A schedule that violates something, after how many schedules, and its story."""

    schedules: int
    violation: str = ""
    story: str = ""


def run(work: Scenario, chooser: Chooser, version: str = "1.1.0", *, on_asyncio: bool = False) -> Sim:
    """Run one schedule."""
    sim = Sim(chooser)
    with seam.running(sim):
        stage = Stage(sim, "A", "B", version=version, on_asyncio=on_asyncio)
        try:
            work(stage)
            stage.finish()
        except Violation as problem:
            sim.violate(str(problem))
        for actor in list(sim.actors):  # what waits for ever
            actor.kill()
    return sim


def explore(
    work: Scenario, *, bound: int = 1, limit: int = 1_000_000, version: str = "1.1.0", on_asyncio: bool = False
) -> Found:
    """Run every schedule with at most ``bound`` deviations, until one violates something."""
    count = 0
    for count, chooser in enumerate(all_plans(bound), 1):
        sim = run(work, chooser, version, on_asyncio=on_asyncio)
        if sim.violations:
            return Found(count, sim.violations[0], tell(sim))
        if count >= limit:
            break
    return Found(count)


def explore_seeds(work: Scenario, seeds: range, version: str = "1.1.0") -> Found:
    """Run a schedule for each seed, until one violates something."""
    for count, seed in enumerate(seeds, 1):
        sim = run(work, BySeed(seed), version)
        if sim.violations:
            return Found(count, f"seed {seed}: {sim.violations[0]}", tell(sim))
    return Found(len(seeds))


def tell(sim: Sim) -> str:
    """Return the story of a run, in the order of events."""
    lines, before = [], ""
    for at, who, what in sim.story:
        lines.append(f"{at - 1000:9.4f} {who if who != before else '':>14}  {what}")
        before = who
    return "\n".join(lines)
