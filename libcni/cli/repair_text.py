"""Text about a repair: what each mend changes, and the commands that carry it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from libcni import Hint
from libcni._dataclass import replace
from libcni._defaults import TIMEOUT
from libcni.cli.listing import short_names
from libcni.cli.render import one_line
from libcni.cli.session import Session
from libcni.diagnosis import Mend, MendOutcome, NodeRepair
from libcni.errors import some

_WORDS = {
    "mount": "mount the namespace of {containers} at {target} again",
    "reserve": "reserve {details} for {containers} in {target}",
    "forward": "write 1 to {target}",
    "set-up": "set {target} up{inside}",
    "join": "put {target} on bridge {details}",
    "remove-address": "remove {details} from {target}{inside}",
    "add-address": "add {details} to {target}{inside}",
    "add-route": "add the route to {details} over {target}{inside}",
    "add-rules": "create the missing rules of {containers} again: {details}",
    "remove-rules": "remove the rules of {containers} for {details}",
    "reload": "attach {containers} again: DEL and ADD",
    "set-aside": "move {target} aside",
    "release": "release {details} in {target}",
    "detach": "detach {containers}",
}
_SHOWN, _NAMED = 3, 12
T = TypeVar("T")


def repair_commands(
    session: Session, plan: NodeRepair, options: Iterable[str] = (), interrupt: Iterable[str] = ()
) -> list[str]:
    """Return at most two commands: a command that interrupts nobody, and a command that interrupts containers."""
    needs = [dict(outcome.needs) for outcome in plan.outcomes if outcome.state in {"planned", "left"}]
    all_needs = [need for outcome in plan.outcomes if outcome.state in {"planned", "left"} for need in outcome.needs]
    # One mend can interrupt many: without one of them the command would do nothing.
    names = [*interrupt, *sorted(name for option, name in all_needs if option == "interrupt")]
    names = short_names(session.client(), dict.fromkeys(names)) if "all" not in names else ["all"]
    common = ["--yes", *options, *(["--timeout", f"{session.timeout:g}"] if session.timeout != TIMEOUT else [])]
    commands = []
    for matching, more in (
        ([need for need in needs if "interrupt" not in need], []),
        (needs if names else [], ["--interrupt", *(names if len(names) <= _NAMED else ["all"])]),
    ):
        owners = [need.get("owner", session.owner) for need in matching]
        owner = session.owner if session.owner in owners else max(owners, key=owners.count, default="")
        words = [word for word in common if word != "--include-go"]
        # Records of Go have no owner: a command is for them, or for an owner.
        if not owner and (words != common or any("include_go" in need for need in matching)):
            words.append("--include-go")
        if matching:
            commands.append(replace(session, owner=owner).hint_command(Hint("", "repair", options=(*words, *more))))
    return commands


def words_of(mend: Mend) -> str:
    """Return the description of a mend (a change by ``libcni repair``) as text."""
    interrupts = f" (interrupts {some(mend.interrupts)})" if mend.interrupts else ""
    text = _WORDS[mend.kind].format(
        target=mend.target, details=some(mend.details), containers=some(mend.containers),
        inside=f" in {mend.netns}" if mend.netns else "",
    )  # fmt: skip
    return text + interrupts


def summary(mends: Iterable[Mend]) -> list[str]:
    """Return descriptions of mends: of the first ones of each kind, and the number of the others."""
    by_kind = examples((mend.kind, mend) for mend in mends)
    return [f"{mend.kind}: {more} more" if more else one_line(words_of(mend)) for mend, more in by_kind]


def rows_of(outcomes: Sequence[MendOutcome]) -> list[list[str]]:
    """Return table rows (state, mend, finding, why): for each cause the first mends, and the number of the others."""
    causes = (
        (outcome.state, outcome.mend.kind, outcome.finding, outcome.reason, *dict(outcome.needs))
        for outcome in outcomes
    )
    return [
        [outcome.state, f"{outcome.mend.kind}: {more} more", outcome.finding, ""]
        if more
        else [outcome.state, one_line(words_of(outcome.mend)), outcome.finding, why(outcome)]
        for outcome, more in examples(zip(causes, outcomes, strict=True))
    ]


def examples(pairs: Iterable[tuple[object, T]]) -> Iterator[tuple[T, int]]:
    """Yield (value, 0) for the first values of each key, then once (value, number of all further values)."""
    groups: dict[object, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    for alike in groups.values():
        yield from ((value, 0) for value in alike[:_SHOWN])
        yield from ((value, len(alike) - _SHOWN) for value in alike[_SHOWN : _SHOWN + 1])


def why(outcome: MendOutcome) -> str:
    """Return why a mend failed, or why it was not carried out."""
    words = {
        "interrupt": "it interrupts {}",
        "include_go": "a record of Go libcni (--include-go)",
        "owner": "of another owner (--owner {!r})",
    }
    return outcome.reason or ", ".join(words[option].format(value) for option, value in outcome.needs)
