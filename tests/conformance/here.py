"""Execute vectors with this library: through real processes, or through the flows alone with canned answers."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import libcni
from conformance.exact import exact, read
from conformance.observe import Failure, Seen
from conformance.stage import Call, Stage, document_bytes, printed
from conformance.vectors import Step
from libcni.config.versions import parse_version
from libcni.executor.find import find_plugin
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure
from libcni.store.record import boot_id
from libcni.store.records import RecordStore
from libcni.verbs import add_flow, check_flow, del_flow, gc_flow, status_flow, validate_flow, version_flow
from libcni.verbs import steps as library_steps
from libcni.verbs.client_base import alone
from libcni.verbs.gc import raise_errors
from libcni.verbs.node import namespace_identity

_FIELDS = (
    "cleanup_needed",
    "code",
    "container_id",
    "details",
    "exit_status",
    "ifname",
    "msg",
    "network",
    "plugin",
    "retryable",
    "signal",
    "stderr",
    "verb",
    "well_known",
)


def load(stage: Stage, step: Step) -> libcni.NetworkConfigList:
    """Load the configuration of a step, from where its vector says."""
    source = step.source
    if "network" in source:
        return libcni.load_network_conf(stage.conf_dir, source["network"])
    if "file" in source:
        return libcni.NetworkConfigList.from_file(f"{stage.conf_dir}/{source['file']}")
    return libcni.NetworkConfigList.from_bytes(document_bytes(source))


def named(stage: Stage, step: Step) -> libcni.NetworkConfigList | str:
    """Return the network of a step: its name where the step says so, else its configuration."""
    return str(step.source["network"]) if step.body.get("by_name") else load(stage, step)


def load_plugin(step: Step) -> libcni.PluginConfig:
    """Load the single plugin configuration of a step."""
    return libcni.PluginConfig.from_bytes(document_bytes(step.source))


def runtime_conf(step: Step) -> libcni.RuntimeConf:
    """Return the runtime configuration of a step."""
    rt = step.rt
    if isinstance(rt.get("args"), list):
        rt["args"] = [(key, value) for key, value in rt["args"]]
    return libcni.RuntimeConf(**rt)


class Processes:
    """Do the steps with CNIConfig and real processes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def client(self, step: Step) -> libcni.CNIConfig:
        """Return a client for the vector's directory; ``timeout`` is an option of the vector."""
        return libcni.CNIConfig(self.stage.path, **self._settings(step))

    def _settings(self, step: Step) -> dict[str, Any]:
        return {
            "cache_dir": self.stage.cache_dir,
            "conf_dir": self.stage.conf_dir,
            "timeout": step.options.get("timeout", 30.0),
            "durable": False,
            "stderr": lambda *_: None,
        }

    def do(self, step: Step) -> Seen:
        """Do a step and return what was seen."""
        self.stage.begin(step)
        begun = time.monotonic()
        with self.stage.busy():
            value, failed = attempt(lambda: _DO[step.kind](self, step))
        seconds = time.monotonic() - begun
        return Seen(self.stage.calls(step), value, failed, self.stage.records(), seconds)

    def add(self, step: Step) -> dict[str, Any]:
        """ADD a list, or a single plugin."""
        options = {key: value for key, value in step.options.items() if key != "timeout"}
        cni, rt = self.client(step), runtime_conf(step)
        if step.kind == "add_one":
            return {"result": read(cni.add_network(load_plugin(step), rt, **options).text)}
        return {"result": read(cni.add_network_list(load(self.stage, step), rt, **options).text)}

    def check(self, step: Step) -> dict[str, Any]:
        """CHECK a list, or a single plugin."""
        cni, rt, use_given = self.client(step), runtime_conf(step), bool(step.options.get("use_given"))
        if step.kind == "check_one":
            cni.check_network(load_plugin(step), rt, use_given=use_given)
        else:
            cni.check_network_list(named(self.stage, step), rt, use_given=use_given)
        return {}

    def delete(self, step: Step) -> dict[str, Any]:
        """DEL a list, or a single plugin."""
        cni, rt, policy = self.client(step), runtime_conf(step), _policy(step)
        if step.kind == "del_one":
            cni.del_network(load_plugin(step), rt, policy=policy)
        else:
            cni.del_network_list(named(self.stage, step), rt, policy=policy)
        return {}

    def gc(self, step: Step) -> dict[str, Any]:
        """GC a list."""
        dry_run = bool(step.options.get("dry_run"))
        self.client(step).gc_network_list(load(self.stage, step), _valid(step), dry_run=dry_run)
        return {}

    def status(self, step: Step) -> dict[str, Any]:
        """STATUS of a list."""
        self.client(step).status_network_list(load(self.stage, step))
        return {}

    def version(self, step: Step) -> dict[str, Any]:
        """VERSION of a plugin."""
        return {"versions": list(self.client(step).get_version_info(step.body["plugin"]).supported_versions)}

    def validate(self, step: Step) -> dict[str, Any]:
        """Validate a list."""
        return _reported(self.client(step).validate_network_list(load(self.stage, step)))


class OnAsyncio(Processes):
    """Do the steps with AsyncCNIConfig and real processes, each in an event loop of its own."""

    def client(self, step: Step) -> Any:
        """Return a client whose coroutines are run to their end where they are called."""
        return _Blocking(libcni.AsyncCNIConfig(self.stage.path, **self._settings(step)))


class _Blocking:
    def __init__(self, client: libcni.AsyncCNIConfig) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._client, name)
        if not inspect.iscoroutinefunction(member):
            return member
        return lambda *args, **options: asyncio.run(member(*args, **options))


class Canned(Processes):
    """Do the steps that run plugins with the flows alone: no process, no lock, no client."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._made: list[Call] = []
        self._store = RecordStore(stage.cache_dir, durable=False)

    def do(self, step: Step) -> Seen:
        """Do a step and return what was seen."""
        self._made = []
        value, failed = attempt(lambda: _DO[step.kind](self, step))
        return Seen(self._made, value, failed, self.stage.records())

    def add(self, step: Step) -> dict[str, Any]:
        """ADD a list, or a single plugin."""
        options = {key: value for key, value in step.options.items() if key != "timeout"}
        flow = add_flow(self._net(step), runtime_conf(step), self.client(step).path, **options)
        return {"result": read(self._drive(flow, step).text)}

    def check(self, step: Step) -> dict[str, Any]:
        """CHECK a list, or a single plugin."""
        net, use_given = self._net(step), bool(step.options.get("use_given"))
        self._drive(check_flow(net.name, net, runtime_conf(step), self.client(step).path, use_given=use_given), step)
        return {}

    def delete(self, step: Step) -> dict[str, Any]:
        """DEL a list, or a single plugin."""
        net = None if step.body.get("by_name") else self._net(step)
        name = net.name if net is not None else step.source["network"]
        self._drive(del_flow(name, net, runtime_conf(step), self.client(step).path, _policy(step)), step)
        return {}

    def gc(self, step: Step) -> dict[str, Any]:
        """GC a list."""
        dry_run = bool(step.options.get("dry_run"))
        raise_errors(self._drive(gc_flow(self._net(step), _valid(step), self.client(step).path, dry_run=dry_run), step))
        return {}

    def status(self, step: Step) -> dict[str, Any]:
        """STATUS of a list."""
        for error in self._drive(status_flow(self._net(step), self.client(step).path, stop=True), step).errors:
            raise error
        return {}

    def version(self, step: Step) -> dict[str, Any]:
        """VERSION of a plugin."""
        info = self._drive(version_flow(step.body["plugin"], self.client(step).path), step)
        return {"versions": list(info.supported_versions)}

    def validate(self, step: Step) -> dict[str, Any]:
        """Validate a list."""
        return _reported(self._drive(validate_flow(self._net(step), self.client(step).path), step))

    def _net(self, step: Step) -> libcni.NetworkConfigList:
        if step.kind.endswith("_one"):
            return alone(load_plugin(step))
        return load(self.stage, step)

    def _drive(self, flow: Any, step: Step) -> Any:
        answer: Any = None
        error: Exception | None = None
        try:
            while True:
                asked = flow.throw(error) if error is not None else flow.send(answer)
                answer, error = None, None
                try:
                    answer = self._answer(asked, step)
                except libcni.CNIError as raised:
                    error = raised
        except StopIteration as end:
            return end.value

    def _answer(self, asked: Any, step: Step) -> Any:
        if isinstance(asked, Invocation):
            return self._outcome(asked, step)
        if isinstance(asked, library_steps.Find):
            return tuple(self._find(plugin, missing_allowed=asked.missing_allowed) for plugin in asked.plugins)
        if isinstance(asked, library_steps.Begin):
            namespace = namespace_identity(asked.record.netns)
            return self._store.begin(replace(asked.record, created=time.time(), boot=boot_id(), netns_id=namespace))
        return _STORE[type(asked)](self._store, asked)

    def _find(self, plugin: str, *, missing_allowed: bool) -> str:
        try:
            return find_plugin(plugin, self.stage.path)
        except libcni.PluginNotFoundError:
            if missing_allowed:
                return ""
            raise

    def _outcome(self, asked: Invocation, step: Step) -> Outcome:
        count = sum((call.plugin, call.verb) == (asked.plugin, asked.verb) for call in self._made)
        answer = step.answer(asked.plugin, asked.verb, count)
        if "raw_bin" in step.vector.data:
            raise plugin_failure(libcni.PluginError, asked, f"{asked.path} could not be started")
        self._made.append(Call(asked.plugin, asked.verb, asked.path, dict(asked.env), asked.stdin))
        if "sleep" in answer:
            raise plugin_failure(libcni.PluginTimeoutError, asked, "it was stopped")
        signal = answer.get("signal")
        status = None if signal else answer.get("status", 0)
        return Outcome(status, printed(answer), str(answer.get("stderr", "")).encode(), signal)


_STORE: dict[type, Callable[[RecordStore, Any], Any]] = {
    library_steps.AllRecords: lambda store, asked: store.records(asked.container_id),
    library_steps.AwaitOrphan: lambda _store, _asked: True,
    library_steps.Complete: lambda store, asked: store.complete(asked.record),
    library_steps.Forget: lambda store, asked: store.forget(asked.record),
    library_steps.Lock: lambda _store, _asked: None,
    library_steps.Lookup: lambda store, asked: store.find(asked.identity),
    library_steps.NamespaceOf: lambda _store, asked: namespace_identity(asked.netns),
    library_steps.Recall: lambda _store, _asked: None,
    library_steps.Remember: lambda _store, _asked: None,
    library_steps.SetAside: lambda store, asked: store.set_aside(asked.record),
    library_steps.Siblings: lambda store, asked: store.of_interface(asked.container_id, asked.ifname),
    library_steps.Sweep: lambda _store, _asked: None,
    library_steps.StartCleanup: lambda _store, _asked: None,
}


def _policy(step: Step) -> libcni.DelPolicy | None:
    options = {key: value for key, value in step.options.items() if key != "timeout"}
    return libcni.DelPolicy(**options) if options else None


def _valid(step: Step) -> Any:
    valid = step.body["valid"]
    return None if valid is None else [(container_id, ifname) for container_id, ifname in valid]


def _reported(report: libcni.ValidationReport) -> dict[str, Any]:
    problems = [str(problem) for problem in report.problems]
    return {"valid": not problems, "problems": problems, "capabilities": list(report.capabilities)}


def attempt(action: Callable[[], Any]) -> tuple[dict[str, Any], Failure | None]:
    """Return what an action gave, or its error."""
    try:
        return action() or {}, None
    except Exception as error:  # noqa: BLE001 - what is raised is compared with what is expected
        return {}, _failure(error)


def _failure(error: Exception) -> Failure:
    fields = {name: getattr(error, name) for name in _FIELDS if hasattr(error, name)}
    fields["rollback_errors"] = len(getattr(error, "rollback_errors", ()))
    parts: Sequence[Exception] = getattr(error, "exceptions", ())
    classes = tuple(kind.__name__ for kind in type(error).__mro__)
    return Failure(str(error), classes, fields, tuple(map(_failure, parts)))


def _do_load(run: Processes, step: Step) -> dict[str, Any]:
    net = load(run.stage, step)
    loaded = {
        "name": net.name,
        "cni_version": net.cni_version,
        "plugins": [plugin.type for plugin in net.plugins],
        "disable_check": net.disable_check,
        "disable_gc": net.disable_gc,
        "load_only_inlined_plugins": net.load_only_inlined_plugins,
    }
    return {"loaded": loaded, "warnings": net.warnings}


def _do_convert(_run: Processes, step: Step) -> dict[str, Any]:
    result = libcni.Result.from_bytes(step.body["text"])
    return {"result": read(result.as_version(step.body.get("to", result.cni_version)).text)}


def _do_parse_version(_run: Processes, step: Step) -> dict[str, Any]:
    return {"parsed": exact(parse_version(step.body["text"]))}


def _do_cached_result(run: Processes, step: Step) -> dict[str, Any]:
    result = run.client(step).get_network_list_cached_result(load(run.stage, step), runtime_conf(step))
    return {"result": None if result is None else read(result.text)}


def _do_cached_config(run: Processes, step: Step) -> dict[str, Any]:
    found = run.client(step).get_network_list_cached_config(load(run.stage, step), runtime_conf(step))
    if found is None:
        return {"config": None}
    config, rt = found
    return {"config": read(config), "args": exact(rt.args), "capability_args": exact(dict(rt.capability_args or {}))}


def _do_attachments(run: Processes, step: Step) -> dict[str, Any]:
    found = run.client(step).get_cached_attachments(step.body.get("container_id"))
    keys = ("container_id", "ifname", "network", "netns", "state", "path")
    return {"attachments": [{key: getattr(one, key) for key in keys} for one in found]}


def _do_inject(_run: Processes, step: Step) -> dict[str, Any]:
    return {"document": read(libcni.inject_conf(load_plugin(step), step.body["values"]).text)}


def _do_remove(run: Processes, step: Step) -> dict[str, Any]:
    for path in run.stage.removed_by(step):
        Path(path).unlink()
    return {}


def _do_write(run: Processes, step: Step) -> dict[str, Any]:
    for path, text in run.stage.written_by(step).items():
        Path(path).write_text(text, encoding="utf-8")
    return {}


_DO: dict[str, Callable[[Processes, Step], dict[str, Any]]] = {
    "add": lambda run, step: run.add(step),
    "add_one": lambda run, step: run.add(step),
    "attachments": _do_attachments,
    "cached_config": _do_cached_config,
    "cached_result": _do_cached_result,
    "check": lambda run, step: run.check(step),
    "check_one": lambda run, step: run.check(step),
    "convert": _do_convert,
    "del": lambda run, step: run.delete(step),
    "del_one": lambda run, step: run.delete(step),
    "gc": lambda run, step: run.gc(step),
    "inject": _do_inject,
    "load": _do_load,
    "parse": _do_convert,
    "parse_version": _do_parse_version,
    "remove": _do_remove,
    "status": lambda run, step: run.status(step),
    "validate": lambda run, step: run.validate(step),
    "version": lambda run, step: run.version(step),
    "write": _do_write,
}
