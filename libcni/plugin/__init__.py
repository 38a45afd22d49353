"""Write a CNI plugin: register a function per verb; the protocol around it is handled here.

    from libcni.plugin import Plugin, Request

    plugin = Plugin("my-plugin", about="hand out one address")

    @plugin.add
    def add(request: Request) -> None:
        request.result.add_ip("10.1.0.5/16", gateway="10.1.0.1")

    @plugin.delete
    def delete(request: Request) -> None:
        pass

    if __name__ == "__main__":
        plugin.run()

A plugin is a new process per verb, so this package imports next to nothing: what a no-op does not need is
imported where it is first used.
"""

from __future__ import annotations

from libcni.errors import ErrorCode
from libcni.plugin.dispatch import Plugin
from libcni.plugin.failure import VerbError
from libcni.plugin.request import Request
from libcni.plugin.results import PluginResult

__all__ = ["ErrorCode", "Plugin", "PluginResult", "Request", "VerbError"]
