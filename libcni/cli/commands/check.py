"""libcni check: check an attachment, a container, or all attachments."""

from __future__ import annotations

import os

import libcni
from libcni.cli.failures import UsageError
from libcni.cli.inputs import Target
from libcni.cli.listing import find_attachments, identity_data, identity_row, named_attachments, recorded_container
from libcni.cli.options import OPTIONAL_TARGET, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    *OPTIONAL_TARGET,
    Argument("--all", dest="every", action="store_true", help="Check all recorded attachments."),
)  # fmt: skip


def check(session: Session, target: Target, every: bool) -> None:
    """Check an attachment.

    Uses the configuration that its ADD used. Prints nothing if the attachment is in order. With --container ID alone:
    all attachments of the container, by its records.

    Example:
      libcni check -c web
    """
    if every and (target.network or target.container):
        raise UsageError("--all contradicts NETWORK and --container")
    if every or (target.container and not target.network):
        _check_recorded(session, target.container or "", target.ifname)
    elif target.network and (target.netns or target.container):
        cni, net = session.client(), target.net()
        if target.container:
            container: str | None = recorded_container(cni, target.container)
        else:
            name = net if isinstance(net, str) else net.name
            container = _container_in(cni, name, target.netns or "", target.ifname or "eth0")
        rt = target._replace(netns=target.netns or None, container=container).conf()
        try:
            cni.check_network_list(net, rt)
        except libcni.NamespaceMismatchError as error:
            # The usual hint is for DEL.
            error.hint = f"in its recorded namespace: libcni check -c {error.container_id} -i {error.ifname}"
            raise
    else:
        raise UsageError("give NETWORK and NETNS, or --container ID, or --all")


def _container_in(cni: libcni.CNIConfig, network: str, netns: str, ifname: str) -> str | None:
    """Return the container that is recorded with this namespace, or None."""
    recorded = [one for one in find_attachments(cni, "", network=network, ifname=ifname) if _is_same(one.netns, netns)]
    # A container that was restarted at the same path may have left a record.
    found = sorted({one.container_id for one in recorded if one.state == "ready" or len(recorded) == 1})
    if len(found) > 1:
        raise UsageError(f"{len(found)} containers are recorded with {netns}: {', '.join(found)}; give --container ID")
    return found[0] if found else None


def _is_same(recorded: str, given: str) -> bool:
    try:
        return os.path.samefile(recorded, given)
    except OSError:
        return recorded == os.path.abspath(given)


def _check_recorded(session: Session, container: str, ifname: str) -> None:
    cni = session.client()
    named = f"{container}:{ifname}"
    found = named_attachments(cni, named, whole=False) if container else find_attachments(cni, "", ifname=ifname)
    errors: list[libcni.CNIError] = []
    states = [_checked(cni, one, errors) for one in found]
    rows = [[*identity_row(one), state] for one, state in zip(found, states, strict=True)]
    data = [{**identity_data(one), "check": state} for one, state in zip(found, states, strict=True)]
    if not container or session.output != "text":
        session.show(data, Table(("container", "network", "interface", "check"), rows, empty="no attachments"))
    if errors:
        # A single error keeps its own exit code and fields.
        raise errors[0] if len(errors) == 1 else libcni.CNIErrorGroup(f"{len(errors)} attachments failed", errors)


def _checked(cni: libcni.CNIConfig, one: libcni.Attachment, errors: list[libcni.CNIError]) -> str:
    if not one.network:
        errors.append(libcni.RecordError(f"{one.path}: {one.problem or 'the record does not name its attachment'}"))
        return "failed"
    try:
        cni.check_network_list(one.network, libcni.RuntimeConf(one.container_id, None, one.ifname))
    except libcni.VersionError:
        # The version of the network has no CHECK. That is no failure, and no success either.
        return "not asked"
    except libcni.CNIError as error:
        errors.append(error)
        return "failed"
    return "ok"
