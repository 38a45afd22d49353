"""libcni del: detach a container from one network, or from all its networks."""

from __future__ import annotations

import libcni
import libcni.reports
from libcni.cli.failures import UsageError, hint_fields, outcomes_of, raise_errors
from libcni.cli.inputs import Selection, Target
from libcni.cli.listing import select
from libcni.cli.options import RECORDED_OR_TARGET, SKIP_MISSING, Argument
from libcni.cli.render import Verbatim, note, short_ids
from libcni.cli.session import Session

ARGUMENTS = (
    *RECORDED_OR_TARGET,
    Argument("--keep-going", action="store_true", help="If a plugin fails, call the other plugins too."),
    Argument("--use-given", action="store_true",
        help="Use NETNS and the present configuration, not the record; remove the interface, whoever created it."),
    SKIP_MISSING,
)  # fmt: skip


def delete(session: Session, target: Target, keep_going: bool, use_given: bool, skip_missing: bool) -> None:
    """Detach a container.

    Detaches it from all networks in its records; -i and -n select one interface or network. NETWORK and NETNS name one
    attachment, like cnitool. It needs no record: without one, del fails if the interface exists, unless --use-given is
    given. An empty NETNS ("") means that the namespace no longer exists.

    Example:
      libcni del web
    """
    policy = libcni.DelPolicy(
        use_given=use_given, refuse_unrecorded=True, keep_going=keep_going, skip_missing=skip_missing
    )
    selection = target.selection()
    if selection is None:
        if not target.network or not (target.netns or target.container):
            raise UsageError("give CONTAINER, or NETWORK and NETNS")
        report = session.client().del_network_list(target.net(), target.conf(), policy=policy)
        if report.record == "missing":
            # The container may live, and be recorded in another directory.
            ran = ", ".join(plugin.plugin for plugin in report.plugins if plugin.state == "done") or "none"
            what = f"container {target.conf().container_id}, interface {target.conf().ifname}"
            note(
                f"there was no record of {what} in {session.cache_dir}; these plugins ran DEL without it, and freed "
                f"what they knew of the container's addresses, ports and rules: {ran}"
            )
        _note_left(session, report)
    elif not selection.container:
        raise UsageError("give CONTAINER, or NETWORK and NETNS")
    else:
        _from_records(session, selection, policy)


def _from_records(session: Session, selection: Selection, policy: libcni.DelPolicy) -> None:
    cni = session.client()
    try:
        attachments = select(cni, selection)
    except libcni.NotAttachedError as error:
        # DEL of something that is not attached is no error (spec, section 2, DEL), so a script can repeat it.
        about = ["-c", error.container_id, *(["-i", error.ifname] if error.ifname else [])]
        unrecorded = libcni.Hint("", "del", options=(error.network or "NETWORK", "NETNS", *about))
        shown = {"type": "", **hint_fields(error, session)}
        note(
            f"nothing to do: {error.text}", hint=f"{shown['hint']}, or detach the container without a record",
            type=Verbatim("\n".join(filter(None, [shown["type"], session.hint_command(unrecorded)]))),
        )  # fmt: skip
        return
    attachments = attachments[::-1]  # in reverse order of the file names
    outcomes = outcomes_of(lambda: cni.del_attachments(attachments, policy=policy))
    for attachment, outcome in zip(attachments, outcomes, strict=True):
        if not isinstance(outcome, libcni.CNIError):
            _show(session, attachment, outcome)
    raise_errors("DEL", outcomes)


def _show(session: Session, attachment: libcni.Attachment, report: libcni.reports.DelReport) -> None:
    [container] = short_ids([attachment.container_id]).values()
    session.show_text(f"detached {container} {attachment.ifname} from {attachment.network}")
    _note_left(session, report)


def _note_left(session: Session, report: libcni.reports.DelReport) -> None:
    """Print on stderr the rules and reservations that the plugins of a DEL could not remove."""
    for what in report.left:
        note(str(what), type=Verbatim(session.hint_command(libcni.Hint("", "repair", options=("--yes",)))))
