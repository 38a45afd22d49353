"""Explore from the command line: python -m sim [SCENARIO ...] [--seeds N] [--fault NAME] [--version V]."""

from __future__ import annotations

import argparse
import sys
import time

from sim import faults, seam
from sim.scenarios import MIXTURES, SCENARIOS, explore, explore_seeds


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m sim")
    parser.add_argument("scenarios", nargs="*", help="all by default; mixture and mixture_of_hooks are by seed")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--limit", type=int, default=1_000_000, help="so many schedules of each scenario")
    parser.add_argument("--version", default="", help="cniVersion; before 1.1.0 plugins get no GC")
    parser.add_argument("--fault", choices=sorted(faults.FAULTS), help="put a fault into the library first")
    parser.add_argument("--asyncio", action="store_true", help="the verbs of AsyncCNIConfig")
    parser.add_argument("--faults", action="store_true", help="put in each fault, and print when it is found")
    parser.add_argument("--story", action="store_true")
    options = parser.parse_args()
    violations = 0
    if options.faults:
        with seam.in_place_of_the_system():
            for name in faults.FAULTS:
                sys.stdout.write(f"| {name.replace('-', ' ')} | {faults.find(name).schedules} |\n")
        return
    with seam.in_place_of_the_system(), faults.seeded(options.fault):
        for name in options.scenarios or SCENARIOS:
            began = time.process_time()
            if name in MIXTURES:
                seeds = range(options.first, options.first + options.seeds)
                found = explore_seeds(MIXTURES[name], seeds, options.version)
            else:
                found = explore(
                    SCENARIOS[name],
                    limit=options.limit,
                    version=options.version,
                    on_asyncio=options.asyncio,
                )
            violations += bool(found.violation)
            speed = found.schedules / (time.process_time() - began)
            row = f"{name:45} {found.schedules:6} schedules, {speed:4.0f}/s  {found.violation}"
            sys.stdout.write(f"{row}\n{found.story if options.story else ''}\n".replace("\n\n", "\n"))
            sys.stdout.flush()
    sys.exit(1 if violations else 0)


main()
