"""An IPAM plugin that hands out the lowest free number."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from libcni.plugin import ErrorCode, Plugin, Request, VerbError

plugin = Plugin("counter", about="hand out 10.77.0.2, .3, .4 ...")


@contextmanager
def pool(request: Request) -> Iterator[tuple[str, dict[int, str]]]:
    """Lock the network's directory, so that no other call changes it; give its path and the owner of each number."""
    home = os.path.join(request.config["ipam"]["dataDir"], request.name)
    os.makedirs(home, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield home, {int(number): os.readlink(f"{home}/{number}") for number in os.listdir(home)}
    finally:
        os.close(descriptor)


def free(owners: dict[int, str]) -> int:
    """Return the lowest free number, or 0."""
    return next((number for number in range(2, 255) if number not in owners), 0)


def owner(request: Request) -> str:
    """Return the text for the attachment that has a number."""
    return f"{request.container_id} {request.ifname}"


@plugin.add
def add(request: Request) -> None:
    """Give the interface a number."""
    with pool(request) as (home, owners):
        if owner(request) in owners.values():
            raise VerbError("this interface has an address already", code=100)
        number = free(owners)
        if not number:
            raise VerbError("no free address", code=ErrorCode.TRY_AGAIN_LATER)
        # A link is there with its owner or not at all, even if this process is killed. A file could be empty.
        os.symlink(owner(request), f"{home}/{number}")
    request.result.add_ip(f"10.77.0.{number}/24", gateway="10.77.0.1")


@plugin.check
def check(request: Request) -> None:
    """Fail if the interface has no number."""
    with pool(request) as (_, owners):
        if owner(request) not in owners.values():
            raise VerbError("the address no longer exists", code=ErrorCode.UNKNOWN_CONTAINER)


@plugin.delete
def delete(request: Request) -> None:
    """Free the interface's number."""
    with pool(request) as (home, owners):
        for number in [number for number, name in owners.items() if name == owner(request)]:
            os.unlink(f"{home}/{number}")


@plugin.gc
def gc(request: Request) -> None:
    """Free all numbers but those of valid attachments."""
    valid = {f"{container_id} {ifname}" for container_id, ifname in request.valid_attachments}
    with pool(request) as (home, owners):
        for number in [number for number, name in owners.items() if name not in valid]:
            os.unlink(f"{home}/{number}")


@plugin.status
def status(request: Request) -> None:
    """Fail if no number is free."""
    with pool(request) as (_, owners):
        if not free(owners):
            raise VerbError("no free address", code=ErrorCode.PLUGIN_NOT_AVAILABLE)


if __name__ == "__main__":
    plugin.run()
