"""What all tests share: the fake plugins and their state, and who may use the real plugins."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import pytest
from forkserver import ForkServer
from hypothesis import settings
from sight import see_all

from libcni.testing import why_no_namespaces

pytest_plugins = ["pytester", "libcni.testing.pytest_plugin", "nodes"]

REPOSITORY = Path(__file__).resolve().parent.parent
REAL_PLUGINS = Path("/usr/lib/cni")
NEEDED = ("bridge", "host-local", "tuning", "portmap", "firewall", "bandwidth", "ptp", "macvlan", "loopback", "static")

COVERAGE: dict[str, str] = {}
"""The variables that make a child process measure its coverage."""

MEASURING = coverage.Coverage.current()

# The same examples in every run: a test that fails now and then helps nobody. To make them takes longer than to run
# them; what 100 found when the library was broken on purpose, 40 found too.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40, database=None)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Make the process like one at a terminal.

    Scripts are run by the Python of the tests: another one on PATH may be a wrapper that takes 0.2 s to start. SIGINT
    and SIGHUP are heard: a shell that runs the tests in the background, or nohup, has all that they start ignore one.

    What tests start is not measured: that would take twice the time, and the tests themselves cover the same lines. The
    exceptions are the command line in the fork server, and the fixture measured_children.
    """
    if MEASURING is not None and config.getoption("numprocesses", None):
        MEASURING.stop()  # this process runs no test, it only reads what the workers report
    elif MEASURING is not None:
        MEASURING.set_option("run:patch", [])  # or each start() would put the variables back
        MEASURING._warn_preimported_source = False  # or each start() would look at all modules: 20 ms for each fixture
        COVERAGE.update({name: os.environ.pop(name) for name in list(os.environ) if name.startswith("COVERAGE_")})
        if getattr(config, "workerinput", {"workerid": "gw0"})["workerid"] != "gw0":
            MEASURING.stop()  # all workers import the same modules while they collect, and one measures that
    # The command reads its defaults from these, and a developer's shell may have them set.
    for name in ("CAP_ARGS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH", "LIBCNI_CACHE_DIR", "LIBCNI_OWNER", "NETCONFPATH"):
        os.environ.pop(name, None)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from visiting the collected tests while their number grows: a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting all collected tests again and again."""
    gc.collect()
    gc.freeze()
    if MEASURING is not None:
        MEASURING.stop()  # pytest itself is slower when it is traced: only fixtures and tests are, from here on


@pytest.fixture
def measured_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the coverage of the processes that the test starts, because nothing else runs the same lines."""
    for name, text in COVERAGE.items():
        monkeypatch.setenv(name, text)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Return the process that runs the command line for this session's tests."""
    server = ForkServer(COVERAGE, os.path.abspath(str(MEASURING.get_option("run:data_file"))) if MEASURING else "")
    yield server
    server.close()


@pytest.fixture(scope="session")
def fake_path() -> str:
    """Return the directory of the fake plugins."""
    return str(REPOSITORY / "plugins-fake")


@pytest.fixture
def fake_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the fake plugins a state directory; what is still in it at the end was leaked."""
    path = tmp_path / "fake-cni-state"
    monkeypatch.setenv("FAKE_CNI_STATE", str(path))
    return path


TOGETHER = {
    "tests/real/test_containerd.py": "containerd",
    "tests/real/test_node_repaired.py": "containerd",
    "tests/real/test_three_runtimes.py": "three runtimes",
    "tests/real/test_runc.py": "runtimes",
    "tests/real/test_other_runtimes.py": "runtimes",
    "tests/examples/test_runtime.py": "runtimes",
    "tests/reliability/test_killed_repairs.py": "published",
    "tests/real/test_races.py": "published",
    "tests/real/test_kills.py": "published",
}
"""Files whose tests share a node that takes long to make, or whose containers have the same names and addresses."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With ``--dist loadgroup``, run the tests of such files one by one: xdist 3.8 groups nothing on pytest 9.2."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # it has no types

    class Together(LoadScopeScheduling):  # type: ignore[misc] # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file, _, name = nodeid.partition("::")
            release = "sid" if "sid" in name.partition("[")[2] else ""  # two nodes
            return f"{TOGETHER[file]} {release}" if file in TOGETHER else nodeid

    return Together(config, log)


SLOW_SECONDS = 600
"""Seconds after which a slow test is ended; the others have the limit in pyproject.toml."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m slow`` and ``-m "real and …"``, import only the files that have such tests: the others take seconds."""
    kind = str(config.getoption("markexpr")).partition(" ")[0]
    is_file = kind in {"slow", "real"} and collection_path.name.startswith("test_")
    return True if is_file and f"mark.{kind}" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests more time than the others, unless the command says how much."""
    for item in items if config.getoption("timeout") is None else ():
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests marked ``real`` if they cannot run here, with the reason."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root, who sees the processes of all users")
    if item.get_closest_marker("real") and (reason := why_no_real_plugins()) is not None:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Measure the coverage of fixtures."""
    with measured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Measure no coverage in property tests and those marked ``unmeasured``: it would take as long as they do."""
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    with contextlib.nullcontext() if is_property or item.get_closest_marker("unmeasured") else measured():
        return (yield)


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Measure coverage meanwhile, unless nothing is measured or everything is."""
    if MEASURING is None or coverage.Coverage.current() is not None:
        yield
        return
    MEASURING.start()
    try:
        yield
    finally:
        MEASURING.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: an expected failure is told from a skip by then
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, make each skipped test a failure, unless it is marked ``may_skip``: nobody would notice it."""
    report = yield
    is_skip = report.skipped and not hasattr(report, "wasxfail")
    if is_skip and os.environ.get("CI") == "true" and item.get_closest_marker("may_skip") is None:
        report.outcome = "failed"
        report.longrepr = f"CI=true, and the test was skipped: {report.longrepr}"
    return report


@cache
def why_no_real_plugins() -> str | None:
    """Return why tests with the real plugins cannot run here, or None where they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDED if not os.access(REAL_PLUGINS / name, os.X_OK)]
    missing += [tool for tool in ("ip", "iptables", "nft") if shutil.which(tool) is None]
    if missing:
        packages = "containernetworking-plugins iproute2 iptables nftables"
        return f"not installed: {', '.join(missing)} (apt-get install {packages})"
    return why_no_namespaces()


@pytest.fixture
def firewall_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the programs of firewalls into PATH, for a user without /usr/sbin and a machine that has none of them."""
    directory = tmp_path / "sbin"
    directory.mkdir()
    for name in ("iptables", "ip6tables", "nft"):
        (directory / name).touch(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{directory}")


@pytest.fixture
def sees_all() -> Iterator[None]:
    """Let the library in this process see all of a node made by hand, whoever runs the tests."""
    with see_all():
        yield
