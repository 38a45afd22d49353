"""The commands, one file each. A command gets a Session and uses only the public API of libcni."""

from __future__ import annotations

from libcni._dataclass import dataclass

TYPE_CHECKING = False  # typing takes a tenth of the help of the program
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from libcni.cli.options import Argument


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, its module (which has a function of that name), and its section and line of the help.

    The line repeats the first line of the function's docstring, so that the help need not import all commands.
    """

    name: str
    module: str
    section: str
    summary: str

    def load(self) -> tuple[Callable[..., Any], tuple[Argument, ...]]:
        """Import the command; return its function and its own arguments."""
        from importlib import import_module  # the help of the program loads no command

        module = import_module(f"libcni.cli.commands.{self.module}")
        return getattr(module, self.module), module.ARGUMENTS

    @property
    def is_of_engines(self) -> bool:
        """Whether container engines call the command. Such a command has its own parser and options."""
        return self.section == _ENGINES


_ATTACH, _SEE, _REPAIR, _ENGINES = "Attach and detach (like cnitool)", "See", "Repair", "Called by container engines"

COMMANDS = (
    Command("add", "add", _ATTACH, "Attach a container to a network."),
    Command("check", "check", _ATTACH, "Check a container."),
    Command("del", "delete", _ATTACH, "Detach a container."),
    Command("gc", "gc", _ATTACH, "Detach the attachments of a network except the valid ones."),
    Command("status", "status", _ATTACH, "Ask whether a network can serve ADD."),
    Command("networks", "networks", _SEE, "List the configured networks, and files that cannot be used."),
    Command("attachments", "attachments", _SEE, "List the recorded attachments and their state."),
    Command("show", "show", _SEE, "Show all recorded data of a container."),
    Command("explain", "explain", _SEE, "Show which plugins each verb would run."),
    Command("doctor", "doctor", _REPAIR, "Check this node, and print the commands that repair it."),
    Command("repair", "repair", _REPAIR, "Repair this node."),
    Command("reload", "reload", _REPAIR, "Detach containers and attach them again in place."),
    Command("forget", "forget", _REPAIR, "Remove the records of a container, and run no plugin."),
    Command("oci-hook", "oci_hook", _ENGINES, "Attach containers of runc, crun and youki as their hook."),
    Command(
        "netavark-plugin", "netavark_plugin", _ENGINES, "Attach containers of podman 5 and 6 as a netavark driver."
    ),
)
