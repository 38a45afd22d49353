"""The program examples/workers.py: worker processes share locks and records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import libcni

WORKERS = Path(__file__).resolve().parents[2] / "examples/workers.py"
NETWORK = """{"cniVersion": "1.1.0", "name": "dbnet", "plugins": [
 {"type": "fake-bridge", "ipam": {"type": "fake-ipam", "subnet": "10.1.0.0/16"}}]}"""


@pytest.fixture
def root(tmp_path: Path, fake_path: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the program's directories, below ``tmp_path``."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/10-db.conflist").write_text(NETWORK)
    monkeypatch.setenv("NETCONFPATH", str(tmp_path / "net.d"))
    monkeypatch.setenv("LIBCNI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CNI_PATH", fake_path)
    monkeypatch.setenv("FAKE_CNI_STATE", str(tmp_path / "state"))
    return tmp_path


def command(*containers: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(WORKERS), "dbnet", *containers]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def client(root: Path, fake_path: str) -> libcni.CNIConfig:
    env = {"FAKE_CNI_STATE": str(root / "state")}
    return libcni.CNIConfig([fake_path], root / "cache", conf_dir=root / "net.d", env=env)


@pytest.mark.usefixtures("root")
def test_a_container_that_is_asked_for_twice_is_attached_once() -> None:
    with command(*(f"c{number // 2}" for number in range(12))) as process:
        printed = process.communicate(timeout=120)[0].splitlines()
    addresses = [line.split(": ")[1] for line in printed if "Error" not in line]
    assert len(set(addresses)) == len(addresses) == 6
    assert sorted(line for line in printed if "Error" in line) == [f"c{n}: AttachmentExistsError" for n in range(6)]


def test_gc_beside_worker_processes_takes_nothing_that_lives(root: Path, fake_path: str) -> None:
    cni = client(root, fake_path)
    names = [f"c{number}" for number in range(12)]
    pairs = [(name, "eth0") for name in names]
    cni.add_network_list("dbnet", libcni.RuntimeConf("stale", "/run/netns/stale", "eth0"))
    detached = []
    with command(*names) as process:
        while process.poll() is None:
            detached += [one.container_id for one in cni.gc_network_list("dbnet", pairs).detached]
        assert process.communicate()[0].count("10.1.") == 12
    assert detached == ["stale"]
    assert sorted(one.container_id for one in cni.get_cached_attachments() if one.state == "ready") == sorted(names)
