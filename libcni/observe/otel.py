"""An observer for OpenTelemetry (``pip install libcni[otel]``): spans, durations, errors, trace context for plugins."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from libcni.errors import PluginError
from libcni.observe.observer import Observer, Operation
from libcni.protocol.invocation import Invocation, Outcome

try:
    from opentelemetry import baggage, context, metrics, trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as _missing:
    # OpenTelemetry is an extra. The plain text names a module that the user never asked for.
    _hint = f"{_missing}; OpenTelemetryObserver needs: pip install 'libcni[otel]'"
    raise ImportError(_hint, name=_missing.name) from _missing

__all__ = ["OpenTelemetryObserver"]

_SCOPE = "libcni"

_GROUPS = {"SET-UP", "TEAR-DOWN"}
"""The operations that run verbs. Their span is the current one, so that the spans of the verbs are its children."""


class OpenTelemetryObserver(Observer):
    """An observer that makes a span for each verb and a child span for each plugin call, and records metrics.

    Spans are ``CNI ADD`` and ``bridge ADD``. A verb's span has its wait for other verbs in ``cni.wait``, in seconds.
    Metrics are ``cni.operation.duration``, ``cni.operation.wait`` (the part of it that the verb waited for other verbs)
    and ``cni.plugin.duration`` (histograms, seconds), and ``cni.errors`` (counter, by verb, plugin and error). Every
    plugin of a verb gets the verb's context in TRACEPARENT, TRACESTATE and BAGGAGE, which replace the inherited
    variables of these names.

    Args:
        tracer_provider: the provider of spans; None: the global one.
        meter_provider: the provider of metrics; None: the global one.

    Examples:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> observer = OpenTelemetryObserver(TracerProvider())
    """

    def __init__(
        self, tracer_provider: trace.TracerProvider | None = None, meter_provider: metrics.MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._operations = meter.create_histogram("cni.operation.duration", "s", "How long verbs took")
        self._waits = meter.create_histogram("cni.operation.wait", "s", "How long verbs waited for other verbs")
        self._calls = meter.create_histogram("cni.plugin.duration", "s", "How long plugins ran")
        self._errors = meter.create_counter("cni.errors", "{error}", "Verbs and plugin calls that failed")
        # Verbs of other threads and tasks run at the same time, so the spans are kept for each operation.
        self._running: dict[Operation, _Running] = {}

    def begin(self, operation: Operation) -> dict[str, str | None] | None:
        """Start the verb's span as a child of the current span, and return its context for the plugins."""
        # Container IDs are attributes of spans only: as labels of metrics they would make a series for each container.
        labels = {"cni.verb": operation.verb, "cni.network": operation.network}
        about = {"cni.container_id": operation.container_id, "cni.ifname": operation.ifname}
        span = self._tracer.start_span(f"CNI {operation.verb}", attributes=_known({**labels, **about}))
        self._running[operation] = running = _Running(span, _known(labels))
        if operation.verb in _GROUPS:
            running.token = context.attach(trace.set_span_in_context(span))
        return _trace_context(span)

    def after_wait(self, operation: Operation, seconds: float) -> None:
        """Add the seconds to the verb's waiting time."""
        self._running[operation].waited += seconds

    def before_call(self, operation: Operation, invocation: Invocation) -> None:
        """Start the call's span."""
        running = self._running[operation]
        labels = {"cni.verb": invocation.verb, "cni.plugin": invocation.plugin, "cni.network": invocation.network}
        running.call = self._tracer.start_span(
            f"{invocation.plugin} {invocation.verb}",
            context=trace.set_span_in_context(running.span),
            kind=SpanKind.CLIENT,
            attributes=_known({**labels, "process.executable.path": invocation.path, "cni.index": invocation.index}),
        )
        running.call_labels = _known(labels)
        running.call_began = time.monotonic()

    def after_call(
        self, operation: Operation, _invocation: Invocation, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """End the call's span."""
        running = self._running[operation]
        self._calls.record(time.monotonic() - running.call_began, running.call_labels)
        if running.call is None:
            return
        if outcome is not None and outcome.exit_status is not None:
            running.call.set_attribute("process.exit.code", outcome.exit_status)
        if error is None and outcome is not None and outcome.exit_status != 0:
            self._failed(running.call, "failed", running.call_labels)
        self._end(running.call, error, running.call_labels)
        running.call = None

    def end(self, operation: Operation, error: BaseException | None) -> None:
        """End the verb's span."""
        running = self._running.pop(operation)
        if running.token is not None:
            context.detach(running.token)
        self._operations.record(time.monotonic() - running.began, running.labels)
        self._waits.record(running.waited, running.labels)
        running.span.set_attribute("cni.wait", running.waited)
        self._end(running.span, error, running.labels)

    def _end(self, span: Span, error: BaseException | None, labels: dict[str, Any]) -> None:
        if error is not None:
            span.record_exception(error)
            if isinstance(error, PluginError) and error.code is not None:
                span.set_attribute("cni.error.code", error.code)
            self._failed(span, type(error).__name__, labels, str(error))
        span.end()

    def _failed(self, span: Span, kind: str, labels: dict[str, Any], text: str = "") -> None:
        span.set_status(Status(StatusCode.ERROR, text or kind))
        span.set_attribute("error.type", kind)
        self._errors.add(1, {**labels, "error.type": kind})


@dataclass(slots=True)
class _Running:
    """The spans of one running verb."""

    span: Span
    labels: dict[str, Any]
    began: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    call: Span | None = None
    call_labels: dict[str, Any] = field(default_factory=dict)
    call_began: float = 0.0
    token: Any = None


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value != ""}


def _trace_context(span: Span) -> dict[str, str | None] | None:
    """Return the W3C context as environment variables (OTEP 258).

    The value None removes an inherited variable, which belongs to another trace.
    """
    if not span.get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    around = trace.set_span_in_context(span)
    TraceContextTextMapPropagator().inject(carrier, around)
    if baggage.get_all(around):
        W3CBaggagePropagator().inject(carrier, around)
    return {name.upper(): carrier.get(name) for name in ("traceparent", "tracestate", "baggage")}
