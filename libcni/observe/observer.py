"""The base class of observers, and the operation that their methods receive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from libcni._dataclass import dataclass
from libcni.protocol.invocation import Invocation, Outcome, VerbName

__all__ = ["Observer", "Operation"]

OperationName = VerbName | Literal["FORGET", "TAKE-OVER", "RELOAD", "SET-UP", "TEAR-DOWN"]
"""The names of operations: verbs, changes of a record that run no plugin, a reload, and operations of a manager.
"""


# eq=False: two ADDs with equal parameters are different keys of an observer's dict.
@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One run of one verb. Two runs are never equal, so an operation can be the key of a dict.

    Attributes:
        verb: the verb; ``VERSION`` also for validation; ``FORGET`` and ``TAKE-OVER`` run no plugin;
            ``RELOAD`` calls plugins with DEL and then with ADD.
            ``SET-UP`` and ``TEAR-DOWN`` of a manager begin before the verbs that they run, and end after them.
            Plugins may be called with another verb: the roll-back of an ADD calls them with DEL.
        network: the network's name, "" if the verb has none.
        container_id: the container's ID, "" if the verb has none.
        ifname: the interface's name, "" if the verb has none.

    Examples:
        >>> operation = Operation("ADD", "dbnet", "c1", "eth0")
        >>> {operation: "began at 12:00"}[operation]
        'began at 12:00'
    """

    verb: OperationName
    network: str = ""
    container_id: str = ""
    ifname: str = ""


class Observer:
    """Base class of observers: override the methods that you need, and pass it to ``CNIConfig(observer=...)``.

    Each ``begin`` is followed by its ``end``, and each ``before_call`` by its ``after_call``, even after errors. A
    shared client calls the methods for several operations at once, from their threads or tasks. An exception that a
    method raises is logged, and the verb goes on.

    Examples:
        >>> class Verbs(Observer):
        ...     def before_call(self, operation, invocation):
        ...         print(invocation.verb, invocation.plugin)
        >>> cni = libcni.CNIConfig("/opt/cni/bin", "cache", executor=executor, observer=Verbs())
        >>> result = cni.add_network_list(net, rt)
        ADD bridge
    """

    def begin(self, operation: Operation) -> Mapping[str, str | None] | None:
        """Observe the start of a verb, before it waits for locks.

        Returns:
            Environment variables for each plugin. They replace inherited variables; the value None removes a variable.
        """

    def after_wait(self, operation: Operation, seconds: float) -> None:
        """Observe the end of a wait for other verbs: for the client's ``max_verbs``, or for locks.

        A verb may wait several times. Without other verbs a wait takes some microseconds.
        """

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Observe the start of a plugin call."""

    def after_call(
        self, operation: Operation, invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Observe the end of a plugin call.

        Args:
            operation: the verb.
            invocation: the call.
            outcome: the outcome, with any exit status; None if the plugin was stopped or could not be started.
            error: why there is no outcome, for example PluginTimeoutError or KeyboardInterrupt.
        """

    def end(self, operation: Operation, error: BaseException | None) -> None:
        """Observe the end of a verb, with the exception that its caller gets, or None."""
