"""Execute vectors with this library and real processes, blocking or on asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nodes import Blocking

import libcni
import libcni.reports
from conformance.exact import exact, read
from conformance.observe import Failure, Seen
from conformance.stage import Stage, document_bytes
from conformance.vectors import Step
from libcni.config.versions import parse_version

_FIELDS = (
    "code", "container_id", "details", "exit_status", "ifname", "msg", "network", "plugin",
    "retryable", "signal", "stderr", "verb", "well_known",
)  # fmt: skip


_METHODS = {"add_one": "add", "check_one": "check", "del": "delete", "del_one": "delete", "parse": "convert"}
"""The methods of steps that have another name."""


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
            value, failed = attempt(lambda: getattr(self, _METHODS.get(step.kind, step.kind))(step))
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

    def load(self, step: Step) -> dict[str, Any]:
        net = load(self.stage, step)
        loaded = {
            "name": net.name,
            "cni_version": net.cni_version,
            "plugins": [plugin.type for plugin in net.plugins],
            "disable_check": net.disable_check,
            "disable_gc": net.disable_gc,
            "load_only_inlined_plugins": net.load_only_inlined_plugins,
        }
        return {"loaded": loaded, "warnings": net.warnings}

    def convert(self, step: Step) -> dict[str, Any]:
        result = libcni.Result.from_bytes(step.body["text"])
        return {"result": read(result.as_version(step.body.get("to", result.cni_version)).text)}

    def parse_version(self, step: Step) -> dict[str, Any]:
        return {"parsed": exact(parse_version(step.body["text"]))}

    def cached_result(self, step: Step) -> dict[str, Any]:
        result = self.client(step).get_network_list_cached_result(load(self.stage, step), runtime_conf(step))
        return {"result": None if result is None else read(result.text)}

    def cached_config(self, step: Step) -> dict[str, Any]:
        found = self.client(step).get_network_list_cached_config(load(self.stage, step), runtime_conf(step))
        if found is None:
            return {"config": None}
        config, rt = found
        return {
            "config": read(config),
            "args": exact(rt.args),
            "capability_args": exact(dict(rt.capability_args or {})),
        }

    def attachments(self, step: Step) -> dict[str, Any]:
        found = self.client(step).get_cached_attachments(step.body.get("container_id"))
        keys = ("container_id", "ifname", "network", "netns", "state", "path")
        return {"attachments": [{key: getattr(one, key) for key in keys} for one in found]}

    def remove(self, step: Step) -> dict[str, Any]:
        for path in self.stage.removed_by(step):
            Path(path).unlink()
        return {}

    def write(self, step: Step) -> dict[str, Any]:
        for path, text in self.stage.written_by(step).items():
            Path(path).write_text(text, encoding="utf-8")
        return {}


class OnAsyncio(Processes):
    """Do the steps with AsyncCNIConfig and real processes, each in an event loop of its own."""

    def client(self, step: Step) -> Any:
        """Return a client whose coroutines are run to their end where they are called."""
        return Blocking(libcni.AsyncCNIConfig(self.stage.path, **self._settings(step)))


def _policy(step: Step) -> libcni.DelPolicy | None:
    options = {key: value for key, value in step.options.items() if key != "timeout"}
    return libcni.DelPolicy(**options) if options else None


def _valid(step: Step) -> Any:
    valid = step.body["valid"]
    return None if valid is None else [(container_id, ifname) for container_id, ifname in valid]


def _reported(report: libcni.reports.ValidationReport) -> dict[str, Any]:
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
