"""Whether nothing but a mount of this library holds a namespace."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from libcni.kernel.namespace import make_namespace, namespace_identity, unbind
from libcni.manager.namespaces import ContainerNamespaces
from libcni.store.kept_namespaces import is_abandoned
from libcni.testing import wait_until


@pytest.mark.real
def test_a_namespace_is_abandoned_if_only_the_name_that_a_manager_made_holds_it(tmp_path: Path) -> None:
    made = ContainerNamespaces(tmp_path / "netns", str(tmp_path / "cache"), "")
    path = made.ensure("c1")
    try:
        # A walk beside other tests may not see everything.
        wait_until(lambda: is_abandoned(str(tmp_path / "cache"), path))
        assert not is_abandoned(str(tmp_path / "other"), path)
        with subprocess.Popen(["nsenter", f"--net={path}", "cat"], stdin=subprocess.PIPE) as inhabitant:
            wait_until(lambda: namespace_identity(f"/proc/{inhabitant.pid}/ns/net") == namespace_identity(path))
            assert not is_abandoned(str(tmp_path / "cache"), path)
            inhabitant.communicate()
        record = tmp_path / "cache/namespaces/c1"
        document = json.loads(record.read_text())
        for key, value in (("bootId", "another"), ("identity", [4, 5, 6]), ("path", "/other"), ("identity", None)):
            record.write_text(json.dumps({**document, key: value}))
            assert not is_abandoned(str(tmp_path / "cache"), path)
    finally:
        unbind(path)
    assert not is_abandoned(str(tmp_path / "cache"), path)


@pytest.mark.real
def test_an_operators_own_namespace_is_never_abandoned(tmp_path: Path) -> None:
    """It may be a router's: its interfaces work without a process."""
    path = str(tmp_path / "web.4711")
    make_namespace(path)
    try:
        assert not is_abandoned(str(tmp_path / "cache"), path)
    finally:
        unbind(path)
