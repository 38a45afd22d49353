"""An observer for the standard library's logging, with fields for JSON formatters (``extra``)."""

from __future__ import annotations

import logging
import time
from typing import Any

from libcni.errors import CNIError, PluginError, printable
from libcni.observe.observer import Observer, Operation
from libcni.observe.redact import redacted
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["LoggingObserver"]


class LoggingObserver(Observer):
    """An observer that logs the end of each verb and plugin call at INFO, and at DEBUG the start of each call.

    Failures are logged as warnings. Cancelled verbs are logged at DEBUG, a manager's cancelled set-up as one warning.

    Fields of each log record: ``cni_verb``, ``cni_network``, ``cni_container_id``, ``cni_ifname``, ``cni_seconds`` and
    ``cni_outcome`` (``ok``, ``failed``, or the error's class). A verb adds ``cni_waited``: the part of these seconds in
    which it waited for other verbs. A call adds ``cni_plugin``, ``cni_path``, ``cni_call``
    (the verb that the plugin received), ``cni_index``, ``cni_exit_status`` and ``cni_signal``. An error adds
    ``cni_error``, and the error of a plugin adds ``cni_code``. The start of a call adds ``cni_config``, the plugin's
    configuration.

    Args:
        logger: the logger; None: ``libcni.calls``.
        redact: replace the values of capability arguments in ``cni_config``.

    Examples:
        >>> cni = libcni.CNIConfig("/opt/cni/bin", "cache", observer=LoggingObserver(redact=True))
    """

    def __init__(self, logger: logging.Logger | None = None, *, redact: bool = False) -> None:
        self.logger: logging.Logger = logger or logging.getLogger("libcni.calls")
        self.redact = redact
        # Threads share the observer. Each operation is a key of its own, and one dict operation is atomic in CPython.
        self._began: dict[Operation, float] = {}
        self._waited: dict[Operation, float] = {}

    def begin(self, operation: Operation) -> None:
        """Store the start time."""
        self._began[operation] = time.monotonic()
        self._waited[operation] = 0.0

    def after_wait(self, operation: Operation, seconds: float) -> None:
        """Add the seconds to the verb's waiting time."""
        self._waited[operation] += seconds

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Log the plugin's configuration at DEBUG."""
        if self.logger.isEnabledFor(logging.DEBUG):
            config = redacted(invocation.stdin) if self.redact else invocation.stdin.decode(errors="backslashreplace")
            fields = {**_fields(operation, invocation), "cni_config": config}
            # A configuration may contain terminal escapes and line breaks, which could forge lines of the log.
            subject = printable(f"{invocation.plugin} {invocation.verb}: called with {config}")
            self.logger.debug("%s", subject, extra=fields)

    def after_call(
        self, operation: Operation, invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Log the end of a call."""
        # A timeout has no outcome, but its error knows how long the plugin ran.
        seconds = outcome.seconds if outcome is not None else getattr(error, "seconds", 0.0)
        fields = {**_fields(operation, invocation), **_ended(outcome, error), "cni_seconds": seconds}
        succeeded = error is None and outcome is not None and outcome.exit_status == 0
        level = logging.INFO if succeeded else _level_of(error)
        subject = printable(f"{invocation.plugin} {invocation.verb}")
        self.logger.log(level, "%s: %s in %.3f s", subject, fields["cni_outcome"], seconds, extra=fields)

    def end(self, operation: Operation, error: BaseException | None) -> None:
        """Log the end of a verb."""
        seconds = time.monotonic() - self._began.pop(operation, time.monotonic())
        fields = {**_fields(operation), **_ended(None, error), "cni_seconds": seconds}
        fields["cni_waited"] = self._waited.pop(operation, 0.0)
        named = (operation.verb, operation.network, operation.container_id, operation.ifname)
        subject = printable(" ".join(filter(None, named)))
        # A cancelled set-up needs one line, not a line for each verb.
        level = logging.INFO if error is None else logging.WARNING if operation.verb == "SET-UP" else _level_of(error)
        text = "%s: %s in %.3f s, %.3f s of them waiting for other verbs"
        self.logger.log(level, text, subject, fields["cni_outcome"], seconds, fields["cni_waited"], extra=fields)


def _level_of(error: BaseException | None) -> int:
    """Return the level of a failure. A cancellation or Ctrl-C is no failure: the program wanted it."""
    return logging.WARNING if error is None or isinstance(error, Exception) else logging.DEBUG


def _fields(operation: Operation, invocation: Invocation | None = None) -> dict[str, Any]:
    names = ("verb", "network", "container_id", "ifname")
    fields: dict[str, Any] = {f"cni_{name}": getattr(operation, name) for name in names}
    if invocation is not None:
        fields |= {"cni_plugin": invocation.plugin, "cni_path": invocation.path}
        fields |= {"cni_call": invocation.verb, "cni_index": invocation.index}
    return fields


def _ended(outcome: Outcome | None, error: BaseException | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"cni_outcome": "ok"}
    if outcome is not None:
        fields |= {"cni_exit_status": outcome.exit_status, "cni_signal": outcome.signal}
        if outcome.exit_status != 0:
            fields["cni_outcome"] = "failed"
    if error is not None:
        fields["cni_outcome"] = type(error).__name__
        # repr shows the class, which the text of foreign exceptions (KeyError) often needs.
        fields["cni_error"] = str(error) if isinstance(error, CNIError) else repr(error)
    if isinstance(error, PluginError):
        fields["cni_code"] = error.code
    return fields
