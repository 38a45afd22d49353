"""Plugins with one fault each, as authors make them: the check finds it, in words that lead to it."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from plugin.plugins import Recorder

from libcni.plugin import Plugin, Request
from libcni.testing import NetworkNamespace, assert_plugin_conforms, check_plugin, network_namespace
from libcni.testing.failed_add_checks import _set_by_programs
from testing.faulty import NEWEST, SHELL_IPAM, Change, failing, ip, main_plugin, write_executable

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("cni_namespaces")]


def examine(directory: Path, *changes: Change, runs: bool = False, **options: Any) -> dict[str, str]:
    """Return the failed checks of the main plugin with their problems."""
    write_executable(directory / "pool", SHELL_IPAM)
    plugin = main_plugin(directory, *changes, runs=runs)
    with network_namespace() as namespace:
        options = {"namespace": namespace, "path": str(directory), "versions": NEWEST, **options}
        report = check_plugin(plugin, {"type": "main", "ipam": {"type": "pool"}}, **options)
    assert report.findings
    return {finding.check: finding.problem for finding in report.failures}


def test_the_right_plugin_has_no_failure(tmp_path: Path) -> None:
    assert examine(tmp_path) == {}


DELETE_ALL = (
    "[subprocess.run(['ip', 'link', 'delete', n]) for n in os.listdir('/proc/sys/net/ipv4/conf') if n.startswith('ft')]"
)

SILENT = """
answer = plugin._answer
def silent(*given):
    status, text = answer(*given)
    return status, "" if status else text
plugin._answer = silent
"""

# The fault, the group of checks that finds it, the check, its problem, and the changes of the right plugin.
MAIN_FAULTS: list[tuple[str, str, str, str, list[Change]]] = [
    (
        "keeps the lease of a failed ADD",
        "failures",
        "an ADD with addresses that cannot be set gives its address back",
        "did not run its DEL: the address stays allocated",
        [("r.ipam_add()", "r.ipam_add(); r._to_undo.clear()")],
    ),
    (
        "keeps the link of a failed ADD",
        "failures",
        "DEL leaves nothing of an ADD whose IPAM plugin refuses",
        "link cnitest0 (down)",
        [
            ("        delete(r)\n        raise", "        raise"),
            ("def delete(r):", "def delete(r):\n    if not r.prev_result:\n        return"),
        ],
    ),
    (
        "removes an interface of the same name",
        "failures",
        "an ADD whose interface name is taken keeps that interface",
        "cnitest0 is gone or another one",
        [
            (
                "def add(r):\n",
                "def add(r):\n    subprocess.run(['ip', '-n', r.netns[11:], 'link', 'delete', r.ifname])\n",
            )
        ],
    ),
    (
        "moves on when the name is taken",
        "failures",
        "an ADD whose interface name is taken fails",
        "exit status 0",
        [("def add(r):\n", "def add(r):\n    r.ifname += 'x' if r.ifname in ip('-n', r.netns[11:], 'link') else ''\n")],
    ),
    (
        "knows one address only",
        "failures",
        "ADD uses the answer of the IPAM plugin",
        "the IPAM plugin gave 198.51.100.7/24; the result lacks it",
        [("        index =", "        del r.result.ips[1:]\n        index =")],
    ),
    (
        "does not pass on the errors of IPAM",
        "failures",
        "DEL fails if that of the IPAM plugin fails",
        "it succeeds, although the IPAM plugin has failed",
        [
            (
                "def delete(r):\n",
                "def delete(r):\n    try:\n        r.forward('pool')\n    except Exception:\n        pass\n",
            ),
            ("import zlib\n", "import zlib\nplugin._ipam_type = lambda r: '' if r.verb == 'DEL' else 'pool'\n"),
        ],
    ),
    (
        "refuses the arguments of Kubernetes",
        "failures",
        "ADD with the CNI_ARGS of Kubernetes",
        "unknown argument",
        [("def add(r):\n", "def add(r):\n    if r.args:\n        raise VerbError('unknown argument', code=4)\n")],
    ),
    (
        "is named after the container alone",
        "several",
        "DEL keeps other attachments",
        "/cnitest1 has lost: ",
        [("(r.container_id + r.ifname)", "(r.container_id)")],
    ),
    (
        "is named after the interface alone",
        "several",
        "ADD of a second container",
        "File exists",
        [("(r.container_id + r.ifname)", "r.ifname")],
    ),
    (
        "DEL removes what others have",
        "several",
        "DEL keeps other attachments",
        "has lost: ",
        [("def delete(r):", f"def delete(r):\n    {DELETE_ALL}")],
    ),
    (
        "GC removes what is valid",
        "life",
        "GC keeps valid attachments",
        "has lost: address 10.99.0.2/24 on cnitest0",
        [("def gc(r):", f"def gc(r):\n    {DELETE_ALL}")],
    ),
    (
        "GC without a list removes all",
        "life",
        "GC without a list of attachments frees nothing",
        "link cnitest0 (up)",
        [
            (
                "def gc(r):",
                f"def gc(r):\n    'cni.dev/valid-attachments' in r.config or {DELETE_ALL}",
            )
        ],
    ),
    (
        "sets no address",
        "life",
        "ADD reports what exists",
        "cnitest0 lacks the address 10.99.0.2/24 of the result",
        [
            ('ip("address", "add", address["address"], "dev", r.ifname)', "pass"),
            ("for route in r.result.routes", "for route in ()"),
        ],
    ),
    (
        "sets no route",
        "life",
        "ADD reports what exists",
        "the route 10.98.0.0/16 of the result is not in the namespace",
        [("for route in r.result.routes", "for route in ()")],
    ),
    (
        "leaves the link down",
        "life",
        "ADD reports what exists",
        "cnitest0 is down",
        [
            ('            ip("link", "set", r.ifname, "up")\n', ""),
            ("for route in r.result.routes", "for route in ()"),
        ],
    ),
    (
        "has a name of its own",
        "life",
        "ADD reports what exists",
        "CNI_IFNAME is cnitest0, and the interface in the namespace is own0",
        [("def add(r):\n", "def add(r):\n    r.ifname = 'own0'\n")],
    ),
    (
        "reports another hardware address",
        "life",
        "ADD reports what exists",
        "and the result says 02:00:00:00:00:07",
        [("sandbox=r.netns)", "sandbox=r.netns, mac='02:00:00:00:00:07')")],
    ),
    (
        "reports another MTU",
        "life",
        "ADD reports what exists",
        "has the MTU 1500, and the result says 9000",
        [("sandbox=r.netns)", "sandbox=r.netns, mtu=9000)")],
    ),
    (
        "reports an interface that is not there",
        "life",
        "ADD reports what exists",
        "ghost0 is not on the host",
        [("        index =", "        r.result.add_interface('ghost0')\n        index =")],
    ),
    (
        "takes another address than IPAM gave",
        "life",
        "ADD uses the answer of the IPAM plugin",
        "the IPAM plugin gave 10.99.0.2/24 (gateway 10.99.0.1); the result lacks it",
        [("        index =", "        r.result.ips[0]['address'] = '10.99.0.77/24'\n        index =")],
    ),
    (
        "loses the routes of IPAM",
        "life",
        "ADD uses the answer of the IPAM plugin",
        "the IPAM plugin gave the route 10.98.0.0/16; the result lacks it",
        [("        index =", "        r.result.routes.clear()\n        index =")],
    ),
    (
        "CHECK looks at the interface only",
        "life",
        "CHECK sees that the address is gone",
        "CHECK still succeeds",
        [("    for address in r.req", "    return\n    for address in r.req")],
    ),
    (
        "CHECK looks at nothing",
        "life",
        "CHECK sees that the interface is gone",
        "CHECK still succeeds",
        [("def check(r):\n", "def check(r):\n    return\n")],
    ),
    (
        "CHECK mends",
        "life",
        "CHECK changes nothing",
        "new: address 10.99.9.9/32 on cnitest0",
        [("        shown =", "        ip('address', 'replace', '10.99.9.9', 'dev', r.ifname)\n        shown =")],
    ),
    (
        "fails without an error document",
        "refusals",
        "every failure prints an error document",
        "ADD: the plugin printed nothing on stdout",
        [("import zlib\n", f"import zlib\n{SILENT}")],
    ),
    (
        "dies half way and DEL does not know what it has made",
        "failures",
        "DEL leaves nothing of an ADD that is killed",
        "tmp0",
        [
            (
                '    ip("link", "add", host_end(r),',
                (
                    '    ip("link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")\n'
                    '    r.ipam_add(); r._to_undo.clear()\n    ip("link", "delete", "tmp0")\n'
                    '    r.delegate("DEL", "pool")\n    ip("link", "add", host_end(r),'
                ),
            )
        ],
    ),
    (
        "reports its interface without a sandbox",
        "life",
        "ADD reports what exists",
        "cnitest0 is in the namespace, and the result has no sandbox for it",
        [("sandbox=r.netns", "sandbox=''")],
    ),
]


@pytest.mark.parametrize(
    ("group", "check", "problem", "changes"),
    [
        pytest.param(*fault[1:], id=fault[0], marks=pytest.mark.slow if number % 9 else ())
        for number, fault in enumerate(MAIN_FAULTS)
    ],
)
def test_a_fault_of_a_main_plugin_is_found(
    tmp_path: Path, group: str, check: str, problem: str, changes: list[Change]
) -> None:
    found = examine(tmp_path, *changes, runs="killed" in check, only=[group])
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


def chained(cni_netns: NetworkNamespace, group: str, **functions: Any) -> dict[str, str]:
    """Return the failed checks of a chained plugin with their problems."""
    report = check_plugin(
        Recorder(**functions).plugin, {}, prev_result=CHAINED, namespace=cni_netns, versions=NEWEST, only=[group]
    )
    return {finding.check: finding.problem for finding in report.failures}


def test_a_chained_plugin_that_changes_the_first_interface_is_found(cni_netns: NetworkNamespace) -> None:
    def add(request: Request) -> None:
        inside = [part["name"] for part in request.result.interfaces if part.get("sandbox")]
        with request.in_namespace():
            ip("link", "set", inside[0], "mtu", "1300")

    check = "an ADD with two interfaces in prevResult changes only its own interface"
    found = chained(cni_netns, "failures", add=add)[check]
    assert found.startswith("CNI_IFNAME is eth0, and ADD has changed cniother0: mtu")
    assert chained(cni_netns, "failures") == {}

    def lose_carrier(request: Request) -> None:
        links = subprocess.run(["ip", "-n", request.netns[11:], "link"], check=True, capture_output=True, text=True)
        if "cnitaken0" in links.stdout:  # the other end of cniother0
            ip("-n", request.netns[11:], "link", "set", "cnitaken0", "down")

    assert chained(cni_netns, "failures", add=lose_carrier) == {}, "the kernel may notice a carrier at any time"


def test_what_the_kernel_changes_some_time_after_a_link_was_set_up_is_no_change_of_an_add() -> None:
    link = {"mtu": 1500, "operstate": "LOWERLAYERDOWN", "flags": ["NO-CARRIER", "UP"]}
    settled = _set_by_programs({**link, "operstate": "UP", "flags": ["UP", "LOWER_UP"]})
    assert _set_by_programs(link) == settled
    assert _set_by_programs({**link, "flags": []}) != settled


def test_a_chained_plugin_that_removes_what_another_attachment_needs_is_found(cni_netns: NetworkNamespace) -> None:
    """A right one has a rule for each attachment."""

    def priority(request: Request) -> str:
        return str(1000 + zlib.crc32(f"{request.container_id} {request.ifname}".encode()) % 9000)

    def add(request: Request) -> None:
        ip("rule", "add", "priority", priority(request), "table", "77")

    def delete(request: Request) -> None:
        subprocess.run(["ip", "rule", "del", "priority", priority(request)], check=False, capture_output=True)

    def delete_all(request: Request) -> None:
        while subprocess.run(["ip", "rule", "del", "table", "77"], check=False, capture_output=True).returncode == 0:
            pass

    assert chained(cni_netns, "several", add=add, delete=delete) == {}
    found = chained(cni_netns, "several", add=add, delete=delete_all)
    assert "has lost: host rule priority" in found["DEL keeps other attachments"]


def test_a_chained_plugin_that_breaks_at_a_broken_result_is_found(cni_netns: NetworkNamespace) -> None:
    plugin = Recorder().plugin
    answer = plugin._answer
    plugin._answer = lambda env, stdin, stderr: (  # type: ignore[method-assign]
        (1, "") if b'"ips": 7' in stdin.getvalue() else answer(env, stdin, stderr)  # type: ignore[attr-defined]
    )
    options = {"prev_result": CHAINED, "namespace": cni_netns, "versions": NEWEST, "only": ["failures"]}
    found = {finding.check: finding.problem for finding in check_plugin(plugin, {}, **options).failures}  # type: ignore[arg-type]
    assert "printed nothing" in found["an ADD with a broken prevResult fails with an error document"]


def test_unknown_groups_of_checks_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no group of checks live; choose from refusals, life, several"):
        check_plugin(Recorder().plugin, {}, only=["life", "live"])


def test_a_requested_hardware_address_that_is_ignored_is_found() -> None:
    def add(request: Request) -> None:
        request.result.add_interface(request.ifname, sandbox=request.netns, mac="02:00:00:00:00:01")

    options: dict[str, Any] = {"versions": NEWEST, "only": ["life"]}
    for given in ({"args": "MAC=02:00:00:00:00:02"}, {"config": {"runtimeConfig": {"mac": "02:00:00:00:00:02"}}}):
        report = check_plugin(Recorder(add=add).plugin, **{"config": {}, **given, **options})
        (finding,) = report.failures
        assert (
            finding.problem
            == "the hardware address 02:00:00:00:00:02 was requested, but the result has 02:00:00:00:00:01"
        )


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
    assert {ifname for ifname, _ in seen} == {"eth0", "cnitest1"}
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
