"""The OpenTelemetry adapter: spans, metrics, and the verb's trace context in every plugin's environment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libcni.testing import RecordingExecutor

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libcni import AsyncCNIConfig, RuntimeConf
from libcni.observe import OpenTelemetryObserver
from observe.canned import NET, RT, client, environments, failure_of, refusal


class Telemetry:
    """An observer with what it has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.observer = OpenTelemetryObserver(self.tracers, meters)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metric(self, name: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        metrics = [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def test_a_span_per_verb_and_under_it_one_per_call(tmp_path: Path, telemetry: Telemetry) -> None:
    client(tmp_path, RecordingExecutor(), telemetry.observer).add_network_list(NET, RT)
    spans = telemetry.spans()
    assert list(spans) == ["bridge ADD", "tuning ADD", "CNI ADD"]
    verb = spans["CNI ADD"]
    assert verb.parent is None
    assert {**(verb.attributes or {}), "cni.wait": 0} == {
        "cni.wait": 0, "cni.verb": "ADD", "cni.network": "dbnet", "cni.container_id": "c1", "cni.ifname": "eth0",
    }  # fmt: skip
    for name in ("bridge ADD", "tuning ADD"):
        parent = spans[name].parent
        assert parent is not None
        assert verb.context is not None
        assert parent.span_id == verb.context.span_id
    attributes = spans["tuning ADD"].attributes or {}
    assert attributes["cni.plugin"] == "tuning"
    assert attributes["process.exit.code"] == 0


def test_every_plugin_gets_the_verbs_context_and_nothing_of_an_inherited_one(
    tmp_path: Path, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRACEPARENT", "TRACESTATE", "BAGGAGE"):
        monkeypatch.setenv(name, "inherited")
    executor = RecordingExecutor({("tuning", "ADD"): refusal()})
    failure_of(client(tmp_path, executor, telemetry.observer))
    span_context = telemetry.spans()["CNI ADD"].context
    assert span_context is not None
    wanted = f"00-{span_context.trace_id:032x}-{span_context.span_id:016x}-{span_context.trace_flags:02x}"
    envs = environments(executor)
    assert [env["TRACEPARENT"] for env in envs] == [wanted] * 4
    assert not any(name in env for env in envs for name in ("TRACESTATE", "BAGGAGE"))


def test_the_callers_span_is_the_parent_and_its_baggage_and_state_go_along(
    tmp_path: Path, telemetry: Telemetry
) -> None:
    executor = RecordingExecutor()
    state = trace.TraceState([("vendor", "x")])
    remote = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    ctx = baggage.set_baggage("tenant", "blue", trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    token = context.attach(ctx)
    try:
        client(tmp_path, executor, telemetry.observer).add_network_list(NET, RT)
    finally:
        context.detach(token)
    env = environments(executor)[0]
    assert env["TRACEPARENT"].startswith(f"00-{0xABC:032x}-")
    assert env["TRACESTATE"] == "vendor=x"
    assert env["BAGGAGE"] == "tenant=blue"
    parent = telemetry.spans()["CNI ADD"].parent
    assert parent is not None
    assert parent.span_id == 0xDEF


def test_without_a_recording_tracer_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "inherited")
    executor = RecordingExecutor()
    client(tmp_path, executor, OpenTelemetryObserver(trace.NoOpTracerProvider())).add_network_list(NET, RT)
    assert environments(executor)[0]["TRACEPARENT"] == "inherited"


def test_a_failure_is_on_the_spans_and_counted(tmp_path: Path, telemetry: Telemetry) -> None:
    failure_of(client(tmp_path, RecordingExecutor({("tuning", "ADD"): refusal(11)}), telemetry.observer))
    spans = telemetry.spans()
    assert spans["tuning ADD"].status.status_code is trace.StatusCode.ERROR
    assert spans["CNI ADD"].status.status_code is trace.StatusCode.ERROR
    assert (spans["CNI ADD"].attributes or {})["cni.error.code"] == 11
    assert spans["bridge DEL"].status.status_code is trace.StatusCode.UNSET
    counted = {point.attributes["error.type"]: point.value for point in telemetry.metric("cni.errors")}
    assert counted == {"failed": 1, "PluginError": 1}


def test_durations_and_waits_are_in_histograms(tmp_path: Path, telemetry: Telemetry) -> None:
    client(tmp_path, RecordingExecutor(), telemetry.observer).add_network_list(NET, RT)
    (verb,) = telemetry.metric("cni.operation.duration")
    (wait,) = telemetry.metric("cni.operation.wait")
    assert verb.count == wait.count == 1
    assert 0 < wait.sum < verb.sum
    assert (telemetry.spans()["CNI ADD"].attributes or {})["cni.wait"] == wait.sum
    assert dict(verb.attributes) == {"cni.verb": "ADD", "cni.network": "dbnet"}, (
        "no container ID: a metric must have a limited number of attributes"
    )
    calls = telemetry.metric("cni.plugin.duration")
    assert {point.attributes["cni.plugin"]: point.count for point in calls} == {"bridge": 1, "tuning": 1}


def test_verbs_that_run_at_once_keep_apart(tmp_path: Path, telemetry: Telemetry) -> None:
    executor = RecordingExecutor().on_asyncio
    cni = AsyncCNIConfig(["/opt/cni/bin"], tmp_path, executor=executor, observer=telemetry.observer)

    async def both() -> None:
        await asyncio.gather(*(cni.add_network_list(NET, RuntimeConf(name, None, "eth0")) for name in ("c1", "c2")))

    asyncio.run(both())
    spans = telemetry.exporter.get_finished_spans()
    verbs = {span.context.span_id for span in spans if span.name == "CNI ADD" and span.context}
    parents = [span.parent.span_id for span in spans if span.parent]
    assert len(verbs) == 2
    assert sorted(parents) == sorted([*verbs, *verbs])


@pytest.mark.usefixtures("measured_children")
def test_the_extra_is_named_where_it_is_missing() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from libcni.observe import OpenTelemetryObserver"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install 'libcni[otel]'" in run.stderr.splitlines()[-1]
