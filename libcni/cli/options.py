"""The arguments and options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import Any

from libcni._defaults import CACHE_DIR, CONF_DIR, PLUGIN_PATH, TIMEOUT
from libcni.cli.completion import containers, namespaces, networks, owners
from libcni.config.timeouts import seconds

Completer = Callable[..., Iterable[str]]


class Argument:
    """An argument or option of a command.

    Args:
        flags: as for ``ArgumentParser.add_argument``, and so are the other keywords.
        variable: the environment variable that replaces the default.
        complete: returns the values that a shell offers, as a completer of argcomplete.
    """

    def __init__(self, *flags: str, variable: str = "", complete: Completer | None = None, **keywords: Any) -> None:
        self.flags = flags
        self.variable = variable
        self.complete = complete
        self.keywords = keywords

    def but(self, **keywords: Any) -> Argument:
        """Return a copy of this argument with some keywords changed."""
        changed = {**self.keywords, **keywords}
        return Argument(*self.flags, variable=self.variable, complete=self.complete, **changed)

    @property
    def help(self) -> str:
        """The help text, with the environment variable and the default of the argument."""
        default = self.keywords.get("default")
        notes = [f"env: {self.variable}"] if self.variable else []
        if default and default is not True:
            notes.append(f"default: {default}".removesuffix(".0"))
        text: str = self.keywords["help"]
        return f"{text} [{'; '.join(notes)}]" if notes else text

    @property
    def preset(self) -> str:
        """The value if the option is not given: that of the environment variable, or the default."""
        preset: str = os.environ.get(self.variable) or self.keywords["default"]
        return preset

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Add the argument to a parser."""
        keywords = {**self.keywords, "default": self.preset} if self.variable else self.keywords
        action = parser.add_argument(*self.flags, **{**keywords, "help": self.help})
        vars(action)["completer"] = self.complete  # argcomplete reads it


NETWORK = Argument(
    "network", metavar="NETWORK", complete=networks,
    help="A network's name, or a path to a configuration (JSON or YAML); -: stdin.",
)  # fmt: skip
NETNS = Argument("netns", metavar="NETNS", complete=namespaces, help="The path of a network namespace.")
OPTIONAL_NETNS = NETNS.but(nargs="?", default=None)
IGNORED_NETNS = OPTIONAL_NETNS.but(help="Accepted and ignored, as in cnitool.")
CONTAINER = Argument(
    "container", metavar="CONTAINER", complete=containers,
    help="A container's ID; of a generated ID, the first twelve digits are enough.",
)  # fmt: skip
OPTIONAL_CONTAINER = CONTAINER.but(nargs="?", default=None)
ONLY_NETWORK = Argument("--network", "-n", default="", metavar="NETWORK", complete=networks, help="Only this network.")
ONLY_IFNAME = Argument("--ifname", "-i", default="", metavar="NAME", help="Only this interface.")
SELECTION = (CONTAINER, ONLY_IFNAME, ONLY_NETWORK)
"""The fields of ``libcni.cli.inputs.Selection``. A command with these arguments gets a Selection."""
OPTIONAL_SELECTION = (OPTIONAL_CONTAINER, ONLY_IFNAME, ONLY_NETWORK)
CONTAINER_ID = Argument(
    "--container", "-c", metavar="ID", complete=containers,
    help="The container's ID; by default derived from NETNS, as in cnitool.",
)  # fmt: skip
IFNAME = Argument(
    "--ifname", "-i", variable="CNI_IFNAME", default="eth0", metavar="NAME", help="The interface inside the container."
)
CNI_ARGS = Argument("--args", variable="CNI_ARGS", default="", metavar="K=V;K=V", help="Arguments for the plugins.")
CAPABILITIES = Argument(
    "--capabilities", variable="CAP_ARGS", default="", metavar="OBJECT|@FILE",
    help='Capability arguments, JSON or YAML: {"portMappings": [...]}.',
)  # fmt: skip
TARGET = (NETWORK, NETNS, IFNAME, CONTAINER_ID, CNI_ARGS, CAPABILITIES)
"""The fields of ``libcni.cli.inputs.Target``. A command with these arguments gets a Target."""
RECORDED_OR_TARGET = (
    NETWORK.but(nargs="?", default="", metavar="CONTAINER|NETWORK",
        help="A container's ID, or its first twelve digits. If NETNS is given: a network, as in cnitool."),
    OPTIONAL_NETNS, IFNAME.but(default="", help="The interface. Default: eth0 if NETNS is given, else all."),
    CONTAINER_ID, CNI_ARGS, CAPABILITIES, ONLY_NETWORK.but(dest="only"),
)  # fmt: skip
"""A container with -i and -n, or cnitool's NETWORK and NETNS."""
INCLUDE_GO = Argument("--include-go", action="store_true",
    help="Include records of Go libcni, which may belong to running containers of podman or containerd.")  # fmt: skip
SKIP_MISSING = Argument("--skip-missing", action="store_true", help="Skip plugins whose executable is missing.")

DIRECTORIES = (
    Argument("--conf-dir", variable="NETCONFPATH", default=CONF_DIR, metavar="DIR",
        help="The directory of network configurations."),
    Argument("--path", variable="CNI_PATH", default=PLUGIN_PATH, metavar="DIR[:DIR]",
        help="The directories of plugins."),
    Argument("--cache-dir", variable="LIBCNI_CACHE_DIR", default=CACHE_DIR, metavar="DIR",
        help="The directory of records and locks."),
)  # fmt: skip
OWNER = Argument(
    "--owner", variable="LIBCNI_OWNER", default="", metavar="NAME", complete=owners,
    help="The owner: add writes it to the record; gc, repair and reload --all change only its attachments.",
)  # fmt: skip
COMMON = (
    *DIRECTORIES, OWNER,
    Argument("--timeout", type=seconds, default=TIMEOUT, metavar="SECONDS",
        help="The time limit of each verb; 0: none."),
    Argument("--output", "-o", choices=("text", "json"), default="text", metavar="FORMAT", help="text or json."),
    Argument("--verbose", "-v", action="store_true", help="Show each plugin call as it happens."),
)  # fmt: skip
"""The options of all commands: the fields of ``Session``."""
