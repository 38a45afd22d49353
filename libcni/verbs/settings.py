"""The settings of a client, and the environment of its plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from libcni.observe.protocol import Observer
from libcni.options import StartAhead
from libcni.protocol.invocation import Invocation
from libcni.store.locks import TOKEN_VARIABLE
from libcni.store.records import RecordStore
from libcni.verbs.claims import Claims
from libcni.verbs.limit import MAX_VERBS, VerbLimit

StderrSink = Callable[[Invocation, str], object] | TextIO
"""Receives the stderr of a plugin that succeeded: a callable with the invocation and the text, or a text file."""

Env = Mapping[str, str] | Sequence[str]
"""The plugins' environment: a mapping that replaces this process's, or the names of the variables to inherit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client; times in seconds, None: no limit."""

    path: tuple[str, ...]
    cache_dir: str
    conf_dir: str
    owner: str = ""
    timeout: float | None = 60.0
    plugin_timeout: float | None = None
    cleanup_timeout: float | None = 30.0
    env: Env | None = None
    durable: bool = True
    stderr: StderrSink | None = None
    observer: Observer | None = None
    start_ahead: StartAhead = "auto"

    def environment(self) -> Mapping[str, str]:
        """Return the plugins' environment without the CNI_* variables; inherited CNI_* are never passed on."""
        if self.env is None:
            return _without_cni(os.environ)
        if isinstance(self.env, Mapping):
            return _without_cni(self.env)
        return _without_cni({name: os.environ[name] for name in self.env if name in os.environ})


@dataclass(frozen=True, slots=True)
class ClientState:
    """The objects that all verbs of a client share.

    Attributes:
        settings: the client's settings.
        records: the attachments on disk.
        claims: what they have by their records.
        limit: the verbs that run and that wait for their turn.
    """

    settings: Settings
    records: RecordStore
    claims: Claims
    limit: VerbLimit = field(default_factory=lambda: VerbLimit(MAX_VERBS))


def _without_cni(env: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in env.items() if not name.startswith(("CNI_", TOKEN_VARIABLE))}
