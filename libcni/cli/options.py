"""Define the options that all commands have (``command`` adds them) and the arguments that several share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from libcni.cli.failures import UsageError, report_errors
from libcni.cli.session import DEFAULTS, Output, Session

__all__ = [
    "AttachmentArgument", "CapArgs", "CniArgs", "Container", "IfName", "IfNameOrAll", "IgnoredNetns", "NetnsArgument",
    "NetworkArgument", "NetworkOption", "NoTrunc", "Quiet", "RecordedContainer", "SkipMissing", "command",
    "complete_network",
]  # fmt: skip

_PANEL = "Where and how"


def complete_network(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the configured networks whose name begins with ``incomplete``."""
    from libcni import CNIError, read_config_directory

    try:
        found = read_config_directory(ctx.params.get("conf_dir") or DEFAULTS["conf_dir"])
    except CNIError:
        return []
    return [net.name for net in found.networks if net.name.startswith(incomplete)]


def _complete_container(ctx: typer.Context, incomplete: str) -> list[str]:
    from libcni import CNIConfig, CNIError

    try:
        found = CNIConfig([], ctx.params.get("cache_dir") or DEFAULTS["cache_dir"]).get_cached_attachments()
    except CNIError:
        return []
    return sorted({one.container_id for one in found if one.container_id.startswith(incomplete)})


NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A network's name, or a path to a configuration (JSON, YAML or a NetworkAttachmentDefinition); -: stdin.",
        autocompletion=complete_network,
    ),
]
NetworkOption = Annotated[
    str, typer.Option("--network", "-n", metavar="NETWORK", help="Only this network.", autocompletion=complete_network)
]
AttachmentArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID[:IFNAME]",
        help="A container, or one of its interfaces. The beginning of an ID is enough.",
        autocompletion=_complete_container,
    ),
]
RecordedContainer = Annotated[
    str,
    typer.Option(
        "--container",
        "-c",
        metavar="ID",
        help="Only this container. The beginning of its ID is enough.",
        autocompletion=_complete_container,
    ),
]
NoTrunc = Annotated[bool, typer.Option("--no-trunc", help="Do not shorten container IDs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the IDs or names, one on each line.")]
NetnsArgument = Annotated[str, typer.Argument(metavar="NETNS", help="The network namespace, a path.")]
IfName = Annotated[str, typer.Option("--ifname", "-i", envvar="CNI_IFNAME", help="The interface inside the container.")]
Container = Annotated[
    str | None,
    typer.Option(
        "--container",
        "-c",
        metavar="ID",
        help="The container's ID; by default derived from NETNS, as cnitool does.",
        autocompletion=_complete_container,
    ),
]
CapArgs = Annotated[
    str,
    typer.Option(
        "--capabilities",
        envvar="CAP_ARGS",
        metavar="OBJECT|@FILE",
        help='Capability arguments, JSON or YAML: {"portMappings": [...]}.',
    ),
]
IfNameOrAll = Annotated[
    str,
    typer.Option("--ifname", "-i", envvar="CNI_IFNAME", help="The interface; eth0, or with --container alone: all."),
]
SkipMissing = Annotated[bool, typer.Option("--skip-missing", help="Skip plugins whose executable is missing.")]
IgnoredNetns = Annotated[str, typer.Argument(metavar="NETNS", help="Ignored, as cnitool does.")]
CniArgs = Annotated[str, typer.Option("--args", envvar="CNI_ARGS", metavar="K=V;K=V", help="CNI_ARGS.")]


def _common() -> list[inspect.Parameter]:
    def option(name: str, kind: Any, default: Any, *flags: str, **about: Any) -> inspect.Parameter:
        annotation = Annotated[kind, typer.Option(*flags, rich_help_panel=_PANEL, **about)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    return [
        option(
            "conf_dir", str, DEFAULTS["conf_dir"], "--conf-dir", envvar="NETCONFPATH", help="Network configurations.",
            is_eager=True,
        ),
        option("path", str, DEFAULTS["path"], "--path", envvar="CNI_PATH", help="Directories of plugins."),
        option(
            "cache_dir", str, DEFAULTS["cache_dir"], "--cache-dir", envvar="LIBCNI_CACHE_DIR", is_eager=True,
            help="Records and locks.",
        ),
        option(
            "owner", str, "", "--owner", envvar="LIBCNI_OWNER",
            help="The program that attachments belong to. Sweeps detach only the attachments of this owner.",
        ),
        option("timeout", float, 60.0, "--timeout", min=0, help="Seconds for each verb; 0: no limit."),
        option("output", Output, "text", "--output", "-o", help="The form of the answer."),
        option("verbose", bool, False, "--verbose", "-v", help="Show each plugin call as it happens."),
    ]  # fmt: skip


def command(function: Callable[..., object]) -> Callable[..., None]:
    """Add the common options to a command.

    The command gets a Session as its first argument. Its errors are printed and become exit codes.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = _common()

    @functools.wraps(function)
    def run(**given: Any) -> None:
        session = Session(**{one.name: given.pop(one.name) for one in common})
        with report_errors(session):
            if session.output == "openmetrics" and function.__name__ != "doctor":
                raise UsageError("only doctor has --output openmetrics")
            function(session, **given)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in [*own, *common]]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run
