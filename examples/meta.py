"""A meta-plugin, as flannel's: it runs the plugin of ``delegate`` with the subnet that a file has.

{"type": "meta", "subnetFile": "/run/subnet", "delegate": {"type": "bridge", "bridge": "cni0"}}
"""

from __future__ import annotations

from libcni.plugin import ErrorCode, Plugin, PluginResult, Request, VerbError

plugin = Plugin("meta", about="run another plugin with the subnet of this node")


class Settings:
    """The keys of this plugin."""

    subnet_file: str
    delegate: dict[str, object]


def _delegate(request: Request) -> tuple[str, dict[str, object]]:
    """Return the type and the configuration of the delegate."""
    settings = request.load_config(Settings)
    try:
        with open(settings.subnet_file, encoding="utf-8") as file:
            subnet = file.read().strip()
    except OSError as error:
        problem = f"cannot read {settings.subnet_file}: {error.strerror}"
        raise VerbError(problem, code=ErrorCode.TRY_AGAIN_LATER) from error
    # A copy of the whole configuration: the delegate needs prevResult, runtimeConfig and the list for GC too.
    config = {**request.config, "ipam": {"type": "host-local", "subnet": subnet}, **settings.delegate}
    return str(config["type"]), config


@plugin.add
def add(request: Request) -> PluginResult:
    """Print the delegate's result."""
    return request.delegate_add(*_delegate(request))


@plugin.check
@plugin.delete
@plugin.gc
@plugin.status
def forward(request: Request) -> None:
    """Run the same verb of the delegate."""
    request.forward(*_delegate(request))


if __name__ == "__main__":
    plugin.run()
