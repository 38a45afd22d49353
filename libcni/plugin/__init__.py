"""Write a CNI plugin: register a function for each verb; this package handles the protocol around it.

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

A plugin is a new process for each verb. So this package imports as little as it can; a module that a no-op does not
need is imported on first use.
"""

from __future__ import annotations

from libcni import _lazy
from libcni.plugin.dispatch import Plugin
from libcni.plugin.failure import VerbError
from libcni.plugin.request import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from libcni.plugin.results import PluginResult
    from libcni.plugin.runtime_config import (
        AddressRange,
        BandwidthLimits,
        DNSSettings,
        PortMappingEntry,
        RuntimeConfig,
    )
    from libcni.protocol.error_code import ErrorCode

__all__ = [
    "AddressRange", "BandwidthLimits", "DNSSettings", "ErrorCode", "Plugin", "PluginResult", "PortMappingEntry",
    "Request", "RuntimeConfig", "VerbError",
]  # fmt: skip


class _LazyErrorCode:
    """Stands for ``libcni.ErrorCode``, and imports it on first use.

    Plugins import the name at their start and need it for errors only; ``enum`` would take a third of the start.
    A module's ``__getattr__`` would not help, because ``from libcni.plugin import ErrorCode`` calls it at once.
    """

    def __getattr__(self, name: str) -> object:
        from libcni.protocol.error_code import ErrorCode

        return getattr(ErrorCode, name)

    def __call__(self, value: int) -> object:
        from libcni.protocol.error_code import ErrorCode

        return ErrorCode(value)


if not TYPE_CHECKING:
    ErrorCode = _LazyErrorCode()
    __getattr__ = _lazy(__name__, {
        "results": "PluginResult",
        "runtime_config": "AddressRange BandwidthLimits DNSSettings PortMappingEntry RuntimeConfig",
    })[0]  # fmt: skip
