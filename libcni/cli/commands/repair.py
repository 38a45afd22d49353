"""libcni repair: print the repairs that this node needs, and make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import libcni
from libcni.cli.failures import NOT_FOUND
from libcni.cli.listing import short_names, whole_names
from libcni.cli.options import CONTAINER, INCLUDE_GO, SKIP_MISSING, Argument
from libcni.cli.render import Fields, Table, note, one_line
from libcni.cli.repair_text import examples, repair_commands, rows_of
from libcni.cli.session import Session
from libcni.config.timeouts import seconds
from libcni.diagnosis import NodeFinding, NodeRepair, repair_node
from libcni.errors import some

ARGUMENTS = (
    Argument("names", nargs="*", metavar="NAME|CONTAINER", complete=CONTAINER.complete,
        help="Repair only these findings (NAME) or containers (ID[:IFNAME])."),
    Argument("--yes", "-y", action="store_true", help="Make the repairs. Without --yes, only print the plan."),
    Argument("--interrupt", nargs="+", default=(), metavar="ID[:IFNAME]",
        help="Also make the repairs that interrupt these containers; all: any container."),
    Argument("--check", action="store_true", help="Also run CHECK of each attachment."),
    Argument("--pending-after", type=seconds, default=300.0, metavar="SECONDS",
        help="The age from which an unfinished ADD, or a reservation without a record, counts as abandoned."),
    INCLUDE_GO, SKIP_MISSING,
)  # fmt: skip

_NEEDED_CHECKS = {"records", "namespaces", "rules"}
"""The checks that find out which containers live. Objects that these checks cannot see are not repaired."""


def repair(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    names: list[str],
    yes: bool,
    interrupt: list[str],
    check: bool,
    pending_after: float,
    include_go: bool,
    skip_missing: bool,
) -> None:
    """Repair this node.

    Prints the plan. --yes makes the repairs that interrupt no container; --interrupt adds those that interrupt the
    named containers. Each repair is made only if the node still needs it. All stop if another container loses anything.
    The exit code is 1 if a repair failed or if errors are left, and 4 if NAME is neither a finding nor a container.
    Attachments of other owners are detached or reloaded only with their --owner, those of Go libcni only with
    --include-go; or if they are named.

    Example:
      libcni repair --yes
    """
    cni = session.client()
    names, interrupt = whole_names(cni, names), whole_names(cni, interrupt)
    done = repair_node(
        cni, dry_run=not yes, interrupt=interrupt, only=names, include_go=include_go,
        pending_after=pending_after, run_check=check, policy=libcni.DelPolicy(skip_missing=skip_missing),
    )  # fmt: skip
    options = [
        *short_names(cni, names),
        *(["--check"] * check),
        *(["--include-go"] * include_go),
        *(["--skip-missing"] * skip_missing),
    ]
    options += ["--pending-after", f"{pending_after:g}"] if pending_after != 300.0 else []  # noqa: PLR2004 - the default
    commands = repair_commands(session, done, options, interrupt)
    outcomes = [{**asdict(outcome), "mend": asdict(outcome.mend)} for outcome in done.outcomes]
    data = {"status": done.report.status, "outcomes": outcomes, "stopped": done.stopped, "commands": commands}
    unseen = [
        one for one in done.report.not_checked
        if one.check in _NEEDED_CHECKS or "nobody knows" in one.reason or one.is_bug
    ]  # fmt: skip
    # "nothing to repair" must not include objects that this program cannot see.
    empty = "nothing to repair" + (" among the checked objects" if unseen else "")
    columns = ("state", "repair", "finding", "why")
    session.show(data, Table(columns, rows_of(done.outcomes), empty=empty))
    for one, more in examples((one.check, one) for one in unseen):
        what = f"{more} more of the check {one.check}" if more else f"{one.subject}: {one.reason}"
        note(f"not checked, so not repaired: {what}")
    young = [finding.subject for finding in done.report.findings if "(--pending-after)" in finding.remedy]
    if young:
        note(f"not repaired, because younger than {pending_after:g} s (--pending-after): {some(young)}")
    unknown = _unknown(cni, {*names, *interrupt} - {"all"}, done)
    for name in unknown:
        note(f"no finding and no container is named {name}")
    if yes and done.report.findings:
        left = [(finding.severity, one_line(f"{finding.subject}: {finding.seen}")) for finding in done.report.findings]
        session.show_text("", Fields("Findings that are left (libcni doctor explains them):", left))
    if commands:
        session.show_text("\nThis repairs more:" if yes else "\nNothing was changed. To carry it out:")
        session.show_text(*(f"  {command}" for command in commands))
    if done.stopped:
        raise libcni.CNIError(f"the repair was stopped: {done.stopped}")
    if any(outcome.state == "failed" for outcome in done.outcomes) or (yes and done.report.status == "error"):
        raise SystemExit(1)
    if unknown.intersection(names):  # one of --interrupt may have ended since its command was printed
        raise SystemExit(NOT_FOUND)


def _unknown(cni: libcni.CNIConfig, names: Iterable[str], done: NodeRepair) -> set[str]:
    """Return the names of no known finding or container: a misspelt name must not look like a name without faults."""
    containers = [
        *(name for outcome in done.outcomes for name in outcome.mend.containers),
        *(name for finding in done.report.findings for name in finding.containers),
        *(
            f"{attachment.container_id}:{attachment.ifname}"
            for attachment in (cni.get_cached_attachments() if names else ())
        ),
    ]
    return {*names} - NodeFinding.NAMES - {part for name in containers for part in (name, name.partition(":")[0])}
