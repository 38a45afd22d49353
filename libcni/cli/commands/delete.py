"""libcni del: detach a container from one network, or from all its networks."""

from __future__ import annotations

import sys

import libcni
from libcni.cli.failures import UsageError
from libcni.cli.inputs import Target
from libcni.cli.listing import corrupt_error, find_attachments, whole_id_hint
from libcni.cli.options import OPTIONAL_TARGET, SKIP_MISSING, Argument
from libcni.cli.session import Session
from libcni.cli.stale import note_left

ARGUMENTS = (
    *OPTIONAL_TARGET,
    Argument("--keep-going", action="store_true", help="Go on after a plugin that fails."),
    Argument("--use-given", action="store_true",
        help="Use the given configuration and namespace, and remove the interface whoever made it."),
    SKIP_MISSING,
)  # fmt: skip


def delete(session: Session, target: Target, keep_going: bool, use_given: bool, skip_missing: bool) -> None:
    """Detach a container from a network.

    With --container ID alone: from all networks that it is attached to, by its records. Without a record: del fails
    if the interface exists, unless --use-given; an empty NETNS ("") says that the namespace no longer exists.

    Example:
      libcni del -c web
    """
    policy = libcni.DelPolicy(
        use_given=use_given, refuse_unrecorded=True, keep_going=keep_going, skip_missing=skip_missing
    )
    if target.network and (target.netns or target.container):
        note_left(session, session.client().del_network_list(target.net(), target.conf(), policy=policy))
    elif use_given:
        raise UsageError("--use-given needs NETWORK: the configuration to use")
    elif target.container:
        _from_records(session, target.container, target.ifname, policy)
    else:
        raise UsageError("give NETWORK and NETNS, or --container ID")


def _from_records(session: Session, container: str, ifname: str, policy: libcni.DelPolicy) -> None:
    cni = session.client()
    found = find_attachments(cni, container, ifname=ifname)
    if not found:
        if (corrupt := corrupt_error(cni, container, ifname)) is not None:
            raise corrupt
        # DEL of something that is not attached is no error (spec, section 2, DEL), so a script can repeat it.
        about = f", interface {ifname}" if ifname else ""
        hint = f"; {text}" if (text := whole_id_hint(cni, container)) else ""
        print(f"note: nothing to do: there is no record of container {container}{about}{hint}", file=sys.stderr)
        return

    # In reverse order of the file names, and all of them: one that fails must not keep the others attached.
    found = found[::-1]
    failed: libcni.CNIErrorGroup | None = None
    try:
        outcomes: list[libcni.DelReport | libcni.CNIError] = [*cni.del_attachments(found, policy=policy)]
    except libcni.CNIErrorGroup as group:
        outcomes, failed = group.report, group
    for one, outcome in zip(found, outcomes, strict=True):
        if not isinstance(outcome, libcni.CNIError):
            session.show_text(f"detached {one.container_id} {one.ifname} from {one.network}")
            note_left(session, outcome)
    if failed is not None:
        raise failed
