"""Find the recorded attachments that a command names, and convert them to rows and data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

import libcni
import libcni.diagnosis
from libcni.cli.failures import UsageError
from libcni.cli.inputs import CONFIGURATION_ENDINGS, Selection, Target
from libcni.cli.render import SHORT, is_of_engine, note, short_ids
from libcni.cli.session import Session
from libcni.errors import counted

if TYPE_CHECKING:
    from libcni.manager import Item

_UNREADABLE = 'to detach it: libcni del NETWORK NETNS -c ID (NETNS is "" if the namespace no longer exists); for more'
_Listing = Callable[[], list[libcni.Attachment]]
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def select(cni: libcni.CNIConfig, selection: Selection) -> list[libcni.Attachment]:
    """Return the recorded attachments of the container that a selection names: ``ID`` or ``ID:IFNAME``.

    Raises:
        NotAttachedError: no attachment matches.
        RecordError: no attachment matches, and an unreadable record may be of this container.
        InvalidIdentifierError: the ID is invalid, such as the value of an empty variable.
        UsageError: several IDs begin with it, or it is a network's name.
    """
    every = cache(cni.get_cached_attachments)
    selection = resolved(cni, selection, every=every)
    if attachments := find_attachments(cni, selection):
        return attachments
    container, ifname, network = selection.container or "", selection.ifname, selection.network
    if (corrupt := corrupt_error(cni, container, ifname)) is not None:
        raise corrupt
    if container in _network_names(cni.conf_dir):
        listing = f"libcni attachments --network {container}"
        raise UsageError(f"{container} is a network, not a container; its containers: {listing}")
    about = (f", interface {ifname}" if ifname else "") + (f", network {network}" if network else "")
    raise libcni.NotAttachedError(
        f"there is no record of container {container}{about}",
        container_id=container, ifname=ifname, network=network, hint=_meant(cni, container, every),
    )  # fmt: skip


def check_order(session: Session, target: Target, words: Sequence[str]) -> None:
    """Raise UsageError if NETWORK and NETNS are swapped, or are a container and its interface.

    ``words``: the words of the command line, from which the error builds the command that was meant.
    """
    network, netns = target.network, target.netns
    if not netns or "/" in netns:
        return
    command, *others = words
    names = _network_names(session.conf_dir)
    if command in {"check", "del"} and _is_recorded(session.client(), network):
        problem, meant = f"{network} is a container, not a network", [network, "-i", netns]
    # NETNS may be a file in the current directory, and NETWORK the path of a configuration.
    elif netns in names and network not in {*names, "-"} and not network.endswith(CONFIGURATION_ENDINGS):
        problem, meant = "NETWORK and NETNS are swapped", [netns, network]
    else:
        return
    for word in (network, netns):
        others.remove(word)
    raise UsageError(problem, hint=libcni.Hint("", command, options=(*meant, *others)))


def _network_names(conf_dir: str) -> set[str]:
    try:
        return {net.name for net in libcni.read_config_directory(conf_dir).networks}
    except libcni.ConfigError:
        return set()  # a verb that needs the directory reports it; records and a path of a configuration do not


def resolved(
    cni: libcni.CNIConfig, selection: Selection, *, least: int = SHORT, every: _Listing | None = None
) -> Selection:
    """Return a selection with the whole ID of its container, instead of the start of an ID or a pod's name.

    The options are those of ``recorded_container``.

    Raises:
        UsageError: several IDs begin with it.
    """
    if selection.container is None:
        return selection
    text, _, ifname = selection.container.partition(":")
    return Selection(
        recorded_container(cni, text, least=least, every=every), selection.ifname or ifname, selection.network
    )


def _meant(cni: libcni.CNIConfig, container: str, every: _Listing) -> libcni.Hint | None:
    if _is_recorded(cni, container):
        return libcni.Hint("see the container's attachments", "attachments", container_id=container)
    recorded = sorted({attachment.container_id for attachment in every() if attachment.container_id})
    near = [name for name in recorded if name.startswith(container) and is_of_engine(name)]
    # A name with another number is a neighbour, which must not be detached by mistake.
    near = near or [one for one in get_close_matches(container, recorded, 1) if _letters(one) != _letters(container)]
    return libcni.Hint(f"did you mean container {near[0]}? Give its whole ID") if near else None


def _letters(name: str) -> str:
    return "".join(char for char in name if not char.isdigit())


def _is_recorded(cni: libcni.CNIConfig, container: str) -> bool:
    """Return whether a container has a record. Reads only its own: all take 0.6 s if there are 10,000."""
    with suppress(libcni.InvalidIdentifierError):
        return any(one.container_id == container for one in cni.iter_cached_attachments(container))
    return False


def recorded_container(cni: libcni.CNIConfig, text: str, *, least: int = SHORT, every: _Listing | None = None) -> str:
    """Return the ID of the recorded container that ``text`` names; else ``text`` itself.

    ``text`` is an ID, the start of a generated ID, a pod as ``NAMESPACE/NAME`` or ``NAME``, or a namespace's path.
    Names are not completed: the up-arrow key repeats a command, and after c1 has been detached, "libcni del c1" must
    not mean c12.

    Args:
        cni: the client with the records.
        text: a word of the command line.
        least: the number of digits of a generated ID that are needed. Tables show twelve.
        every: lists all attachments, by default ``cni``.

    Raises:
        UsageError: it names several containers.
    """
    try:
        if not text or _is_recorded(cni, text):
            return text
        recorded = (every or cni.get_cached_attachments)()
    except libcni.RecordError:
        return text  # the verb itself reports it
    ids = {attachment.container_id for attachment in recorded}
    found = {one.container_id for one in recorded if text in {one.pod, one.pod.rpartition("/")[2]}}
    if text.startswith("/"):
        found = {one.container_id for one in recorded if one.netns == os.path.abspath(text)}
    if not found and len(text) >= least:
        found = {container for container in ids if container.startswith(text) and is_of_engine(container)}
    if len(found) > 1:
        raise UsageError(f"{text} means {len(found)} containers: {', '.join(sorted(found))}; give more of the ID")
    return found.pop() if found else text


def whole_names(cni: libcni.CNIConfig, names: Iterable[str]) -> list[str]:
    """Return names of the form ``ID[:IFNAME]`` with the whole ID in place of a pod or of the start of an ID."""
    parts = [name.partition(":") for name in names]
    every = cache(cni.get_cached_attachments)
    return [
        # Of the names of findings only "dead" could be the start of an ID.
        "".join([recorded_container(cni, text, least=5 if text == "dead" else 1, every=every), *rest])
        for text, *rest in parts
    ]


def short_names(cni: libcni.CNIConfig, names: Iterable[str]) -> list[str]:
    """Return the shortest form of each attachment ``ID:IFNAME`` that ``whole_names`` accepts, for example a pod."""
    names = list(names)
    if not names:
        return []
    try:
        recorded = [one for one in cni.get_cached_attachments() if one.container_id and one.ifname != "lo"]
    except libcni.RecordError:
        recorded = []  # doctor and repair look at the rest, and say that the records cannot be listed
    pods: dict[str, set[str]] = {}
    interfaces: dict[str, set[str]] = {}
    for attachment in recorded:
        pods.setdefault(attachment.pod, set()).add(attachment.container_id)
        interfaces.setdefault(attachment.container_id, set()).add(attachment.ifname)
    by_id = {container: pod for pod, ids in pods.items() if pod and len(ids) == 1 for container in ids}
    starts = short_ids(interfaces)
    wanted: dict[str, set[str]] = {}
    for name in names:
        container, _, ifname = name.partition(":")
        wanted.setdefault(container, set()).add(ifname)
    return [
        word + ending
        for container, ifnames in wanted.items()
        for word in [by_id.get(container) or starts.get(container, container)]
        # A container is named whole if it has no other interface.
        for ending in (
            [""]
            if "" in ifnames or interfaces.get(container, set()) <= ifnames
            else [f":{one}" for one in sorted(ifnames)]
        )
    ]


def find_attachments(
    cni: libcni.CNIConfig, selection: Selection, *, state: str = "", owner: str = ""
) -> list[libcni.Attachment]:
    """Return the recorded attachments of a selection with a whole ID, in a state, of an owner; "" means any."""
    return [
        attachment
        for attachment in cni.get_cached_attachments(selection.container)
        if selection.container in {None, attachment.container_id}
        and selection.network in {"", attachment.network}
        and selection.ifname in {"", attachment.ifname}
        and state in {"", attachment.state}
        and owner in {"", attachment.owner}
    ]


def corrupt_error(cni: libcni.CNIConfig, container: str, ifname: str) -> libcni.RecordError | None:
    """Return an error if an unreadable record has the container in its file name: the container may be attached."""
    for attachment in cni.get_cached_attachments(container):
        name = os.path.basename(attachment.path)
        if attachment.state == "corrupt" and f"-{container}-{ifname}" in name:
            path, problem = attachment.path, attachment.problem
            return libcni.RecordError(
                f"{path}: this record, perhaps of container {container}, cannot be used: {problem}",
                path=path,
                hint=libcni.Hint("run libcni as root") if attachment.is_denied else libcni.Hint(_UNREADABLE, "doctor"),
            )
    return None


def note_left(count: int, which: str) -> None:
    """Print on stderr how many attachments a command leaves alone, so that the user knows that they exist."""
    if count:
        note(f"{counted(count, 'attachment')} {which} {'is left as it is' if count == 1 else 'are left as they are'}")


def identity_row(attachment: libcni.Attachment | Item) -> list[str]:
    """Return the cells of an attachment's identity: container, network, interface."""
    return [attachment.container_id or "?", attachment.network or "?", attachment.ifname or "?"]


def listed_addresses(attachment: libcni.Attachment) -> list[str]:
    """Return an attachment's addresses with prefix lengths, or [] if its result cannot be read."""
    try:
        return [ip.address for ip in attachment.result.ips] if attachment.result is not None else []
    except libcni.CNIError:
        return []


def age_of(attachment: libcni.Attachment) -> str:
    """Return the time since an attachment's ADD began, in one unit, such as ``3h``."""
    age = libcni.diagnosis.attachment_age(attachment)
    if age is None:
        return ""
    seconds = int(age)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size}{unit}"


def decoded(document: bytes) -> Any:
    """Decode a JSON document; return its text if it is corrupt, or if a number has more digits than Python decodes."""
    try:
        return json.loads(document)
    except ValueError:
        return document.decode(errors="backslashreplace")


def identity_data(attachment: libcni.Attachment | Item) -> dict[str, Any]:
    """Return the identity of an attachment as plain data."""
    return {"container_id": attachment.container_id, "network": attachment.network, "ifname": attachment.ifname}


def attachment_data(attachment: libcni.Attachment) -> dict[str, Any]:
    """Return an attachment as plain data."""
    return {
        **identity_data(attachment),
        "state": attachment.state,
        "owner": attachment.owner,
        "addresses": listed_addresses(attachment),
        "netns": attachment.netns,
        "created": attachment.created.isoformat(timespec="seconds") if attachment.created else None,
        "path": attachment.path,
        "pod": attachment.pod,
        "problem": attachment.problem,
    }
