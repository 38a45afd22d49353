"""A service for many short jobs, each a container on networks of its own: the asyncio sister of runtime.py. Needs root.

It reads a job from each line of stdin, and prints how each has ended:

    {"name": "job1", "networks": ["front", "back"], "command": ["wget", "-qO-", "http://10.61.0.1/"]}

SIGTERM ends it: running jobs are killed and detached. After SIGKILL its jobs are dead, too, and the next start detaches
them. Nothing else is stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import libcni
from libcni.manager import AsyncNetworkManager, Container

HOME = Path(os.environ.get("RUNTIME_HOME", "/run/service-example"))
PATIENCE = 120.0  # seconds for a set-up: its turn among all jobs, locks and plugins
# The kernel kills the job if the service dies: unshare gets the signal, and hands it on to the job's process 1.
CONTAINER = ["setpriv", "--pdeathsig", "KILL", "nsenter"]
PROCESSES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def make_manager() -> AsyncNetworkManager:
    """Return a manager that makes the jobs' namespaces, and detaches attachments of this service only."""
    cni = libcni.AsyncCNIConfig(
        os.environ.get("CNI_PATH", "/opt/cni/bin:/usr/lib/cni"),
        os.environ.get("LIBCNI_CACHE_DIR", "/var/lib/cni"),
        conf_dir=os.environ.get("NETCONFPATH", "/etc/cni/net.d"),
        owner="service-example",
        max_verbs=32,  # jobs that are attached or detached at once; the others wait in order
    )
    return AsyncNetworkManager(cni, namespaces=HOME / "netns")


async def run_job(manager: AsyncNetworkManager, job: dict[str, Any]) -> str:
    """Attach a job, run its command and detach it; return how it has ended."""
    container = Container(job["name"], None, job["networks"])
    try:
        async with manager.attached(container, timeout=PATIENCE, on_cancel="rollback") as result:
            command = [*CONTAINER, f"--net={result.netns}", *PROCESSES, *job["command"]]
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
            try:
                return f"exit status {await process.wait()}"
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    except libcni.CNIError as error:
        return f"failed: {error}"


async def lines() -> AsyncIterator[str]:
    """Yield the lines of stdin: a pipe, a terminal, a file or /dev/null."""
    try:
        with select.epoll() as poll:
            poll.register(sys.stdin, select.EPOLLIN)
    except PermissionError:  # a file or /dev/null: an event loop cannot wait for it, and need not
        for text in sys.stdin:
            yield text
        return
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode()


async def serve(manager: AsyncNetworkManager) -> None:
    """Run jobs until stdin ends, and print how each has ended; cancelled, end them all."""

    async def run_and_report(job: dict[str, Any]) -> None:
        print(job["name"], await run_job(manager, job), flush=True)

    async with asyncio.TaskGroup() as jobs:
        async for line in lines():
            jobs.create_task(run_and_report(json.loads(line)))


async def detach_leftovers(manager: AsyncNetworkManager) -> None:
    """Detach all attachments of this service. One that cannot be detached must not stop the service: it is printed."""
    for error in (await manager.recover([])).errors:
        print(error, file=sys.stderr)


async def main() -> None:
    """Detach the leftovers of an earlier run, then serve."""
    manager = make_manager()
    await detach_leftovers(manager)  # no job outlives the service
    service = asyncio.create_task(serve(manager))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, service.cancel)
    await asyncio.wait([service])
    await detach_leftovers(manager)  # a job may have been cancelled while it was detached
    if not service.cancelled():
        service.result()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    asyncio.run(main())
