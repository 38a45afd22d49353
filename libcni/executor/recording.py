"""An executor that runs nothing: it records each call and returns a prepared answer."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from libcni._dataclass import dataclass
from libcni.config.versions import ALL_VERSIONS, DEFAULT_VERSION
from libcni.errors import PluginNotFoundError, PluginTimeoutError
from libcni.executor.interface import AsyncExecutor, CallOptions
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["RecordedCall", "RecordingExecutor", "error_outcome", "timeout_error"]

Canned: TypeAlias = "Outcome | Mapping[str, Any] | BaseException | Callable[[Invocation], Any] | None"
Answers: TypeAlias = Mapping[tuple[str, str], "Canned | Sequence[Canned]"]
_ANY = "*"


@dataclass(frozen=True)
class RecordedCall:
    """A call that an executor received.

    Attributes:
        invocation: the input of the plugin.
        options: the limits of the call, its environment and the descriptors that it inherits.

    Examples:
        >>> from libcni import CNIConfig
        >>> executor = RecordingExecutor()
        >>> versions = CNIConfig("/opt/cni/bin", "cache", executor=executor).get_version_info("bridge")
        >>> [(call.invocation.path, call.config) for call in executor.calls]
        [('/opt/cni/bin/bridge', {'cniVersion': '1.1.0'})]
    """

    invocation: Invocation
    options: CallOptions

    @property
    def config(self) -> dict[str, Any]:
        """The execution configuration."""
        config: dict[str, Any] = json.loads(self.invocation.stdin)
        return config


class RecordingExecutor:
    """An executor that runs nothing, for CNIConfig; ``on_asyncio`` serves an AsyncCNIConfig.

    Args:
        answers: from (plugin type, verb) to the answer; ``*`` stands for any type. An answer is a document to print
            (``cniVersion`` is added if it is missing), an Outcome, an exception to raise, a callable that takes the
            Invocation and returns one of these, or None for the default. With ``on_asyncio`` it may be a coroutine
            function. Each call takes the next answer of a list;
            all later calls get the last answer. Without an answer an ADD passes ``prevResult`` on, VERSION lists all
            versions, and the other verbs succeed.
        plugins: the plugin types that ``find`` finds; None: all.

    Attributes:
        calls: the calls so far, oldest first.
        answers: the answers; you may change them between calls.

    Examples:
        >>> from libcni import CNIConfig, NetworkConfigList, RuntimeConf
        >>> executor = RecordingExecutor({("bridge", "ADD"): {"ips": [{"address": "10.1.0.5/16"}]}})
        >>> cni = CNIConfig("/opt/cni/bin", "cache", executor=executor)
        >>> net = NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "bridge"}]})
        >>> cni.add_network_list(net, RuntimeConf("c1", "/run/netns/c1", "eth0")).ips[0].address
        '10.1.0.5/16'
        >>> executor.verbs
        [('ADD', 'bridge')]
    """

    def __init__(self, answers: Answers | None = None, *, plugins: Iterable[str] | None = None) -> None:
        self.calls: list[RecordedCall] = []
        self.answers: dict[tuple[str, str], Canned | Sequence[Canned]] = dict(answers or {})
        self._plugins = None if plugins is None else frozenset(plugins)
        self._taken: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    @property
    def verbs(self) -> list[tuple[str, str]]:
        """The (verb, plugin type) of each call, oldest first."""
        return [(call.invocation.verb, call.invocation.plugin) for call in self.calls]

    @property
    def on_asyncio(self) -> AsyncExecutor:
        """The executor for an AsyncCNIConfig; its calls and answers are those of this object."""
        return _AsyncRecordingExecutor(self)

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path that the plugin would have in the first directory of ``path``; raises PluginNotFoundError."""
        if self._plugins is not None and plugin not in self._plugins:
            raise PluginNotFoundError(plugin, tuple(path))
        return f"{next(iter(path), '/nowhere')}/{plugin}"

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Record the call and return its answer, or raise the answer if it is an exception."""
        answer = self._answer(invocation, options)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(f"the answer to {invocation.verb} of {invocation.plugin} is a coroutine: use on_asyncio")
        return _finished(invocation, answer)

    def _answer(self, invocation: Invocation, options: CallOptions) -> Any:
        with self._lock:
            self.calls.append(RecordedCall(invocation, options))
            answer = self._next(invocation.plugin, invocation.verb)
        # Outside the lock: the function may call the client, which calls this executor again.
        return answer(invocation) if callable(answer) else answer

    def _next(self, plugin: str, verb: str) -> Any:
        key = next((key for key in ((plugin, verb), (_ANY, verb)) if key in self.answers), None)
        if key is None:
            return None
        answers = self.answers[key]
        if not isinstance(answers, list | tuple):
            return answers
        taken = self._taken[key] = self._taken.get(key, -1) + 1
        return answers[min(taken, len(answers) - 1)]


class _AsyncRecordingExecutor:
    """A RecordingExecutor with the interface of AsyncExecutor."""

    def __init__(self, recorder: RecordingExecutor) -> None:
        self.find = recorder.find
        self._answer = recorder._answer  # noqa: SLF001 - the other half of this class

    async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        answer = self._answer(invocation, options)
        return _finished(invocation, await answer if inspect.isawaitable(answer) else answer)


def timeout_error(seconds: float = 1.0) -> Callable[[Invocation], PluginTimeoutError]:
    """Return the answer of a plugin that was stopped at its timeout, for ``RecordingExecutor``.

    Args:
        seconds: the time that it took, for the error's text.
    """
    return lambda invocation: PluginTimeoutError(f"it did not end within {seconds:.3g} s, and was stopped", invocation)


def error_outcome(code: int, msg: str, details: str = "", *, stderr: str = "") -> Outcome:
    """Return the outcome of a plugin that prints an error document (spec 1.1.0, section 5, Error).

    Args:
        code: the document's code.
        msg: the document's message.
        details: the document's details; "" for none.
        stderr: the text that the plugin prints on stderr.
    """
    document: dict[str, Any] = {"cniVersion": ALL_VERSIONS[-1], "code": code, "msg": msg}
    if details:
        document["details"] = details
    return Outcome(exit_status=1, stdout=json.dumps(document).encode(), stderr=stderr.encode())


def _finished(invocation: Invocation, answer: Any) -> Outcome:
    if isinstance(answer, BaseException):
        raise answer
    return answer if isinstance(answer, Outcome) else _outcome(invocation, answer)


def _outcome(invocation: Invocation, document: Mapping[str, Any] | None) -> Outcome:
    if document is None and invocation.verb not in {"ADD", "VERSION"}:
        return Outcome()
    config = json.loads(invocation.stdin)
    version = config.get("cniVersion") or DEFAULT_VERSION
    if document is None:
        is_add = invocation.verb == "ADD"
        document = config.get("prevResult") or {} if is_add else {"supportedVersions": [*ALL_VERSIONS]}
    return Outcome(stdout=json.dumps({"cniVersion": version, **document}).encode())
