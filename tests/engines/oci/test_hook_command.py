"""The hook starts with every container: it loads nothing that it does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from engines.engine_node import UNNEEDED

from .conftest import HookNode

HEAVY = {"asyncio", "concurrent.futures", "pydantic", "yaml"}
# argparse loads shutil, and with it the modules of compression, if it has to find the terminal's width.
HEAVY |= {"shutil", "libcni.manager.gc", "libcni.manager.namespaces", "libcni.manager.status"}
HEAVY |= {"libcni.verbs.check", "libcni.verbs.gc", "libcni.verbs.status", "libcni.verbs.version"}
# It reads every network's configuration, which a detach does not need.
MANAGER = {f"libcni.manager.{one}" for one in ("manager", "networks", "container", "container_result", "tear_down")}


def test_attach_and_detach_load_no_heavy_module(node: HookNode, process: Callable[[], int]) -> None:
    node.configure_capable("front", "a")
    state = node.state("creating", process(), networks="front", ports="8080:80")
    assert node.loaded(state) & HEAVY == set()
    assert node.attached == [("c1", "front", "eth0", "ready")]
    assert node.loaded(node.state("stopped")) & (HEAVY | {"ipaddress", *MANAGER}) == set()


def test_a_container_without_networks_costs_no_verb(node: HookNode) -> None:
    node.configure("front")
    found = node.loaded(node.state("creating", 1, networks="none"))
    assert found & (HEAVY | {"libcni.client", "libcni.manager", *UNNEEDED}) == set()
    assert node.detach() == ""
    assert (node.calls(), node.pinned) == ([], [])


def test_the_exit_collects_no_garbage() -> None:
    program = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "sys.argv = ['libcni', 'oci-hook', '--print', '/nowhere']\n"
        "from libcni.cli import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True"


def test_the_hook_needs_no_extra() -> None:
    program = (
        "import sys; sys.modules['argcomplete'] = None\nfrom libcni.cli import main\n"
        "main(['oci-hook', '--print', '/nowhere'])"
    )
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True)
    assert "/nowhere/config.json" in done.stderr
