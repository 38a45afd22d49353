"""Find the recorded attachments that a command names, and write them down."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import libcni
import libcni.diagnosis
from libcni.cli.failures import UsageError

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def named_attachments(cni: libcni.CNIConfig, text: str, network: str = "", *, whole: bool) -> list[libcni.Attachment]:
    """Return the recorded attachments that ``ID[:IFNAME]`` names.

    Args:
        cni: the client whose records are searched.
        text: the argument of the command.
        network: only attachments of this network; "" for all.
        whole: refuse the beginning of an ID.

    Raises:
        NotAttachedError: there are none.
        RecordError: there are none, and an unreadable record may be of this container.
        UsageError: the ID is empty, or several IDs begin with it.
    """
    container, _, ifname = text.partition(":")
    if not container:
        # Every ID begins with "", so an empty variable of a script would name the container of the only record.
        raise UsageError("the ID of the container is empty; give one")
    container = container if whole else recorded_container(cni, container)
    found = find_attachments(cni, container, ifname=ifname, network=network)
    if not found:
        if (corrupt := corrupt_error(cni, container, ifname)) is not None:
            raise corrupt
        hint = whole_id_hint(cni, container) or "libcni attachments lists the recorded attachments"
        problem = f"there is no record of {text.rstrip(':')}"
        raise libcni.NotAttachedError(problem, container_id=container, ifname=ifname, hint=hint)
    return found


def whole_id_hint(cni: libcni.CNIConfig, container: str) -> str:
    """Return a hint if recorded IDs begin with ``container``, or ""."""
    longer = [one for one in longer_ids(cni, container) if one != container]
    return f"this needs a whole ID, such as {longer[0]}" if longer else ""


def find_attachments(
    cni: libcni.CNIConfig, container_id: str, *, network: str = "", ifname: str = "", state: str = ""
) -> list[libcni.Attachment]:
    """Return the recorded attachments that have all these values; an empty value means any."""
    return [
        one
        for one in cni.get_cached_attachments(container_id or None)
        if container_id in {"", one.container_id}
        and network in {"", one.network}
        and ifname in {"", one.ifname}
        and state in {"", one.state}
    ]


def corrupt_error(cni: libcni.CNIConfig, container: str, ifname: str) -> libcni.RecordError | None:
    """Return an error if an unreadable record has the container in its file name: then it may be attached."""
    for one in cni.get_cached_attachments(container):
        name = os.path.basename(one.path)
        if one.state == "corrupt" and f"-{container}-{ifname}" in name:
            way_out = "libcni doctor shows how to detach it; libcni repair --yes sets it aside"
            return libcni.RecordError(
                f"{one.path}: it may be the record of container {container}, and is unusable: {one.problem}",
                path=one.path,
                hint="run it as root" if one.is_denied else way_out,
            )
    return None


def note_left_out(cni: libcni.CNIConfig, container: str) -> None:
    """Say on stderr that unreadable records were left out: without this, the answer looks complete."""
    unreadable = [one for one in cni.get_cached_attachments(container or None) if one.state == "corrupt"]
    if unreadable:
        hint = "run it as root" if any(one.is_denied for one in unreadable) else "libcni doctor shows what to do"
        print(f"note: left out {len(unreadable)} of the records, which cannot be read: {hint}", file=sys.stderr)


def identity_row(one: libcni.Attachment) -> list[str]:
    """Return the cells of an attachment's identity: container, network, interface."""
    return [one.container_id or "?", one.network or "?", one.ifname or "?"]


def row(one: libcni.Attachment) -> list[str]:
    """Return the cells of an attachment: its identity, addresses, age, state, owner."""
    return [*identity_row(one), ", ".join(listed_addresses(one)), age_of(one), one.state, one.owner or "-"]


def title_of(one: libcni.Attachment) -> str:
    """Return the identity of an attachment as words."""
    return f"{one.container_id} {one.ifname} on {one.network}"


def listed_addresses(one: libcni.Attachment) -> list[str]:
    """Return an attachment's addresses with prefix lengths, or [] if its result cannot be read."""
    try:
        return [ip.address for ip in one.result.ips] if one.result is not None else []
    except libcni.CNIError:
        return []


def age_of(one: libcni.Attachment) -> str:
    """Return the time since an attachment's ADD began, in one unit, such as ``3h``."""
    age = libcni.diagnosis.attachment_age(one)
    if age is None:
        return ""
    seconds = int(age)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size}{unit}"


def decoded(document: bytes) -> Any:
    """Return a JSON document decoded, or its text: of a corrupt record, or with more digits than Python decodes."""
    try:
        return json.loads(document)
    except ValueError:
        return document.decode(errors="backslashreplace")


def identity_data(one: libcni.Attachment) -> dict[str, Any]:
    """Return the identity of an attachment as plain data."""
    return {"container_id": one.container_id, "network": one.network, "ifname": one.ifname}


def attachment_data(one: libcni.Attachment) -> dict[str, Any]:
    """Return an attachment as plain data."""
    return {
        **identity_data(one),
        "state": one.state,
        "owner": one.owner,
        "addresses": listed_addresses(one),
        "netns": one.netns,
        "created": one.created.isoformat(timespec="seconds") if one.created else None,
        "path": one.path,
        "problem": one.problem,
    }


def recorded_container(cni: libcni.CNIConfig, text: str) -> str:
    """Return the recorded container whose ID is ``text`` or begins with it; ``text`` itself if there is none.

    For commands that only read. If ``web`` has been detached, ``del -c web`` must not detach ``web-2``.

    Raises:
        UsageError: several IDs begin with ``text``.
    """
    try:
        # A whole ID comes first: "web" means the container web, although "web-2" begins with it.
        if not text or any(one.container_id == text for one in cni.get_cached_attachments(text)):
            return text
        matching = longer_ids(cni, text)
    except (libcni.RecordError, libcni.InvalidIdentifierError):
        return text  # the verb itself reports it
    if len(matching) > 1:
        raise UsageError(f"{len(matching)} container IDs begin with {text}: {', '.join(matching)}")
    return matching[0] if matching else text


def longer_ids(cni: libcni.CNIConfig, text: str) -> list[str]:
    """Return the recorded IDs that begin with ``text``, sorted."""
    return sorted({one.container_id for one in cni.get_cached_attachments() if one.container_id.startswith(text)})
