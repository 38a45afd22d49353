"""The settings of a client, and the environment of its plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TextIO, TypeVar

from libcni._dataclass import dataclass
from libcni.observe.observer import Observer
from libcni.options import StartAhead
from libcni.protocol.invocation import Invocation
from libcni.store.locks import TOKEN_VARIABLE
from libcni.store.records import RecordStore
from libcni.verbs.turns import Turns

StderrSink = Callable[[Invocation, str], object] | TextIO
"""The receiver of the stderr of plugins that succeed: a callable with the invocation and the text, or a text file."""

NETNS_OVERRIDE = "CNI_NETNS_OVERRIDE"
"""The variable that lets plugins since 1.2 work in the namespace of their own process (pkg/skel/skel.go)."""

Env = Mapping[str, str] | Sequence[str]
"""The plugins' environment: a mapping that replaces this process's, or the names of the variables to inherit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client; times in seconds, None: no limit."""

    path: tuple[str, ...]
    cache_dir: str
    conf_dir: str
    owner: str
    timeout: float | None
    plugin_timeout: float | None
    cleanup_timeout: float | None
    env: Env | None
    stderr: StderrSink | None
    observer: Observer | None
    start_ahead: StartAhead
    retries: int = 1

    @property
    def client(self) -> Mapping[str, str]:
        """The client's directories and owner, for the commands in hints."""
        # Absolute paths: a user may run the command in another directory.
        path = os.pathsep.join(map(os.path.abspath, self.path))
        conf_dir = os.path.abspath(self.conf_dir)
        return {"conf_dir": conf_dir, "path": path, "cache_dir": self.cache_dir, "owner": self.owner}

    def environment(self) -> Mapping[str, str]:
        """Return the plugins' environment: without CNI_* variables, except a user's CNI_NETNS_OVERRIDE."""
        if self.env is None:
            return _inherited()
        if isinstance(self.env, Mapping):
            return _without_ours(self.env)
        return _without_ours({name: os.environ[name] for name in self.env if name in os.environ})


def _without_ours(env: Mapping[str, str]) -> Mapping[str, str]:
    ours = ("CNI_", TOKEN_VARIABLE)
    return {name: text for name, text in env.items() if name == NETNS_OVERRIDE or not name.startswith(ours)}


_last: tuple[object, Mapping[str, str]] = (None, {})
"""This program's environment as the system has it, and decoded without the variables of this library and of CNI."""


def _inherited() -> Mapping[str, str]:
    """Return this program's variables. Decode them only after a change: 40 take 50 microseconds, and each verb asks."""
    global _last  # noqa: PLW0603
    # Python has no public name for these; without it they are decoded each time.
    raw: dict[bytes, bytes] | None = getattr(os.environ, "_data", None)
    if raw is None:
        return _without_ours(os.environ)
    found, env = _last
    if raw != found:
        copied = dict(raw)  # another thread may change a variable meanwhile
        env = _without_ours({os.fsdecode(name): os.fsdecode(text) for name, text in copied.items()})
        _last = copied, env
    return env


_T = TypeVar("_T")


class SideBySide(Protocol):
    """A function that runs coroutines at the same time, in threads or as tasks, and returns their values in order."""

    async def __call__(self, works: Sequence[Callable[[], Coroutine[Any, Any, _T]]], /) -> list[_T]:
        """Run the coroutines."""
        ...


@dataclass(frozen=True, slots=True)
class ClientState:
    """The objects that all verbs of a client share.

    Attributes:
        settings: the client's settings.
        records: the attachments on disk.
        turns: the running and the waiting operations.
        side_by_side: runs the verbs for several attachments at the same time.
    """

    settings: Settings
    records: RecordStore
    turns: Turns
    side_by_side: SideBySide
