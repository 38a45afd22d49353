"""Run another plugin on behalf of this one (spec 1.1.0, section 4)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from libcni.errors import CNIError, ErrorCode, InvalidOutputError, PluginError
from libcni.executor.find import find_plugin
from libcni.plugin.failure import VerbError
from libcni.plugin.reading import decode
from libcni.plugin.results import PluginResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libcni.plugin.request import Request

__all__ = ["add", "delegate"]


def add(request: Request, plugin_type: str, config: Mapping[str, Any] | None) -> PluginResult:
    """Run ADD of ``plugin_type`` and return its result; where that fails, run its DEL and raise what ADD raised."""
    output = _add_or_undo(request, plugin_type, config)
    return PluginResult.from_document(output, request.version)


def _add_or_undo(request: Request, plugin_type: str, config: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return _Delegate(request, "ADD", plugin_type, config).result()
    except PluginError:
        try:
            delegate(request, "DEL", plugin_type, config)
        except CNIError as error:
            sys.stderr.write(f"undoing the delegated ADD failed as well: {error}\n")
        raise


def delegate(request: Request, verb: str, plugin_type: str, config: Mapping[str, Any] | None) -> None:
    """Run ``verb`` of ``plugin_type``, whose output does not matter.

    Raises:
        PluginError: it failed.
        PluginNotFoundError: it is not on CNI_PATH.
    """
    _Delegate(request, verb, plugin_type, config).run()


class _Delegate:
    """Hold one call of a delegated plugin."""

    def __init__(self, request: Request, verb: str, plugin_type: str, config: Mapping[str, Any] | None) -> None:
        self.request = request
        self.verb = verb
        self.type = plugin_type
        self.stdin = request.stdin if config is None else json.dumps(config).encode()
        self.path = find_plugin(plugin_type, request.path)

    def run(self) -> bytes:
        """Return what the plugin printed, or raise PluginError. Its stderr is this process's."""
        env = {**self.request.env, "CNI_COMMAND": self.verb}
        try:
            done = subprocess.run([self.path], input=self.stdin, stdout=subprocess.PIPE, env=env, check=False)  # noqa: S603 - found on CNI_PATH
        except OSError as error:
            raise self._error(f"it cannot be started: {error}") from error
        if done.returncode:
            raise self._failed(done)
        return done.stdout

    def result(self) -> dict[str, Any]:
        """Return the result that the plugin printed."""
        output = self.run()
        try:
            return decode(output)
        except VerbError as error:
            raise self._error(f"it printed no result: {error.details}", InvalidOutputError, stdout=output) from error

    def _failed(self, done: subprocess.CompletedProcess[bytes]) -> PluginError:
        known = _end(done.returncode)
        try:
            document = decode(done.stdout)
            known["code"] = int(document.get("code", ErrorCode.INTERNAL))
        except (VerbError, TypeError, ValueError):
            how = " ".join(f"{name.replace('_', ' ')} {value}" for name, value in known.items())
            return self._error(f"{how}, and no error document", stdout=done.stdout, **known)
        known["msg"], known["details"] = str(document.get("msg", "")), str(document.get("details", ""))
        return self._error(known["msg"], stdout=done.stdout, **known)

    def _error(
        self, problem: str, kind: type[PluginError] = PluginError, *, stdout: bytes = b"", **known: Any
    ) -> PluginError:
        return kind(
            problem,
            plugin=self.type,
            path=self.path,
            verb=self.verb,
            network=self.request.name,
            container_id=self.request.container_id,
            ifname=self.request.ifname,
            stdout=stdout.decode(errors="backslashreplace"),
            **known,
        )


def _end(returncode: int) -> dict[str, Any]:
    return {"exit_status": returncode} if returncode > 0 else {"signal": -returncode}
