"""The surroundings of a plugin under examination: a host namespace of its own, and new ones for each version."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from libcni.testing.examination import Examination
from libcni.testing.namespaces import NetworkNamespace, network_namespace
from libcni.testing.snapshot import link_names


@contextmanager
def own_host(exam: Examination) -> Iterator[None]:
    """Run the block in a new network namespace that stands for the host, where other programs have no links.

    If the configuration names a link of the real host, such as the master of a macvlan, stay there.
    """
    if exam.surroundings is None and (exam.namespace is None or exam.needs_host):
        yield
        return
    with network_namespace() as host, host.entered():
        run_ip("link", "set", "lo", "up")
        yield


@contextmanager
def surroundings_of(exam: Examination) -> Iterator[None]:
    """Run the block in a new namespace: the caller's, or for a chained plugin one with the links of ``prev_result``."""
    given = exam.namespace
    try:
        if exam.surroundings is not None:
            with exam.surroundings() as exam.namespace:
                yield
        elif given is not None and exam.prev_result is not None and not exam.needs_host:
            with links_of_result(exam.prev_result) as exam.namespace:
                yield
        else:
            yield
    finally:
        exam.namespace = given


@contextmanager
def links_of_result(previous: Mapping[str, Any]) -> Iterator[NetworkNamespace]:
    """Make a namespace with the interfaces, addresses and routes of a result, and their ends on the host."""
    interfaces: Sequence[Mapping[str, Any]] = previous.get("interfaces") or []
    ends = [interface["name"] for interface in interfaces if not interface.get("sandbox")]
    inside = [interface for interface in interfaces if interface.get("sandbox") and interface["name"] != "lo"]
    with network_namespace() as namespace:
        run_ip("-netns", namespace.name, "link", "set", "lo", "up")
        for interface in inside:
            name, end = interface["name"], ends.pop() if ends else f"cniend{uuid4().hex[:8]}"
            run_ip("link", "add", end, "type", "veth", "peer", "name", name, "netns", namespace.name)
            # Otherwise the kernel adds its link-local address at some time during the checks.
            run_ip("-netns", namespace.name, "link", "set", name, "addrgenmode", "none")
            if interface.get("mac"):
                run_ip("-netns", namespace.name, "link", "set", name, "address", interface["mac"])
            for ip in previous.get("ips") or []:
                if interfaces[ip.get("interface") or 0] is interface or ip.get("interface") is None:
                    run_ip("-netns", namespace.name, "address", "add", ip["address"], "dev", name, "nodad")
            for where in (("-netns", namespace.name, "link", "set", name), ("link", "set", end)):
                run_ip(*where, "up")
        for route in previous.get("routes") or []:
            via = ("via", route["gw"]) if route.get("gw") else ("dev", inside[0]["name"]) if inside else ()
            run_ip("-netns", namespace.name, "route", "add", route["dst"], *via, check=False)
        for bridge in ends:
            run_ip("link", "add", bridge, "type", "bridge", check=False)
        try:
            yield namespace
        finally:
            for link in link_names(None) - {"lo"}:  # the host is a namespace of this examination
                run_ip("link", "delete", link, check=False)


def run_ip(*words: str, check: bool = True) -> bool:
    """Run ``ip`` in the thread's namespace; return whether it succeeded. With ``check``, raise OSError if not."""
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)  # noqa: S603, S607 - found on PATH
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0
