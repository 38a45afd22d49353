"""Other programs on the node: their records in the agent's directory, and in directories of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from libcni import Attachment, CNIConfig, CNIError


@dataclass(frozen=True)
class View:
    """All records of the node, sorted by whose they are.

    Attributes:
        own: the agent's attachments by container ID.
        others: container ID to a text that says whose it is.
        shared: attachments of others in the agent's own directory.
        networks: the names of networks that others use.
        torn: records in the agent's directory that cannot be read, so that nobody knows whose they are.
        problems: directories or records of others that cannot be read.
    """

    own: dict[str, list[Attachment]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    shared: list[Attachment] = field(default_factory=list)
    networks: set[str] = field(default_factory=set)
    torn: list[Attachment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def look(cache_dir: str, owner: str, neighbours: Iterable[str]) -> View:
    """Read all records. Nothing is locked or changed.

    Args:
        cache_dir: the agent's directory.
        owner: the agent's owner.
        neighbours: the record directories of other programs.

    Raises:
        RecordError: the agent's own directory cannot be read.
    """
    view = View()
    for one in _records(cache_dir):
        if not one.container_id:
            view.torn.append(one)  # whose it is cannot be said: it is reported, and never touched
        elif one.owner == owner:
            view.own.setdefault(one.container_id, []).append(one)
        else:
            view.shared.append(one)
            _note_other(view, one)
    for directory in neighbours:
        if os.path.realpath(directory) == os.path.realpath(cache_dir):
            continue
        try:
            found = _records(directory)
        except CNIError as error:
            view.problems.append(str(error))
            continue
        for one in found:
            if one.container_id:
                _note_other(view, one)
            else:
                view.problems.append(f"{one.path}: {one.problem or 'the record names no container'}")
    return view


def _records(directory: str) -> list[Attachment]:
    return CNIConfig([], directory).get_cached_attachments()


def _note_other(view: View, attachment: Attachment) -> None:
    whose = f"owner {attachment.owner}" if attachment.owner else "no owner"
    view.others[attachment.container_id] = f"{attachment.path} ({whose})"
    view.networks.add(attachment.network)


def in_reach(view: View, gc_networks: Sequence[str]) -> list[str]:
    """Return what of others the agent could touch, as texts for people; [] if nothing.

    ``gc_networks``: the networks whose plugins the agent calls with GC. A plugin frees all that is not in the list
    that it gets, so a network that others use as well is in the agent's reach.
    """
    found = [f"{one.path}: container {one.container_id}, owner {one.owner or 'none'}" for one in view.shared]
    used = sorted(view.networks & set(gc_networks) - {one.network for one in view.shared})
    return found + [f"network {name}: others use it, and --gc lets its plugins free their addresses" for name in used]
