"""libcni check: check an attachment, a container, or all attachments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import libcni
from libcni.cli.failures import UsageError, raise_errors
from libcni.cli.inputs import Selection, Target
from libcni.cli.listing import find_attachments, identity_data, identity_row, select
from libcni.cli.options import RECORDED_OR_TARGET, Argument
from libcni.cli.render import Table, note
from libcni.cli.session import Session
from libcni.diagnosis import known_fault
from libcni.errors import counted

ARGUMENTS = (
    *RECORDED_OR_TARGET,
    Argument("--all", dest="every", action="store_true", help="Check all recorded attachments."),
)  # fmt: skip


def check(session: Session, target: Target, every: bool) -> None:
    """Check a container.

    Runs CHECK with the recorded configurations. Prints nothing if all attachments are in order. NETWORK and NETNS name
    one attachment, like cnitool. --owner limits --all to the attachments of an owner.

    Example:
      libcni check web
    """
    selection = target.selection()
    if every and (target.network or target.container):
        raise UsageError("give only one of --all, CONTAINER and NETWORK")
    if every:
        _check_recorded(session, Selection(None, target.ifname, target.only))
    elif selection is not None and selection.container:
        _check_recorded(session, selection)
    elif target.network and target.netns:
        try:
            net = target.net()
            if not session.client().check_network_list(net, target.conf()).plugins:
                _note_unasked(net if isinstance(net, str) else net.name, 1)
        except libcni.NamespaceMismatchError as error:
            # The usual hint is for DEL.
            error.hint = libcni.Hint.about(error, "check the container in its recorded namespace", "check")
            raise
        except libcni.PluginError as error:
            if not _note_known_faults([error]):
                raise
    else:
        raise UsageError("give CONTAINER, or NETWORK and NETNS, or --all")


def _check_recorded(session: Session, selection: Selection) -> None:
    cni = session.client()
    is_all = selection.container is None
    attachments = find_attachments(cni, selection, owner=session.owner) if is_all else select(cni, selection)
    outcomes = [(attachment, *_checked(cni, attachment)) for attachment in attachments]
    unasked = Counter(attachment.network for attachment, state, _ in outcomes if state == "not asked")
    for network, count in unasked.items():
        _note_unasked(network, count)
    data = [{**identity_data(attachment), "check": state} for attachment, state, _ in outcomes]
    rows = [[*identity_row(attachment), state] for attachment, state, _ in outcomes]
    table = Table(("container", "network", "interface", "check"), rows, empty="no attachments")
    session.show(data, *([table] if is_all else []))
    _note_known_faults([error for _, _, error in outcomes if error is not None])
    raise_errors("CHECK", [error for _, state, error in outcomes if state == "failed"])


def _note_unasked(network: str, count: int) -> None:
    reason = "its configuration has disableCheck, or its spec version has no CHECK"
    note(f"network {network} was not asked about {counted(count, 'attachment')}: {reason}")


def _note_known_faults(errors: Iterable[libcni.CNIError]) -> bool:
    """Print a note for each known fault of a plugin among the errors; return whether there is one."""
    faults = Counter(filter(None, map(known_fault, errors)))
    for (plugin, meaning), count in faults.items():
        note(f"{counted(count, 'attachment')} may be healthy: CHECK of {plugin} has a known fault: {meaning}")
    return bool(faults)


def _checked(cni: libcni.CNIConfig, attachment: libcni.Attachment) -> tuple[str, libcni.CNIError | None]:
    """Return the outcome of a CHECK in words, and its error."""
    try:
        report = cni.check_attachment(attachment)
    except libcni.VersionError:
        # The network's version has no CHECK, so this is neither a failure nor a success.
        return "not asked", None
    except libcni.CNIError as error:
        return "known fault" if known_fault(error) else "failed", error
    return "ok" if report.plugins else "not asked", None
