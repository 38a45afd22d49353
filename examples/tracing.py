"""Trace a program's networks with OpenTelemetry: a span for each verb, and below it one for each plugin call.

    cni = libcni.CNIConfig(..., observer=Tracing())

Every plugin gets the verb's context in TRACEPARENT, TRACESTATE and BAGGAGE. Copy the class into your program, and
record what your dashboards need. ``pip install opentelemetry-api``.
"""

from __future__ import annotations

from typing import Any

from opentelemetry import context, trace
from opentelemetry.propagate import inject

from libcni import Invocation, Outcome
from libcni.observe import Observer, Operation


class Tracing(Observer):
    """Makes the spans ``CNI ADD`` and ``bridge ADD``."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("libcni", tracer_provider=provider)
        # Verbs of other threads and tasks run at the same time, so the spans are kept for each operation.
        self._verbs: dict[Operation, trace.Span] = {}
        self._calls: dict[Operation, trace.Span] = {}
        self._tokens: dict[Operation, Any] = {}

    def begin(self, operation: Operation) -> dict[str, str | None] | None:
        """Start the verb's span, and return its context for the plugins."""
        span = self._tracer.start_span(f"CNI {operation.verb}")
        span.set_attribute("cni.network", operation.network)
        span.set_attribute("cni.container_id", operation.container_id)
        self._verbs[operation] = span
        if operation.verb in {"SET-UP", "TEAR-DOWN"}:  # a manager's: the spans of the verbs become its children
            self._tokens[operation] = context.attach(trace.set_span_in_context(span))
        if not span.get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        inject(carrier, trace.set_span_in_context(span))
        # None removes a variable that the program has inherited: it belongs to another trace.
        return {name.upper(): carrier.get(name) for name in ("traceparent", "tracestate", "baggage")}

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Start the call's span."""
        inside = trace.set_span_in_context(self._verbs[operation])
        self._calls[operation] = self._tracer.start_span(f"{invocation.plugin} {invocation.verb}", context=inside)

    def after_call(
        self, operation: Operation, _invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """End the call's span."""
        span = self._calls.pop(operation)
        if outcome is not None and outcome.exit_status != 0:
            span.set_status(trace.StatusCode.ERROR, f"exit status {outcome.exit_status}")
        _end(span, error)

    def end(self, operation: Operation, error: BaseException | None) -> None:
        """End the verb's span."""
        if operation in self._tokens:
            context.detach(self._tokens.pop(operation))
        _end(self._verbs.pop(operation), error)


def _end(span: trace.Span, error: BaseException | None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, str(error))
    span.end()
