"""The path of a namespace that a verb gives to the plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import RecordError
from libcni.store.model import Record, is_namespace_unknown
from libcni.store.place import Place, same_namespace
from libcni.store.present_interfaces import path_for_plugins
from libcni.store.recorded_interface import place_of
from libcni.verbs.claim import mismatch
from libcni.verbs.verb_run import VerbRun


def checked_conf(rt: RuntimeConf) -> RuntimeConf:
    """Check an attachment's parameters, and return them with a path of the namespace that plugins can resolve.

    Raises:
        InvalidIdentifierError: a name breaks its rule.
    """
    rt.check()
    return rt.with_netns(path_for_plugins(rt.netns)) if rt.netns else rt


def path_to_use(run: VerbRun, record: Record, netns: str | None, *, use_given: bool = False) -> str:
    """Return the path of the namespace for DEL and CHECK, or "" for no namespace.

    The recorded path is used if it leads to the recorded namespace, even if the caller gives another path to it.

    Args:
        run: examines the namespaces.
        record: the attachment's record.
        netns: the path that the caller gives; None: the recorded path.
        use_given: whether the caller's path, if any, replaces the recorded one.

    Raises:
        NamespaceMismatchError: the caller's namespace is not the recorded namespace, and both exist.
        RecordError: the record names no namespace, and neither does the caller.
    """
    if netns is not None and (use_given or is_namespace_unknown(record)):
        return netns
    if is_namespace_unknown(record):
        raise RecordError(
            f"{record.path}: Go libcni recorded no namespace, so it is unknown whether the container still exists",
            path=record.path,
            missing="namespace",
            hint='give the namespace\'s path, or "" if the namespace no longer exists',
        )
    if netns is None or netns == record.netns:
        return record.netns
    at_recorded = run.sight.namespace(record.netns)
    recorded_path, given_path = _recorded_path(run, record, at_recorded), _given_path(run, record, at_recorded, netns)
    if recorded_path == "gone" and given_path != "the same" and run.sight.reach(record):
        recorded_path = "its own"  # another path leads to it: DEL finds that path (``Claim.prepare_del``)
    path = _PATHS[recorded_path, given_path]
    if path == "refuse":
        problem = f"the container was attached in the namespace {record.netns}, but {netns} is another namespace"
        raise mismatch(record, problem, netns)
    return {"recorded": record.netns, "given": netns, "none": ""}[path]


_RecordedPath = Literal["its own", "any", "a mistake", "gone"]
_GivenPath = Literal["nothing", "the same", "another"]

_PATHS: Mapping[tuple[_RecordedPath, _GivenPath], Literal["recorded", "given", "none", "refuse"]] = {
    # "" as well is nothing: with it the plugins would free the address of an interface that still exists.
    ("its own", "nothing"): "recorded",
    ("its own", "the same"): "recorded",
    ("its own", "another"): "refuse",
    ("any", "nothing"): "given",
    ("any", "the same"): "recorded",
    ("any", "another"): "refuse",
    # An ADD with a wrong path created nothing there, and must not prevent the ADD with the right path.
    ("a mistake", "nothing"): "recorded",
    ("a mistake", "the same"): "recorded",
    ("a mistake", "another"): "none",
    ("gone", "nothing"): "given",
    ("gone", "the same"): "given",
    ("gone", "another"): "none",
}
"""The path that DEL and CHECK use if the caller's path is not the recorded path."""


def _recorded_path(run: VerbRun, record: Record, seen: Place) -> _RecordedPath:
    """Return whether the recorded path leads to the recorded namespace; ``any``: the record does not identify it."""
    recorded = place_of(record)
    if not seen.exists or not same_namespace(recorded, seen):
        return "gone"
    if not record.is_complete and run.sight.is_no_namespace(record.netns):
        return "a mistake"
    return "its own" if recorded.is_identified or recorded.mac else "any"


def _given_path(run: VerbRun, record: Record, at_recorded: Place, netns: str) -> _GivenPath:
    """Return whether the caller's path leads to the recorded namespace."""
    recorded, given = place_of(record), run.sight.namespace(netns)
    if not given.exists:
        return "nothing"
    return "the same" if same_namespace(recorded if recorded.is_identified else at_recorded, given) else "another"


def check_own_netns(run: VerbRun, record: Record, path: str) -> None:
    """Raise NamespaceMismatchError if an ADD with ``allow_own_netns`` was in another namespace, which may still exist.

    The plugins would free the address of an interface that they cannot reach.
    """
    if same_namespace(place_of(record), run.sight.namespace(path)):
        return
    from libcni.store.life_of_record import life_of  # few attachments need it

    if not life_of(record).is_dead:
        problem = "the ADD attached its program's own network namespace, but this program is in another one"
        raise mismatch(record, problem, path, "repeat the command in that namespace, for example with nsenter")
