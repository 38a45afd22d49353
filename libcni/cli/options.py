"""Options and arguments of commands: common ones, those of several commands, and the classes that declare them.

A command is a function. Its annotations say which options it has. typer reads them, and so does ``quick``, which takes
a tenth of typer's time; therefore nothing here imports typer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from libcni.cli.failures import report_errors
from libcni.cli.hints import UsageError
from libcni.cli.session import DEFAULTS, Output, Session

_PANEL = "Where and how"


class Argument:
    """An argument. ``keywords``: those of ``typer.Argument``."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


class Option:
    """An option. ``flags`` and ``keywords``: the arguments of ``typer.Option``."""

    def __init__(self, *flags: str, **keywords: Any) -> None:
        self.flags = flags
        self.keywords = keywords


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a command; ``default`` is ``...`` if it must be given."""

    name: str
    kind: Any
    declared: Argument | Option
    default: Any


def complete_network(ctx: Any, incomplete: str) -> list[str]:
    """Return the configured networks whose name begins with ``incomplete``."""
    from libcni import CNIError, read_config_directory

    try:
        found = read_config_directory(ctx.params.get("conf_dir") or DEFAULTS["conf_dir"])
    except CNIError:
        # No error may be printed into the line that somebody types.
        return []
    return [net.name for net in found.networks if net.name.startswith(incomplete)]


def _complete_container(ctx: Any, incomplete: str) -> list[str]:
    from libcni import CNIConfig, CNIError

    try:
        found = CNIConfig([], ctx.params.get("cache_dir") or DEFAULTS["cache_dir"]).get_cached_attachments()
    except CNIError:
        return []
    return sorted({one.container_id for one in found if one.container_id.startswith(incomplete)})


NetworkArgument = Annotated[
    str,
    Argument(
        metavar="NETWORK",
        help="A network's name, or a path to a configuration (JSON, YAML or a NetworkAttachmentDefinition); -: stdin.",
        autocompletion=complete_network,
    ),
]
NetworkOption = Annotated[
    str, Option("--network", "-n", metavar="NETWORK", help="Only this network.", autocompletion=complete_network)
]
AttachmentArgument = Annotated[
    str,
    Argument(
        metavar="ID[:IFNAME]",
        help="A container, or one of its interfaces. The beginning of an ID is enough.",
        autocompletion=_complete_container,
    ),
]
RecordedContainer = Annotated[
    str,
    Option(
        "--container",
        "-c",
        metavar="ID",
        help="Only this container. The beginning of its ID is enough.",
        autocompletion=_complete_container,
    ),
]
NoTrunc = Annotated[bool, Option("--no-trunc", help="Do not shorten container IDs.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only the IDs or names, one on each line.")]
NetnsArgument = Annotated[str, Argument(metavar="NETNS", help="The network namespace, a path.")]
IfName = Annotated[
    str, Option("--ifname", "-i", envvar="CNI_IFNAME", metavar="NAME", help="The interface inside the container.")
]
Container = Annotated[
    str | None,
    Option(
        "--container",
        "-c",
        metavar="ID",
        help="The container's ID; by default derived from NETNS, as cnitool does.",
        autocompletion=_complete_container,
    ),
]
CapArgs = Annotated[
    str,
    Option(
        "--capabilities",
        envvar="CAP_ARGS",
        metavar="OBJECT|@FILE",
        help='Capability arguments, JSON or YAML: {"portMappings": [...]}.',
    ),
]
IfNameOrAll = Annotated[
    str,
    Option(
        "--ifname",
        "-i",
        envvar="CNI_IFNAME",
        metavar="NAME",
        help="The interface; eth0, or with --container alone: all.",
    ),
]
SkipMissing = Annotated[bool, Option("--skip-missing", help="Skip plugins whose executable is missing.")]
IgnoredNetns = Annotated[str, Argument(metavar="NETNS", help="Ignored, as cnitool does.")]
CniArgs = Annotated[str, Option("--args", envvar="CNI_ARGS", metavar="K=V;K=V", help="CNI_ARGS.")]


def _common(name: str, kind: Any, default: Any, *flags: str, **about: Any) -> Parameter:
    return Parameter(name, kind, Option(*flags, rich_help_panel=_PANEL, **about), default)


_COMMON = [
    _common(
        "conf_dir", str, DEFAULTS["conf_dir"], "--conf-dir", envvar="NETCONFPATH", metavar="DIR",
        help="Network configurations.", is_eager=True,
    ),
    _common("path", str, DEFAULTS["path"], "--path", envvar="CNI_PATH", metavar="DIR[:DIR]", help="Plugins."),
    _common(
        "cache_dir", str, DEFAULTS["cache_dir"], "--cache-dir", envvar="LIBCNI_CACHE_DIR", metavar="DIR",
        is_eager=True, help="Records and locks.",
    ),
    _common(
        "owner", str, "", "--owner", envvar="LIBCNI_OWNER", metavar="NAME",
        help="The owner of what add attaches. gc and repair detach only its attachments.",
    ),
    _common("timeout", float, 60.0, "--timeout", metavar="SECONDS", min=0, help="Limit of each verb; 0: none."),
    _common("output", Output, "text", "--output", "-o", metavar="FORMAT",
        help="text, json or yaml; for doctor also openmetrics."),
    _common("verbose", bool, False, "--verbose", "-v", help="Show each plugin call as it happens."),
]  # fmt: skip


def parameters_of(function: Callable[..., object]) -> list[Parameter]:
    """Return a command's own parameters, without the session, and those that all commands have."""
    hints = get_type_hints(function, include_extras=True)
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    missing = [...] * (len(names) - len(defaults))
    own = [
        Parameter(name, hints[name].__origin__, hints[name].__metadata__[0], default)
        for name, default in zip(names, [*missing, *defaults], strict=True)
    ]
    return own + _COMMON


def run_command(function: Callable[..., object], given: dict[str, Any]) -> None:
    """Run a command with the values of its parameters. Its errors are printed and become exit codes."""
    session = Session(**{one.name: given.pop(one.name) for one in _COMMON})
    with report_errors(session):
        if session.output == "openmetrics" and function.__name__ != "doctor":
            raise UsageError("only doctor has --output openmetrics")
        function(session, **given)
