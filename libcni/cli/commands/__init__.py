"""The commands, one file each. A command gets a Session and uses only the public API of libcni."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from libcni.cli.options import Argument


class Command(NamedTuple):
    """A command: its name, its module (which has a function of that name), and its section of the help."""

    name: str
    module: str
    section: str

    def load(self) -> tuple[Callable[..., Any], tuple[Argument, ...]]:
        """Import the command; return its function and its own arguments."""
        module = import_module(f"libcni.cli.commands.{self.module}")
        return getattr(module, self.module), module.ARGUMENTS

    @property
    def is_of_engines(self) -> bool:
        """Whether container engines call the command. Such a program has its own parser and options."""
        return self.section == _ENGINES


_ATTACH, _SEE, _REPAIR, _ENGINES = "Attach and detach (like cnitool)", "See", "Repair", "Called by container engines"

COMMANDS = (
    Command("add", "add", _ATTACH),
    Command("check", "check", _ATTACH),
    Command("del", "delete", _ATTACH),
    Command("gc", "gc", _ATTACH),
    Command("status", "status", _ATTACH),
    Command("networks", "networks", _SEE),
    Command("attachments", "attachments", _SEE),
    Command("show", "show", _SEE),
    Command("explain", "explain", _SEE),
    Command("doctor", "doctor", _REPAIR),
    Command("repair", "repair", _REPAIR),
    Command("reload", "reload", _REPAIR),
    Command("forget", "forget", _REPAIR),
    Command("oci-hook", "oci_hook", _ENGINES),
    Command("netavark-plugin", "netavark_plugin", _ENGINES),
)
