"""Races of verbs, neighbours and accidents, each explored with every order; and mixtures of them by seed.

A step is a method of ``Stage`` with its arguments, in words: ``"add A bw"``. A letter of a network is a plugin of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

from libcni.engines.oci.hook import Hook
from libcni.engines.oci.pins import OWNER
from libcni.options import DelPolicy
from sim import seam
from sim.schedule import Choices, Sim, Violation, one_deviation, shrink
from sim.stage import Stage
from sim.world import NEIGHBOUR


@dataclass(frozen=True)
class Race:
    """What races with what.

    Attributes:
        runs: processes, each with its steps.
        events: what others do meanwhile. The first process is the victim.
        before, after: steps, one by one, before and after the race.
        is_restarted: after the race the runtimes start again, and believe the records that are ready.
        starts_ahead: whether plugins are started before their turn.
        keeps_files: whether IPAM keeps a file for each address, as host-local does.
    """

    runs: tuple[str, ...]
    events: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    is_restarted: bool = False
    starts_ahead: bool = False
    keeps_files: bool = False

    @property
    def verbs(self) -> set[str]:
        """The first words of the steps that are taken before the race and in it."""
        steps = [step for steps in (self.before, *self.runs) for step in steps.split("; ") if step]
        return {step.split()[0].rpartition("/")[2] for step in steps}

    @property
    def version(self) -> str:
        """The cniVersion of the networks. Before 1.1.0 plugins have no GC of their own, which hides leaks."""
        return "1.1.0" if self.verbs & {"gc", "sweep"} else "1.0.0"

    def __call__(self, stage: Stage) -> None:
        """Run it."""
        stage.starts_ahead, stage.world.keeps_files = self.starts_ahead, self.keeps_files
        stage.do(self.before, alone=True)
        for number, steps in enumerate(self.runs, 1):
            stage.run(f"{steps.split()[0]}{number}", steps)
        for event in self.events:
            stage.event(event)
        stage.sim.run(explore=True)
        stage.do(self.after, alone=True)
        stage.has_restarted = self.is_restarted


SCENARIOS: dict[str, Race] = {
    # Neighbours: what is not ours is not touched.
    "namespace_replaced_during_del": Race(("delete A bs",), ("replace_namespace A",), before="add A bs"),
    "interface_replaced_during_del": Race(("delete A bs",), ("replace_interface A",), before="add A bs"),
    "interface_replaced_while_add_fails": Race(("add A bf",), ("replace_interface A",)),
    # In the first plugin nobody could know which interface it made.
    "interface_replaced_after_a_kill": Race(("add A bs",), ("kill plugins slow", "replace_interface A")),
    "interface_made_during_add": Race(("add A b",), ("make_interface A",)),
    "namespace_replaced_during_replace": Race(
        ("replace A b",), ("replace_namespace A",), before="add A b", is_restarted=True
    ),
    "interface_replaced_before_a_plugin_started_ahead": Race(
        ("delete A bs",), ("replace_interface A",), before="add A bs", starts_ahead=True
    ),
    "interface_of_a_record_of_go_replaced": Race(("delete A b",), before="go_runtime A b; replace_interface A"),
    "renamed_before_del": Race(("delete A b", "add B b"), ("rename A",), before="add A b"),
    "restarted_in_a_new_namespace": Race(("add A b",), before="add A b; restart A", after="succeeded"),
    "address_given_away_before_del_is_repeated": Race(
        ("delete A bw",), ("kill plugins",), before="add A bw", after="add B bw"
    ),
    # Races of verbs.
    "two_adds": Race(("add A bw", "add A bw")),
    "add_and_del": Race(("add A bw", "delete A bw"), is_restarted=True),
    "add_and_gc": Race(("add A bw", "gc bw A B"), before="add B bw"),
    "add_of_another_owner_and_gc": Race(("add A bw another", "gc bw"), before="add B b"),
    "taken_over_during_gc": Race(("gc bw", "take_over A bw another"), before="add A bw; lose A"),
    "add_and_repair": Race(("add A bw", "repair")),
    "del_and_check": Race(("check A bw", "delete A bw"), before="add A bw"),
    "forgotten_during_del_and_add": Race(("forget A", "delete A b; add A b"), before="add A b"),
    "gc_and_the_add_of_a_half_done_container": Race(
        ("gc bws A", "add A bws"), before="killed_add A bws slow; edit", is_restarted=True
    ),
    "go_beside_gc": Race(("gc b A B",), ("go_runtime A b",), before="add B b"),
    # The manager.
    "set_up_and_sweep": Race(("sweep", "set_up A b bw"), before="set_up B b"),
    "set_up_and_tear_down": Race(("set_up A b bw", "tear_down A")),
    "sweep_and_del": Race(("sweep", "delete A b; add A b"), before="add A b; lose A", is_restarted=True),
    "killed_set_up": Race(("set_up A b bws",), ("kill",), after="tear_down A; set_up A b bws; succeeded"),
    "failing_set_up_and_a_neighbour": Race(("set_up A b bf",), ("replace_interface A",)),
    # Managers of two owners on one network.
    "a_sweep_and_a_set_up_of_another_owner": Race(("one/sweep", "two/set_up A b bw"), before="one/set_up B b"),
    "sweeps_of_two_owners": Race(("one/sweep", "two/sweep"), before="one/set_up A bw; two/set_up B bw; lose A"),
    "a_sweep_and_a_reload_of_another_owner": Race(
        ("one/sweep", "two/reload_all"), before="one/set_up A bw; two/set_up B bw; lose A"
    ),
    "the_hook_and_a_manager": Race(("stop A", "one/sweep"), before="start A bw; one/set_up B bw"),
    # An ADD that is tried twice.
    "a_second_try_and_del": Race(("add A bu", "delete A bu"), is_restarted=True),
    "a_second_try_and_gc": Race(("add A bu", "gc bu A B"), before="add B b"),
    "a_second_try_and_another_add": Race(("add A bu", "add A b"), is_restarted=True),
    "namespace_replaced_before_the_second_try": Race(("add A bu",), ("replace_namespace A",)),
    "interface_made_before_the_second_try": Race(("add A bu",), ("make_interface A",)),
    "killed_second_try": Race(("add A bu",), ("kill",), after="add_again A bu; succeeded"),
    "power_cut_before_the_second_try": Race(("add A bu",), ("power_cut",), before="add B b"),
    "full_disk_before_the_second_try": Race(("add A bu",), ("fill_disk",)),
    # Reload, and what is composed of verbs.
    "namespace_replaced_during_add": Race(("add A bt",), ("replace_namespace A",)),
    "interface_replaced_during_add": Race(("add A bt",), ("replace_interface A",)),
    "namespace_replaced_during_set_up": Race(("set_up A bs bw",), ("replace_namespace A",)),
    "namespace_replaced_during_reload": Race(
        ("reload A",), (f"replace_namespace A {NEIGHBOUR} empty",), before="add A bs"
    ),
    "interface_made_during_reload": Race(("reload A",), ("replace_interface A",), before="add A bs"),
    "reload_of_all_beside_a_record_of_go": Race(("reload_all",), before="add B b; go_runtime A b", after="gc b B"),
    "reload_and_del": Race(("reload A", "delete A bw"), before="add A bw"),
    "reload_and_gc": Race(("reload A", "gc bw"), before="add A bw; lose A"),
    "reload_and_gc_of_the_living": Race(("reload A", "gc bw A"), before="add A bw"),
    "reload_and_repair": Race(("reload A", "repair"), before="add A bw"),
    "two_reloads": Race(("reload A", "reload A"), before="add A bw"),
    "reload_and_another_network": Race(("reload A", "delete A b; add A bw"), before="add A b"),
    "reload_and_take_over": Race(("reload A", "take_over A bw another"), before="add A bw"),
    "killed_reload": Race(
        ("reload A",), ("kill",), before="add A bws", after="is_on_record A; reload A; succeeded reload"
    ),
    "killed_reload_and_its_plugins": Race(
        ("reload A",), ("kill plugins",), before="add A bws", after="is_on_record A; reload A; succeeded reload"
    ),
    "killed_reload_and_del": Race(("reload A",), ("kill plugins",), before="add A bws", after="delete A bws"),
    "power_cut_during_reload": Race(("reload A",), ("power_cut",), before="add A bw"),
    "full_disk_during_reload": Race(
        ("reload A",), ("fill_disk",), before="add A bws", after="is_on_record A; reload A; succeeded reload"
    ),
    "address_given_away_before_the_second_reload": Race(
        ("reload A",), before="add A b; reload A; give_away A", after="succeeded"
    ),
    "plugin_missing_in_a_set_up": Race(("set_up A b m",), after="nothing_ran"),
    "stopped_during_reload": Race(("reload A", "stop A"), before="start A bw", after="succeeded stop"),
    # The OCI hook.
    "started_and_stopped": Race(("start A b bw", "stop A")),
    "stopped_and_started": Race(("stop A", "start A bw"), before="start A bw"),
    "started_during_collect": Race(("collect", "stop A; start A bw"), before="start A bw"),
    "collected_and_started": Race(("collect", "start A bw"), before="start A bw; end A"),
    "killed_start": Race(("start A bws",), ("kill",), after="end A; start A bws; succeeded"),
    "killed_stop": Race(("stop A",), ("kill plugins",), before="start A bws", after="end A; start A bws; succeeded"),
    "ended_during_start": Race(("start A bw", "collect"), ("end A",)),
    "unpinned_during_stop": Race(("stop A",), ("unpin A",), before="start A bws"),
    "full_disk_during_stop": Race(("stop A", "start A bw"), ("fill_disk",), before="start A bw"),
    "interface_replaced_during_stop": Race(("stop A",), ("replace_interface A",), before="start A bs"),
    "power_cut_during_start": Race(("start A bw",), ("power_cut",), before="start B bw", after="start A bw; succeeded"),
    # The proof of life: who holds a namespace whose path is lost.
    **{
        f"{first}_then_{second}{with_handles}": Race(
            ("judge A",),
            (f"hand_over A {first} {second}",),
            before=f"{with_handles and 'handles; '}add A b; age; remember A; hold A {first}; lose_path A",
            after="judged A alive unknown; judge A; judged A alive; forget_all",
        )
        for first, second in (
            ("process", "mount"),
            ("mount", "thread"),
            ("thread", "descriptor"),
            ("descriptor", "process"),
        )
        for with_handles in ("", "_with_handles")
    },
    "a_holder_that_moves": Race(
        ("judge A",),
        ("moves A",),
        before="add A b; age; remember A; hold A process; lose_path A",
        after="judge A; judged A alive; forget_all",
    ),
    "nothing_but_a_socket": Race(
        ("judge A",),
        ("hand_over A process socket",),
        before="handles; add A b; age; remember A; hold A process; lose_path A",
        after="judge A; judged A alive; forget_all",
    ),
    **{
        f"ended_while_judged{with_handles}": Race(
            ("judge A",),
            ("ends A process",),
            before=f"{with_handles and 'handles; '}add A b; age; remember A; hold A process; lose_path A",
            after="judge A; judged A dead; forget_all",
        )
        for with_handles in ("", "_with_handles")
    },
    "young_and_without_a_sign": Race(
        ("judge A",),
        before="add A b; remember A; lose_path A",
        after="judged A unknown; age; judge A; judged A dead; forget_all",
    ),
    "a_user_with_the_address_of_the_dead": Race(
        ("judge A address",),
        ("user_takes A",),
        before="add A b; remember A; lose_path A",
        after="judged A dead; judge A address; judged A dead; forget_all",
    ),
    "a_user_with_the_address_of_the_living": Race(
        ("judge A address", "judge A"),
        ("user_takes A",),
        before="add A b; age; remember A",
        after="judged A alive; forget_all",
    ),
    # Kills, power cuts, full disks.
    "killed_add_and_an_orphan": Race(("add A bws", "delete A bws; gc bws"), ("kill",), is_restarted=True),
    "killed_add_and_a_plugin_started_ahead": Race(
        ("add A bws", "delete A bws; gc bws"), ("kill",), is_restarted=True, starts_ahead=True
    ),
    "killed_del_and_an_orphan": Race(("delete A bws", "add A bws"), ("kill",), before="add A bws", is_restarted=True),
    "killed_add": Race(("add A bws",), ("kill",), after="add_again A bws; succeeded"),
    "cancelled_add": Race(("add A bws",), ("cancel",), after="add_again A bws; succeeded"),
    "killed_del": Race(("delete A bws",), ("kill plugins",), before="add A bws; edit", after="delete A bws; succeeded"),
    "power_cut_during_add": Race(("add A bw",), ("power_cut",), before="add B bw"),
    "power_cut_during_a_failing_add": Race(("add A bf",), ("power_cut",)),
    "power_cut_during_del": Race(("delete A bw",), ("power_cut",), before="add B bw; add A bw"),
    "full_disk_during_add": Race(("add A bws",), ("fill_disk",)),
    "full_disk_during_del": Race(("delete A bws",), ("fill_disk",), before="add A bws"),
    "plugin_killed": Race(("add A bws",), ("kill_plugin ADD",)),
    "plugin_killed_in_a_roll_back": Race(("add A bf",), ("kill_plugin DEL",)),
    "a_long_pause": Race(("add A bws", "delete A bws"), ("pause",), is_restarted=True),
}


def mixture(seed: int) -> Race:
    """Return a race of verbs, kills, power cuts and full disks that the seed chooses."""
    pick = random.Random(seed).choice
    network = pick(("bw", "bws", "bf", "bu"))
    one, other = pick(("A", "B")), pick(("A", "B"))
    verbs = [f"{verb} {name} {network}" for verb in ("add", "delete", "replace") for name in (one, other)]
    verbs += [f"gc {network} A B", "repair", f"set_up {one} b {network}", f"tear_down {other}", "sweep"]
    accidents = ["kill", "kill plugins", "kill_plugin ADD", "kill_plugin DEL", "power_cut", "fill_disk"]
    return Race(
        tuple(pick(verbs) for _ in range(pick((2, 3)))),
        tuple(pick(accidents) for _ in range(pick((0, 1, 2)))),
        # CHECK makes the lock file: a DEL that cannot make it goes on without, beside other verbs, as the pages say.
        before="check A b; " + "; ".join(pick((f"add {name} {network}", "")) for name in "AB") + pick(("; edit", "")),
        is_restarted=True,
        starts_ahead=pick((True, False)),
        keeps_files=seed % 2 == 0,
    )


def mixture_of_hooks(seed: int) -> Race:
    """Return a race of two containers of an OCI runtime, a sweep and accidents that the seed chooses."""
    pick = random.Random(seed).choice
    network = pick(("bw", "bws", "bf", "bu"))
    sweeps = ("collect", f"gc {network}", "repair", "collect; collect")
    accidents = ["kill", "kill plugins", "end A", "end B", "unpin A", "kill_plugin ADD", "power_cut", "fill_disk"]
    return Race(
        (*(pick(("stop {0}; start {0} {1}", "stop {0}")).format(name, network) for name in "AB"), pick(sweeps)),
        tuple(pick(accidents) for _ in range(pick((0, 1, 2)))),
        before="check A b" + "".join(pick((f"; start {name} {network}", "")) for name in "AB"),
        keeps_files=seed % 2 == 0,
    )


MIXTURES = {one.__name__: one for one in (mixture, mixture_of_hooks)}


@dataclass
class Found:
    """A schedule that violates something, after how many schedules, and its story."""

    schedules: int
    violation: str = ""
    story: str = ""


def run(race: Race, choices: Choices, version: str = "", *, on_asyncio: bool = False) -> Sim:
    """Run one schedule, with the scenario's version or another one."""
    sim = Sim(choices)
    stage = Stage(sim, "A", "B", version=version or race.version, on_asyncio=on_asyncio)
    managed = partial(stage.manager, policy=DelPolicy(keep_going=True))
    client = patch.object(Hook, "_client", lambda _, timeout: stage.client(OWNER, timeout=timeout))
    with seam.running(sim), client, patch("libcni.engines.oci.hook._manager", managed):
        try:
            race(stage)
            stage.finish()
        except Violation as problem:
            sim.violate(str(problem))
        for actor in list(sim.actors):  # what waits for ever
            actor.kill()
    return sim


def explore(race: Race, *, limit: int = 1_000_000, version: str = "", on_asyncio: bool = False) -> Found:
    """Run every schedule with at most one deviation, until one violates something."""
    count = 0
    for count, choices in enumerate(one_deviation(), 1):
        sim = run(race, choices, version, on_asyncio=on_asyncio)
        if sim.violations:
            return Found(count, sim.violations[0], tell(sim))
        if count >= limit:
            break
    return Found(count)


def explore_seeds(
    race_of: Callable[[int], Race], seeds: range, version: str = "", *, on_asyncio: bool = False
) -> Found:
    """Run a schedule for each seed, until one violates something; its story has only the deviations that it needs."""
    for count, seed in enumerate(seeds, 1):
        again = partial(run, race := race_of(seed), version=version, on_asyncio=on_asyncio)
        choices = Choices(seed=seed)
        if again(choices).violations:
            sim = again(Choices(shrink(choices.plan, lambda plan: bool(again(Choices(plan)).violations))))  # noqa: B023
            return Found(count, f"seed {seed}: {sim.violations[0]}", f"{race}\n{tell(sim)}")
    return Found(len(seeds))


def tell(sim: Sim) -> str:
    """Return the story of a run, in the order of events."""
    lines, before = [], ""
    for at, who, what in sim.story:
        lines.append(f"{at - 1000:9.4f} {who if who != before else '':>14}  {what}")
        before = who
    return "\n".join(lines)
