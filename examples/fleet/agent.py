"""A node agent: keep what is attached on this node as a desired-state file says. Run it under any orchestrator.

    python agent.py --dry-run                                  # say what would change, and change nothing
    python agent.py --desired /etc/libcni-fleet/desired.yaml
    python agent.py --healthy /run/libcni-fleet/status.json    # exit status 0: it runs, and all is as desired

It attaches what is missing, attaches again what differs or was damaged, and detaches what has gone. If something fails,
it tries again, later each time; the other containers go on. One agent per record directory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from endpoints import Endpoints, parse_address
from filelock import FileLock, Timeout
from neighbours import in_reach, look
from reconcile import NodeAgent, State

from libcni import AsyncCNIConfig, CNIError, LoggingObserver
from libcni.manager import AsyncNetworkManager

logger = logging.getLogger("fleet")

DIFFERS, REFUSED = 1, 2
"""Exit statuses: not as desired; not started."""


class JSONFormatter(logging.Formatter):
    """One JSON object a line; the fields that a record has besides the usual ones are members of it."""

    _USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        row: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        row |= {name: value for name, value in vars(record).items() if name not in self._USUAL}
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


def write_status(path: str, state: State) -> None:
    """Write the status file, so that a reader sees the old one or the new one."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(state.to_dict(), file)
        os.replace(f"{path}.new", path)
    except OSError as error:  # a full /run must not stop the work; --healthy notices that the file gets old
        logger.warning("the status file %s cannot be written: %s", path, error)


def is_healthy(path: str, age: float) -> bool:
    """Return whether a status file is at most ``age`` seconds old, and says that all is as desired."""
    try:
        with open(path, encoding="utf-8") as file:
            status = json.load(file)
        return bool(status["converged"]) and time.time() - os.stat(path).st_mtime <= age
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: it must be greater than 0")
    return seconds


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return number


def _owner(text: str) -> str:
    if not text:
        # "" owns all records without owner: those of Go's runtimes
        raise argparse.ArgumentTypeError("it must not be empty: the agent would own what other runtimes attached")
    return text


def _address(text: str) -> str | tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description="Keep what is attached on this node as a file says. @FILE stands for the options in a file.",
        fromfile_prefix_chars="@",
        epilog="Exit status: 0 all is as desired; 1 it is not (--once, --dry-run, --healthy); 2 not started.",
    )
    files = parser.add_argument_group("files")
    files.add_argument("--desired", default="/etc/libcni-fleet/desired.yaml", help="the desired-state file")
    files.add_argument("--conf-dir", default="/etc/cni/net.d", help="the networks' configurations")
    files.add_argument("--plugin-dir", action="append", help="may be given several times; by default /opt/cni/bin")
    files.add_argument("--cache-dir", default="/var/lib/libcni-fleet", help="the agent's own records")
    files.add_argument("--status", default="/run/libcni-fleet/status.json", help="the status file")
    reach = parser.add_argument_group("what it may touch")
    reach.add_argument("--owner", type=_owner, default="libcni-fleet", help="it touches only this owner's attachments")
    reach.add_argument(
        "--neighbour",
        action="append",
        metavar="DIR",
        help="other programs' records, which are only read; by default /var/lib/cni",
    )
    reach.add_argument("--leave-others", action="store_true", help="start where others' records are, and leave them")
    reach.add_argument("--gc", action="store_true", help="call the plugins' GC on networks that nobody else uses")
    reach.add_argument(
        "--changes-per-minute",
        type=_count,
        default=30,
        metavar="N",
        help="how many complete attachments it detaches or replaces a minute (default 30)",
    )
    pace = parser.add_argument_group("when")
    pace.add_argument("--interval", type=_seconds, default=1.0, help="seconds between two looks at the files")
    pace.add_argument("--check-interval", type=_seconds, default=60.0, help="seconds between two CHECKs of everything")
    watch = parser.add_argument_group("watching it")
    watch.add_argument("--listen", type=_address, help="unix:PATH or 127.0.0.1:PORT, for /healthz, /readyz, /metrics")
    watch.add_argument("--log-format", choices=("json", "text"), default="json")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="one round with CHECK, and end")
    mode.add_argument("--dry-run", action="store_true", help="run CHECK, print what would change, and end")
    mode.add_argument("--healthy", metavar="STATUS", help="only say whether an agent's status file is good, and end")
    return parser


def make_agent(options: argparse.Namespace) -> NodeAgent:
    """Return the agent that the options describe."""
    observer = LoggingObserver(level=logging.DEBUG)
    cni = AsyncCNIConfig(
        options.plugin_dir or ["/opt/cni/bin"],
        options.cache_dir,
        conf_dir=options.conf_dir,
        owner=options.owner,
        observer=observer,
    )
    return NodeAgent(
        AsyncNetworkManager(cni),
        options.desired,
        neighbours=_neighbours(options),
        changes_per_minute=options.changes_per_minute,
        gc=options.gc,
        on_state=None if options.dry_run else lambda state: write_status(options.status, state),
    )


def _neighbours(options: argparse.Namespace) -> list[str]:
    return options.neighbour or ["/var/lib/cni"]


def refusal(options: argparse.Namespace, agent: NodeAgent) -> str:
    """Return why the agent must not start with these options, or ""."""
    view = look(options.cache_dir, options.owner, _neighbours(options))
    found = in_reach(view, [net.name for net in agent.manager.networks] if options.gc else [])
    if not found or options.leave_others:
        return ""
    shown = "\n".join(f"  {one}" for one in found[:10])
    more = f"\n  and {len(found) - 10} more" if len(found) > 10 else ""  # noqa: PLR2004 - as many as are shown
    return (
        f"not started: other programs' attachments are in reach of owner {options.owner}:\n{shown}{more}\n"
        "Give the agent a --cache-dir of its own, or --leave-others: then it does not touch them."
    )


async def serve(options: argparse.Namespace, agent: NodeAgent) -> int:
    """Run the agent: one round, or until TERM or INT."""
    if options.once or options.dry_run:
        state = await agent.reconcile(check=True, dry_run=options.dry_run)
        if options.dry_run:
            for change in state.changes:
                print(change)
            for one, error in state.failing.items():
                print(f"cannot decide {one}: {error}")
            for problem in state.problems:
                print(f"problem: {problem}")
        return 0 if state.converged else DIFFERS
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    endpoints = Endpoints(agent)

    async def beat() -> None:
        while True:
            endpoints.beat()
            await asyncio.sleep(1.0)

    with contextlib.ExitStack() as stack:
        if options.listen is not None:
            logger.info("listening on %s", stack.enter_context(endpoints.serving(options.listen)))
        stack.enter_context(agent.manager.watch())
        beating = asyncio.create_task(beat())
        try:
            await agent.run(stop, interval=options.interval, check_interval=options.check_interval)
        finally:
            beating.cancel()
    return 0


def start(options: argparse.Namespace) -> int:
    """Make the agent and run it, unless it must not start."""
    agent = make_agent(options)
    if problem := refusal(options, agent):
        print(problem, file=sys.stderr)
        return REFUSED
    return asyncio.run(serve(options, agent))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parser().parse_args(arguments)
    if options.healthy:
        return 0 if is_healthy(options.healthy, 3 * options.check_interval) else DIFFERS
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if options.log_format == "json" else logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        if options.dry_run:  # it writes nothing, so an agent may run at the same time
            return start(options)
        os.makedirs(options.cache_dir, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(options.status) or ".", exist_ok=True)
        with FileLock(os.path.join(options.cache_dir, "agent.lock"), timeout=0):
            return start(options)
    except Timeout:
        print(f"not started: another agent works on {options.cache_dir}", file=sys.stderr)
    except (CNIError, OSError) as error:
        print(f"not started: {error}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
