"""Plugins with one fault each, as authors make them: the check finds it, in words that lead to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest
from plugin.plugins import Recorder, write_plugin

from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import NetworkNamespace, assert_plugin_conforms, check_plugin, network_namespace
from testing.faulty import NEWEST, failing, ip

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("cni_namespaces")]

# A right main plugin. Each fault replaces a part of it.
MAIN = """
import zlib
def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise VerbError(f"ip {' '.join(words)}: {done.stderr.strip()}", code=100)
    return done.stdout
def host_end(r):
    return f"ft{zlib.crc32((r.container_id + r.ifname).encode()):08x}"
@plugin.add
def add(r):
    ip("link", "add", host_end(r), "type", "veth", "peer", "name", r.ifname, "netns", r.netns)
    try:
        r.result = r.ipam_add()
        index = r.result.add_interface(r.ifname, sandbox=r.netns)
        with r.in_namespace():
            for address in r.result.ips:
                address["interface"] = index
                ip("address", "add", address["address"], "dev", r.ifname)
            ip("link", "set", r.ifname, "up")
        ip("link", "set", host_end(r), "up")
    except BaseException:
        delete(r)
        raise
@plugin.check
def check(r):
    with r.in_namespace():
        shown = ip("-o", "address", "show", "dev", r.ifname).split()
    for address in r.require_prev_result().ips:
        if address["address"] not in shown:
            raise VerbError("an address is missing", code=100)
@plugin.delete
def delete(r):
    subprocess.run(["ip", "link", "delete", host_end(r)], capture_output=True)
@plugin.gc
def gc(r):
    r.valid_attachments
"""
IPAM = """
import fcntl
from contextlib import contextmanager
@contextmanager
def pool(r):
    home = os.path.join(r.config["ipam"]["dir"], r.name)
    os.makedirs(home, exist_ok=True)
    lock = os.open(home, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield home, {int(n): os.readlink(f"{home}/{n}") for n in os.listdir(home)}
    os.close(lock)
def owner(r):
    return f"{r.container_id} {r.ifname}"
@plugin.add
def add(r):
    with pool(r) as (home, owners):
        if owner(r) in owners.values():
            raise VerbError("it has an address", code=100)
        number = next(n for n in range(2, 22) if n not in owners)
        os.symlink(owner(r), f"{home}/{number}")
    r.result.add_ip(f"10.99.0.{number}/24", gateway="10.99.0.1")
    r.result.add_route("10.98.0.0/16", gw="10.99.0.1")
@plugin.check
def check(r):
    with pool(r) as (_, owners):
        if owner(r) not in owners.values():
            raise VerbError("no address", code=100)
@plugin.delete
def delete(r):
    with pool(r) as (home, owners):
        [os.unlink(f"{home}/{n}") for n, name in owners.items() if name == owner(r)]
@plugin.gc
def gc(r):
    valid = {" ".join(pair) for pair in r.valid_attachments}
    with pool(r) as (home, owners):
        [os.unlink(f"{home}/{n}") for n, name in owners.items() if name not in valid]
"""


def faulty(directory: Path, changes: Sequence[tuple[str, str]], body: str, *, runs: bool) -> Path | Plugin:
    """Return the plugin with its changes, as an executable, or to be called here, which takes less time."""
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    name = "pool" if body.startswith(IPAM[:20]) else "main"
    if not runs:
        names: dict[str, Any] = {"plugin": Plugin(name, ipam=name == "main"), "VerbError": VerbError}
        exec(compile(f"import os, subprocess\n{body}", name, "exec", dont_inherit=True), names)
        return cast("Plugin", names["plugin"])
    path = write_plugin(directory, name, body)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Plugin('main')", "Plugin('main', ipam=True)"), encoding="utf-8")
    return path


def examine(directory: Path, *changes: tuple[str, str], runs: bool = False) -> dict[str, str]:
    """Return the failed checks of the main plugin with their problems."""
    faulty(directory, [], IPAM, runs=True)
    plugin = faulty(directory, changes, MAIN, runs=runs)
    config = {"type": "main", "ipam": {"type": "pool", "dir": str(directory / "leases")}}
    with network_namespace() as namespace:
        report = check_plugin(plugin, config, namespace=namespace, path=str(directory), versions=NEWEST)
    return {finding.check: finding.problem for finding in report.failures}


def test_the_right_plugin_has_no_failure(tmp_path: Path) -> None:
    assert examine(tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "check", "problem"),
    [
        (
            [("r.ipam_add()", "r.ipam_add(); r._to_undo.clear()")],
            "an ADD with addresses that cannot be set gives its address back",
            "did not run its DEL: the address stays allocated",
        ),
        (
            [
                ("        delete(r)\n        raise", "        raise"),
                ("def delete(r):", "def delete(r):\n    if not r.prev_result:\n        return"),
            ],
            "DEL leaves nothing of an ADD whose IPAM plugin refuses",
            "link cnitest0 (down)",
        ),
        (
            [
                (
                    '    ip("link", "add", host_end',
                    (
                        '    subprocess.run(["ip", "-n", r.netns[11:], "link", "delete", '
                        'r.ifname])\n    ip("link", "add", host_end'
                    ),
                ),
            ],
            "an ADD whose interface name is taken keeps that interface",
            "cnitest0 is gone or another one",
        ),
        (
            [("(r.container_id + r.ifname)", "(r.container_id)")],
            "DEL keeps other attachments",
            "/cnitest1 has lost: ",
        ),
        (
            [("(r.container_id + r.ifname)", "b'x' or r.ifname"), (".encode()", "")],
            "ADD of a second container",
            "File exists",
        ),
        (
            [('            ip("link", "set", r.ifname, "up")', '            ip("address", "flush", "dev", r.ifname)')],
            "ADD reports what exists",
            "cnitest0 lacks the address 10.99.0.2/24 of the result: it has none",
        ),
        (
            [("sandbox=r.netns)", "sandbox=r.netns, mac='02:00:00:00:00:07')")],
            "ADD reports what exists",
            "and the result says 02:00:00:00:00:07",
        ),
        ([("sandbox=r.netns)", "sandbox=r.netns, mtu=9000)")], "ADD reports what exists", "has the MTU 1500"),
        (
            [("        index =", "        r.result.add_interface('ghost0')\n        index =")],
            "ADD reports what exists",
            "ghost0 is not on the host",
        ),
        (
            [("        index =", "        r.result.ips[0]['address'] = '10.99.0.77/24'\n        index =")],
            "ADD uses the answer of the IPAM plugin",
            "the IPAM plugin gave 10.99.0.2/24 by 10.99.0.1, and the result does not have it",
        ),
        (
            [("        index =", "        r.result.routes.clear()\n        index =")],
            "ADD uses the answer of the IPAM plugin",
            "the IPAM plugin gave the route 10.98.0.0/16",
        ),
        (
            [("    for address in r.req", "    return\n    for address in r.req")],
            "CHECK sees that the address is gone",
            "CHECK still",
        ),
        (
            [("    with r.in_namespace():\n        shown", "    return\n    with r.in_namespace():\n        shown")],
            "CHECK sees that the interface is gone",
            "CHECK still succeeds",
        ),
        (
            [
                (
                    "def delete(r):",
                    (
                        "def delete(r):\n    [subprocess.run(['ip', 'link', 'delete', n]) for n in os.listdir("
                        "'/proc/sys/net/ipv4/conf') if n.startswith('ft')]"
                    ),
                )
            ],
            "DEL keeps other attachments",
            "has lost: ",
        ),
        (
            [
                (
                    '    ip("link", "add", host_end(r),',
                    (
                        '    ip("link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")\n'
                        '    r.ipam_add(); r._to_undo.clear(); r.forward\n    ip("link", "delete", "tmp0")\n'
                        '    r.delegate("DEL", "pool")\n    ip("link", "add", host_end(r),'
                    ),
                ),
            ],
            "DEL leaves nothing of an ADD that is killed",
            "tmp0",
        ),
    ],
)
@pytest.mark.slow
def test_a_fault_of_a_main_plugin_is_found(
    tmp_path: Path, changes: list[tuple[str, str]], check: str, problem: str
) -> None:
    found = examine(tmp_path, *changes, runs="killed" in check)
    assert check in found
    assert problem in found[check]


@pytest.mark.parametrize(
    ("changes", "check", "problem"),
    [
        (
            [
                ("fcntl.LOCK_EX", "fcntl.LOCK_SH"),
                (
                    "    yield home, {",
                    "    names = os.listdir(home)\n    import time; time.sleep(0.01)\n    yield home, {",
                ),
                ("for n in os.listdir(home)}", "for n in names}"),
            ],
            "ADD beside DEL",
            "calls failed beside calls of other containers",
        ),
        (
            [("name == owner(r)", "name.split()[0] == r.container_id")],
            "DEL keeps other attachments",
            "fails: exit status 1",
        ),
        (
            [
                (
                    "number = next(",
                    "if owners: raise VerbError('x', code=100)\n        number = next(",
                )
            ],
            "ADD of a second container",
            "exit status 1",
        ),
        (
            [
                (
                    "    r.result.add_ip",
                    "    import time; time.sleep(0.3)\n    r.result.add_ip",
                ),
                (
                    '        [os.unlink(f"{home}/{n}") for n, name in owners.items() if name == owner(r)]',
                    (
                        "        r.prev_result and "
                        '[os.unlink(f"{home}/{n}") for n, name in owners.items() if name == owner(r)]'
                    ),
                ),
            ],
            "DEL leaves nothing of an ADD that is killed",
            "the next ADD of the same attachment fails",
        ),
    ],
)
@pytest.mark.slow
def test_a_fault_of_an_ipam_plugin_is_found(
    tmp_path: Path, changes: list[tuple[str, str]], check: str, problem: str
) -> None:
    plugin = faulty(tmp_path, changes, IPAM, runs="killed" in check or "beside" in check)
    report = check_plugin(plugin, {"ipam": {"dir": str(tmp_path / "leases")}}, ipam=True, versions=["0.4.0"])
    found = {finding.check: finding.problem for finding in report.failures}
    assert check in found
    assert problem in found[check]


CHAINED = {
    "interfaces": [{"name": "vethx"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
    "ips": [{"address": "10.99.0.2/24", "gateway": "10.99.0.1", "interface": 1}],
}


def test_an_address_that_belongs_to_another_interface_than_before_is_found(cni_netns: NetworkNamespace) -> None:
    def add(request: Request) -> None:
        request.result.interfaces.reverse()

    report = check_plugin(Recorder(add=add).plugin, {}, prev_result=CHAINED, namespace=cni_netns, versions=NEWEST)
    (finding,) = [finding for finding in report.failures if finding.check == "ADD keeps prevResult"]
    assert finding.problem == "ips: 10.99.0.2/24 is of eth0 in prevResult, and of vethx in the result"


def test_a_chained_plugin_gets_a_new_interface_for_each_version(cni_netns: NetworkNamespace) -> None:
    """Some change the interface, and leave that to the plugin that removes it."""
    seen = []

    def add(request: Request) -> None:
        with request.in_namespace():
            ip("link", "set", request.ifname, "alias", request.version)
        seen.append((request.ifname, request.netns))

    plugin = Recorder(add=add).plugin
    report = assert_plugin_conforms(plugin, {}, prev_result=CHAINED, namespace=cni_netns, versions=["1.0.0", "1.1.0"])
    assert report.versions == ("1.0.0", "1.1.0")
    assert {ifname for ifname, _ in seen} == {"eth0"}
    assert len({netns for _, netns in seen} - {cni_netns.path}) > 2


def test_the_caller_may_make_the_surroundings() -> None:
    made: list[str] = []

    @contextmanager
    def surroundings() -> Iterator[NetworkNamespace]:
        with network_namespace() as namespace:
            ip("link", "add", "mine0", "type", "veth", "peer", "name", "eth0", "netns", namespace.name)
            made.append(namespace.path)
            yield namespace
            ip("link", "delete", "mine0")

    plugin = Recorder(add=lambda request: ip("link", "show", "mine0")).plugin
    assert_plugin_conforms(plugin, {}, prev_result=CHAINED, surroundings=surroundings, versions=["1.0.0", "1.1.0"])
    assert len(made) > 3


def test_interfaces_of_other_programs_do_not_count(cni_netns: NetworkNamespace) -> None:
    stop = Event()

    def busy() -> None:
        for number in range(10**6):
            if stop.is_set():
                return
            ip("link", "add", f"busy{number % 7}", "type", "veth", "peer", "name", f"busyp{number % 7}")
            ip("link", "delete", f"busy{number % 7}")

    other = Thread(target=busy)
    with network_namespace() as machine, machine.entered():
        other.start()
        try:
            report = check_plugin(Recorder().plugin, {}, namespace=cni_netns, versions=NEWEST)
        finally:
            stop.set()
            other.join()
    assert failing(report) == set()
    assert "DEL leaves nothing on the host" in {finding.check for finding in report.findings}


def test_a_known_failure_is_reported_and_fails_when_it_passes() -> None:
    plugin = Recorder(status=lambda request: 1 / 0).plugin
    report = check_plugin(plugin, {}, versions=NEWEST, known={"STATUS": "no daemon here"})
    assert report.failures == []
    assert "(known: no daemon here)" in str(report)
    with pytest.raises(AssertionError, match=r"STATUS: it passes: remove it from known \(no daemon here\)"):
        assert_plugin_conforms(Recorder().plugin, {}, versions=NEWEST, known={"STATUS": "no daemon here"})
    with pytest.raises(AssertionError, match="STATSU: it was not run: remove it from known"):
        assert_plugin_conforms(Recorder().plugin, {}, versions=NEWEST, known={"STATSU": "misspelt"})


def test_an_add_that_should_have_been_refused_is_taken_down() -> None:
    left: set[tuple[str, str]] = set()

    class Lax(Plugin):
        def main(self, *streams: Any, **_: Any) -> int:
            env = streams[0]
            key = env.get("CNI_CONTAINERID", ""), env.get("CNI_IFNAME", "")
            if env["CNI_COMMAND"] == "ADD":
                left.add(key)
            if env["CNI_COMMAND"] == "DEL":
                left.discard(key)
            streams[2].write('{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}')
            return 0

    report = check_plugin(Lax("lax"), {})
    assert "an invalid CNI_CONTAINERID is refused" in failing(report)
    assert left == set()
