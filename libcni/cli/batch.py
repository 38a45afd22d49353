"""Implement add --batch and del --batch: many attachments at once, a progress bar, a table, a list of failures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import libcni
from libcni.cli.failures import error_data, exit_code, print_error
from libcni.cli.hints import UsageError
from libcni.cli.inputs import container_id_of, load_document, network_from_object, network_of
from libcni.cli.options import Option
from libcni.cli.render import Table, has_escapes
from libcni.cli.session import Session

BatchFile = Annotated[
    str | None,
    Option("--batch", metavar="FILE", help="A JSON or YAML list of {network, netns, container, ifname, ...}."),
]
Parallel = Annotated[int, Option("--parallel", metavar="NUMBER", min=1, help="How many of a batch run at once.")]

_KEYS = {"network", "netns", "container", "ifname", "args", "capabilities"}

if TYPE_CHECKING:
    from rich.progress import Progress

    _Network = str | libcni.NetworkConfigList
    _Request = tuple[_Network, libcni.RuntimeConf]


def run_batch(session: Session, file: str, named: object, run: Callable[..., Any], word: str) -> None:
    """Attach or detach all containers that a batch file lists.

    Args:
        session: the session of the command.
        file: the batch file.
        named: the arguments that name a single attachment; one that is not empty is a UsageError.
        run: ``add_many`` or ``del_many`` of an asyncio client, with its options.
        word: the state of an attachment after its verb, for the table.
    """
    import asyncio

    if named:
        raise UsageError("--batch FILE names the attachments; NETWORK, NETNS and --container contradict it")
    requests = _requests(file)
    with _progress(len(requests)) as advance:
        # If a signal ends the loop, it cancels the verbs that run, and their plugins are stopped.
        batch = asyncio.run(run(requests, on_item=advance))
    _finish(session, batch.items, word)


def _requests(file: str) -> list[_Request]:
    # The whole file is checked before the first verb runs: a mistake in the last entry must not leave half a batch.
    document = load_document(file)
    if not isinstance(document, list):
        raise libcni.ConfigError("it must be a list of attachments", file=file)
    return [_request(_Entry(one, file, f"[{index}]")) for index, one in enumerate(document)]


class _Entry(NamedTuple):
    """One entry of a batch file, with its location for errors."""

    value: Any
    file: str
    location: str

    def error(self, problem: str) -> libcni.ConfigError:
        return libcni.ConfigError(problem, file=self.file, location=self.location)

    def text(self, key: str) -> str:
        value = self.value.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(f'"{key}" must be text, not {value!r}')
        return value or ""

    def mapping(self, key: str) -> dict[str, Any] | None:
        value = self.value.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(f'"{key}" must be an object, not {value!r}')
        return value


def _request(entry: _Entry) -> _Request:
    if not isinstance(entry.value, dict):
        raise entry.error("an attachment must be an object with network and netns")
    unknown = ", ".join(map(str, entry.value.keys() - _KEYS))
    if unknown:
        raise entry.error(f"unknown keys: {unknown}; the known keys are: {', '.join(sorted(_KEYS))}")
    netns, container = entry.text("netns"), entry.text("container")
    if not netns and not container:
        raise entry.error('"netns" or "container" is missing')
    # YAML reads 10 as a number and yes as true, but CNI_ARGS are texts.
    args = {str(key): str(value) for key, value in (entry.mapping("args") or {}).items()}
    try:
        rt = libcni.RuntimeConf(
            container or container_id_of(netns),
            netns or None,
            entry.text("ifname") or "eth0",
            args=args or None,
            capability_args=entry.mapping("capabilities"),
        )
        rt.check()
        return _network(entry), rt
    except libcni.InvalidIdentifierError as error:
        raise entry.error(str(error)) from error


def _network(entry: _Entry) -> _Network:
    network = entry.value.get("network")
    if isinstance(network, dict):
        return network_from_object(network, f"{entry.file}: {entry.location}")
    name = entry.text("network")
    if not name:
        raise entry.error('"network" is missing')
    return network_of(name)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[libcni.BatchItem[Any]], None] | None]:
    """Show a progress bar if stderr is a terminal; yield the function to call at the end of each verb, or None."""
    bar = _bar()
    if bar is None:
        yield None
        return
    with bar as progress:
        task = progress.add_task("", total=total)
        failures = 0

        def advance(item: libcni.BatchItem[Any]) -> None:
            nonlocal failures
            failures += item.error is not None
            progress.update(task, advance=1, description=f"{failures} failed" if failures else "")

        yield advance


def _bar() -> Progress | None:
    """Return a progress bar, or None if stderr allows no escape sequences, or the extra cli is not installed."""
    if not has_escapes(sys.stderr):
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None

    # On stderr: stdout holds the table or the JSON, which a script may read.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _finish(session: Session, items: Sequence[libcni.BatchItem[Any]], word: str) -> None:
    rows = []
    for one in items:
        addresses = ", ".join(ip.address for ip in one.answer.ips) if isinstance(one.answer, libcni.Result) else ""
        state = "failed" if one.error else word
        rows.append([one.rt.container_id, _name(one), one.rt.ifname, addresses, state])
    columns = ("container", "network", "interface", "addresses", "state")
    session.show([_data(one, session) for one in items], Table(columns, rows, empty="the list is empty"))
    errors = [one.error for one in items if one.error is not None]
    if session.output == "text":
        for error in errors:
            print_error(error, session)
        print(f"{len(items) - len(errors)} {word}, {len(errors)} failed", file=sys.stderr)
    if errors:
        raise SystemExit(exit_code(libcni.CNIErrorGroup("batch", errors)))


def _name(one: libcni.BatchItem[Any]) -> str:
    return one.net if isinstance(one.net, str) else one.net.name


def _data(one: libcni.BatchItem[Any], session: Session) -> dict[str, Any]:
    about = {"container_id": one.rt.container_id, "network": _name(one), "ifname": one.rt.ifname}
    if one.error is not None:
        return {**about, "error": error_data(one.error, session)}
    return {**about, "result": one.answer.to_dict()} if isinstance(one.answer, libcni.Result) else about
