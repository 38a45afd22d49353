"""What an observer is told, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["Observer", "Operation"]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One run of one verb. Each is its own key: two runs are never equal, so it can stand in a dict.

    Attributes:
        verb: ``ADD``, ``CHECK``, ``DEL``, ``GC``, ``STATUS`` or ``VERSION`` (validation and negotiation too). Plugins
            may be called with another one: an ADD that is rolled back calls them with DEL.
        network: the network's name, "" where the verb has none.
        container_id: the container, likewise.
        ifname: the interface's name, likewise.
    """

    verb: str
    network: str = ""
    container_id: str = ""
    ifname: str = ""


class Observer:
    """Watch verbs and plugin calls: inherit, and override what you need. Give it to ``CNIConfig(observer=...)``.

    Each ``begin`` is followed by its ``end``, each ``before_call`` by its ``after_call``, whatever happens in between.
    A client that is shared tells of several operations at once, from their threads or tasks. What a method raises goes
    to the verb's caller, so it should raise nothing.
    """

    def begin(self, operation: Operation) -> Mapping[str, str | None] | None:
        """Take note that a verb begins, before it waits for locks.

        Returns:
            Environment variables for each of its plugins, over inherited ones; None as a value takes one away.
        """

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Take note that a plugin is about to run, with ``invocation``, for ``operation``."""

    def after_call(
        self, operation: Operation, invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Take note that a plugin has ended: with an outcome, whatever its exit status, or with an error.

        ``error``: why it did not run to its end, such as PluginTimeoutError, or a KeyboardInterrupt.
        """

    def end(self, operation: Operation, error: BaseException | None) -> None:
        """Take note that a verb has ended, with the error that its caller gets, or None."""
