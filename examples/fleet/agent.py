"""A node agent: keep what is attached on this node as a desired-state file says. An example to copy and change.

    python agent.py --dry-run                                  # print what would change, and change nothing
    python agent.py                                            # follow the file until TERM or INT
    python agent.py --healthy /run/libcni-fleet/status.json    # exit status 0: it runs, and all is as desired

A round compares each container with its records, attaches what is missing, replaces what differs and detaches what is
not wanted any more. An error stops one container only, which is tried again. One agent per record directory.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import yaml
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from libcni import Attachment, CNIConfig, CNIError, ConfigError, ErrorCode, NotAttachedError, PluginError, VersionError
from libcni.manager import Container, NetworkManager, NetworkRequest, PlannedAttachment

logger = logging.getLogger("fleet")

OWNER = "libcni-fleet"  # only attachments of this owner are detached
AT_ONCE = 16  # how many containers are worked on at the same time
DIFFERS, REFUSED = 1, 2  # exit statuses: not as desired; not started

Plan = Sequence[PlannedAttachment]
Recorded = Sequence[Attachment]
DAMAGE = {None, ErrorCode.UNKNOWN, ErrorCode.UNKNOWN_CONTAINER, ErrorCode.INVALID_NETNS, ErrorCode.INTERNAL}
"""The codes with which CHECK says that the attachment is wrong. None is a code of the plugin's own."""


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")
    args: dict[str, str] = {}
    capability_args: dict[str, JsonValue] | None = Field(None, alias="capabilities")


class _Network(_Given):
    network: str = Field(alias="name")
    ifname: str | None = None
    network_args: dict[str, JsonValue] | None = None


class _Container(_Given):
    id: str
    netns: str
    networks: list[str | _Network] | None = None

    def container(self) -> Container:
        rows = self.networks
        networks: Any = rows and [one if isinstance(one, str) else NetworkRequest(**vars(one)) for one in rows]
        return Container(**vars(self) | {"networks": networks})


class _Desired(BaseModel):
    # Required, and not null: an empty file never means "no container". Only "containers: []" does.
    containers: list[_Container]


def read_desired(path: str) -> dict[str, Container]:
    """Return the containers that the node should have, by ID. Raises ConfigError if the file is missing or wrong."""
    try:
        with open(path, "rb") as file:
            rows = _Desired.model_validate(yaml.safe_load(file)).containers
    except (OSError, UnicodeError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"the desired state cannot be read: {' '.join(str(error).split())}", file=path) from error
    containers = {one.id: one.container() for one in rows}
    if len(containers) < len(rows):
        raise ConfigError("a container is in the desired state more than once", file=path)
    return containers


class Records(NamedTuple):
    """The agent's attachments by container ID; those of others; the agent's records that cannot be read."""

    own: dict[str, list[Attachment]]
    others: dict[str, str]
    unreadable: list[str]


def read_records(cni: CNIConfig, neighbours: Sequence[str]) -> Records:
    """Read the agent's directory and those of other programs. Nothing is locked or changed."""
    records = Records({}, {}, [])
    for one in cni.get_cached_attachments():
        if not one.container_id:
            records.unreadable.append(f"{one.path}: {one.problem or 'the record names no container'}")
        elif one.owner == cni.owner:
            records.own.setdefault(one.container_id, []).append(one)
        else:
            records.others[one.container_id] = one.path
    for directory in neighbours:
        try:
            found = CNIConfig([], directory).get_cached_attachments()
        except CNIError as error:
            logger.warning("the records of another program cannot be read: %s", error)
        else:  # it may be the agent's own directory
            records.others.update({one.container_id: one.path for one in found if one.owner != cni.owner})
    return records


class Change(NamedTuple):
    """What a container needs: attachments to detach first, then attachments to make, and why."""

    detach: Recorded
    attach: Plan
    reasons: str


def compare(planned: Plan, recorded: Recorded, damaged: Mapping[tuple[str, str], str]) -> Change | None:
    """Return the change that makes the records those of the plan, or None. ``damaged``: what CHECK has found."""
    wanted = {(one.net.name, one.rt.ifname): one for one in planned}
    found = {(one.network, one.ifname): one for one in recorded}
    problems = dict.fromkeys(wanted.keys() - found.keys(), "not attached")
    for key, one in found.items():
        if key not in wanted:
            problems[key] = "not wanted any more"
        elif problem := difference(wanted[key], one) or damaged.get(key):
            problems[key] = problem
    reasons = [f"{ifname} on network {network}: {problem}" for (network, ifname), problem in sorted(problems.items())]
    detach = [one for key, one in found.items() if key in problems]
    attach = [one for key, one in wanted.items() if key in problems]
    return Change(detach, attach, "; ".join(reasons)) if problems else None


def difference(wanted: PlannedAttachment, recorded: Attachment) -> str:
    """Return what of a recorded attachment differs from the plan, or ""."""
    if recorded.state != "ready":
        return f"its record is {recorded.state}"
    net, rt, record = wanted.net, wanted.rt, recorded.record
    # The plugins as ADD used them, drop-in files included. Spaces and the order of keys do not count.
    pairs = {
        "netns": (rt.netns, recorded.netns),
        "args": (dict(rt.args or ()), dict(recorded.args)),
        "capabilities": (dict(rt.capability_args or {}), dict(recorded.capability_args)),
        "network_args": (dict(rt.network_args or {}), json.loads(record.network_args or "{}")),
        "cniVersion": (net.cni_version, record.version),
        "configuration": ([json.loads(one.text) for one in net.plugins], [json.loads(one) for one in record.plugins]),
    }
    changed = [name for name, (now, then) in pairs.items() if now != then]
    return f"changed: {', '.join(changed)}" if changed else ""


class NodeAgent:
    """Keep one node as desired; ``neighbours``: the record directories of other programs, which are only read.

    At most ``changes_per_minute`` changes detach complete attachments in 60 seconds: a bad file must not empty a node
    at once. On a dry run all changes wait.
    """

    def __init__(
        self, manager: NetworkManager, desired: str, neighbours: Sequence[str], changes_per_minute: int = 30,
        *, dry_run: bool = False,
    ) -> None:  # fmt: skip
        self.manager = manager
        self.stop = threading.Event()
        self.converged = False
        self.failing: dict[str, str] = {}  # container ID to the error
        self.waiting: dict[str, str] = {}  # container ID to the change that waits
        self._desired_file, self._neighbours, self._dry_run = desired, neighbours, dry_run
        self._desired: dict[str, Container] | None = None  # of the last good file
        self._disruptions: deque[float] = deque(maxlen=changes_per_minute)  # when the latest ones were
        self._lock = threading.Lock()  # for the line above
        self._unproven: set[str] = set()  # containers that were repaired, and CHECK has not succeeded since

    def run(self, interval: float, check_interval: float, on_status: Callable[[dict[str, Any]], object]) -> None:
        """Do a round every ``interval`` seconds, and one with CHECK every ``check_interval``, until told to stop."""
        next_check = 0.0
        while not self.stop.is_set():
            check = time.monotonic() >= next_check
            if check:
                next_check = time.monotonic() + check_interval
            self.manager.reload()
            on_status(self.reconcile(check=check))
            self.stop.wait(interval)

    def reconcile(self, *, check: bool = False) -> dict[str, Any]:
        """Do one round and return the status. ``check``: run CHECK of all, not only of what was not in order."""
        again = self.failing.keys() | self.waiting.keys() | self._unproven
        self.failing, self.waiting, problems = {}, {}, []
        try:
            self._desired = read_desired(self._desired_file)
        except CNIError as error:  # the last good file stays in force; before the first one nothing is done
            problems.append(str(error))
        try:
            records = read_records(self.manager.cni, self._neighbours)
        except CNIError as error:
            problems.append(str(error))
        else:
            problems += records.unreadable
            if (wanted := self._desired) is not None:
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    for one in sorted(wanted.keys() | records.own.keys()):
                        pool.submit(self._try, one, wanted.get(one), records, check=check or one in again)
        problems += [f"network {name}: its file is unusable" for name in self.manager.configuration.kept]
        logger.log(logging.WARNING if problems else logging.DEBUG, "problems: %s", "; ".join(problems) or "none")
        self.converged = not (self.failing or self.waiting or problems)
        return {"converged": self.converged, "failing": self.failing, "waiting": self.waiting, "problems": problems}

    def _try(self, container_id: str, container: Container | None, records: Records, *, check: bool) -> None:
        """Bring one container into its desired state. An error stops no other container."""
        try:
            if container_id in records.others:  # IPAM plugins know a container by its ID alone
                raise CNIError(f"the container belongs to another program: {records.others[container_id]}")
            planned = self.manager.plan(container) if container is not None else ()
            recorded = records.own.get(container_id, [])
            change = compare(planned, recorded, {})
            if change is not None:
                self._apply(container_id, change)
            elif check:
                self._repair(container_id, planned, recorded)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and the others go on
            logger.warning("%s: %s", container_id, error)
            self.failing[container_id] = str(error)

    def _repair(self, container_id: str, planned: Plan, recorded: Recorded) -> None:
        """Run CHECK of a container, and attach what is damaged again, once."""
        damaged = self._find_damage(planned)
        change = compare(planned, recorded, damaged)
        if change is None:
            self._unproven.discard(container_id)
        elif container_id in self._unproven:  # a CHECK that fails on a sound attachment must not cut it off for ever
            raise CNIError(f"CHECK still fails after a repair: {change.reasons}")
        elif self._apply(container_id, change):
            self._unproven.add(container_id)

    def _find_damage(self, planned: Plan) -> dict[tuple[str, str], str]:
        """Return why CHECK of a network and interface finds the attachment damaged."""
        damaged = {}
        for one in planned:
            try:
                self.manager.cni.check_network_list(one.net, one.rt)
            except VersionError:  # before 0.4.0 there is no CHECK
                continue
            except NotAttachedError as error:  # its interface or its namespace no longer exists
                if error.state != "gone":
                    raise
                damaged[one.net.name, one.rt.ifname] = str(error)
            except PluginError as error:
                if error.known_fault:  # of the plugin: the container may be in order
                    continue
                # A timeout, a crash, or a plugin that could not look is no reason to detach anything.
                if error.code is None or error.well_known not in DAMAGE:
                    raise
                damaged[one.net.name, one.rt.ifname] = str(error)
        return damaged

    def _apply(self, container_id: str, change: Change) -> bool:
        """Do one change, unless it has to wait; return whether it was done."""
        disruptive = any(one.state == "ready" for one in change.detach)
        if self._dry_run or self.stop.is_set() or (disruptive and not self._may_disrupt()):
            self.waiting[container_id] = change.reasons
            return False
        logger.info("%s: %s", container_id, change.reasons)
        for attachment in change.detach:
            self.manager.cni.del_attachment(attachment)
        for one in change.attach:
            self.manager.cni.add_network_list(one.net, one.rt)
        self._unproven.discard(container_id)
        return True

    def _may_disrupt(self) -> bool:
        now, latest = time.monotonic(), self._disruptions
        with self._lock:
            if may := len(latest) < (latest.maxlen or 0) or latest[0] <= now - 60:
                latest.append(now)  # drops the oldest one
            return may


def write_status(path: str, status: dict[str, Any]) -> None:
    """Replace the status file in one step."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(status, file)
        os.replace(f"{path}.new", path)
    except OSError as error:  # a full /run must not stop the work; --healthy notices that the file gets old
        logger.warning("the status file %s cannot be written: %s", path, error)


def is_healthy(path: str, age: float) -> bool:
    """Return whether a status file is at most ``age`` seconds old, and says that all is as desired."""
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["converged"]) and time.time() - os.stat(path).st_mtime <= age
    except (OSError, ValueError, KeyError, TypeError):
        return False


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description="Keep what is attached on this node as a file says. @FILE stands for the options in a file.",
        fromfile_prefix_chars="@",
        epilog="Exit status: 0 all is as desired; 1 it is not (--once, --dry-run, --healthy); 2 not started.",
    )
    add = parser.add_argument
    add("--desired", default="/etc/libcni-fleet/desired.yaml", help="the desired-state file")
    add("--conf-dir", default="/etc/cni/net.d", help="the networks' configurations")
    add("--plugin-dir", default="/opt/cni/bin", help="the plugins")
    add("--cache-dir", default="/var/lib/libcni-fleet", help="the agent's own records")
    add("--neighbour", action="append", metavar="DIR", help="other programs' records; by default /var/lib/cni")
    add("--status", default="/run/libcni-fleet/status.json", help="the status file")
    add("--interval", type=float, default=5.0, help="seconds between two rounds")
    add("--check-interval", type=float, default=60.0, help="seconds between two CHECKs of everything")
    add("--changes-per-minute", type=int, default=30, help="how many changes may detach complete attachments")
    add("--once", action="store_true", help="do one round with CHECK")
    add("--dry-run", action="store_true", help="run CHECK and print what would change")
    add("--healthy", metavar="STATUS", help="say whether the agent of a status file is well")
    return parser


def start(options: argparse.Namespace) -> int:
    """Run the agent: one round, or until TERM or INT."""
    cni = CNIConfig([options.plugin_dir], options.cache_dir, conf_dir=options.conf_dir, owner=OWNER)
    given = (options.desired, options.neighbour or ["/var/lib/cni"], options.changes_per_minute)
    agent = NodeAgent(NetworkManager(cni), *given, dry_run=options.dry_run)
    if options.dry_run:
        agent.reconcile(check=True)
        print(*map(": ".join, [*agent.waiting.items(), *agent.failing.items()]), sep="\n")
    elif options.once:
        write_status(options.status, agent.reconcile(check=True))
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop.set())  # running changes end, and no other begins
        agent.run(options.interval, options.check_interval, lambda status: write_status(options.status, status))
        return 0
    return 0 if agent.converged else DIFFERS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parser().parse_args(arguments)
    if options.healthy:
        return 0 if is_healthy(options.healthy, 3 * options.check_interval) else DIFFERS
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        if options.dry_run:  # writes nothing, so an agent may run at the same time
            return start(options)
        for directory in (options.cache_dir, os.path.dirname(options.status)):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        with FileLock(os.path.join(options.cache_dir, "agent.lock"), timeout=0):
            return start(options)
    except (CNIError, OSError, Timeout) as error:
        print(f"not started: {error}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
