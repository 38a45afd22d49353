"""The observer in examples/tracing.py: spans, and the verb's context in every plugin's environment."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from manager.fakes import ManagerNode
from observe.canned import NET, RT, client, environments, failure_of, refusal
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libcni.manager import Container, NetworkManager
from libcni.testing import RecordingExecutor

Tracing: Any = runpy.run_path(str(Path(__file__).parents[2] / "examples/tracing.py"))["Tracing"]


class Traced:
    """An observer with what it has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.observer = Tracing(provider)

    def tree(self) -> list[tuple[str, str]]:
        """Return the name of each finished span with its parent's."""
        spans = self.exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans if span.context}
        return [(span.name, names.get(span.parent.span_id, "") if span.parent else "") for span in spans]

    def span(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def test_a_set_up_is_one_trace_of_its_verbs_and_their_calls(tmp_path: Path, traced: Traced) -> None:
    node = ManagerNode(tmp_path)
    node.configure("a")
    node.configure("b")
    NetworkManager(node.client(observer=traced.observer)).set_up(Container("c1", "/ns", ["a", "b"]))
    calls = [name for name, parent in traced.tree() if parent == "CNI ADD"]
    assert len(calls) == 2
    assert [pair for pair in traced.tree() if pair[0] not in calls] == [
        ("CNI ADD", "CNI SET-UP"), ("CNI ADD", "CNI SET-UP"), ("CNI SET-UP", ""),
    ]  # fmt: skip
    assert (traced.span("CNI SET-UP").attributes or {})["cni.container_id"] == "c1"
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_every_plugin_gets_the_verbs_context_and_nothing_of_an_inherited_one(
    tmp_path: Path, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRACEPARENT", "TRACESTATE", "BAGGAGE"):
        monkeypatch.setenv(name, "inherited")
    executor = RecordingExecutor({("tuning", "ADD"): refusal()})
    failure_of(client(tmp_path, executor, traced.observer))
    verb = traced.span("CNI ADD").context
    assert verb is not None
    envs = environments(executor)
    assert [env["TRACEPARENT"] for env in envs] == [
        f"00-{verb.trace_id:032x}-{verb.span_id:016x}-{verb.trace_flags:02x}"
    ] * 4
    assert not any(name in env for env in envs for name in ("TRACESTATE", "BAGGAGE"))


def test_the_callers_span_is_the_parent_and_its_baggage_goes_along(tmp_path: Path, traced: Traced) -> None:
    executor = RecordingExecutor()
    remote = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
    around = baggage.set_baggage("tenant", "blue", trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    token = context.attach(around)
    try:
        client(tmp_path, executor, traced.observer).add_network_list(NET, RT)
    finally:
        context.detach(token)
    env = environments(executor)[0]
    assert env["TRACEPARENT"].startswith(f"00-{0xABC:032x}-")
    assert env["BAGGAGE"] == "tenant=blue"
    parent = traced.span("CNI ADD").parent
    assert parent is not None
    assert parent.span_id == 0xDEF


def test_without_a_recording_tracer_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "inherited")
    executor = RecordingExecutor()
    client(tmp_path, executor, Tracing(trace.NoOpTracerProvider())).add_network_list(NET, RT)
    assert environments(executor)[0]["TRACEPARENT"] == "inherited"


def test_a_failure_is_on_the_spans(tmp_path: Path, traced: Traced) -> None:
    failure_of(client(tmp_path, RecordingExecutor({("tuning", "ADD"): refusal()}), traced.observer))
    for name in ("tuning ADD", "CNI ADD"):
        assert traced.span(name).status.status_code is trace.StatusCode.ERROR
    assert traced.span("bridge DEL").status.status_code is trace.StatusCode.UNSET


def test_an_interrupted_call_that_is_rolled_back_has_its_span(tmp_path: Path, traced: Traced) -> None:
    executor = RecordingExecutor({("tuning", "ADD"): KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        client(tmp_path, executor, traced.observer).add_network_list(NET, RT, on_cancel="rollback")
    calls = ["bridge ADD", "tuning ADD", "tuning DEL", "bridge DEL"]
    assert traced.tree() == [*((call, "CNI ADD") for call in calls), ("CNI ADD", "")]
