"""Pins: names for namespaces, whatever a killed hook has left of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from libcni.engines.oci.pins import Pin, Pins, namespace_of
from libcni.errors import CNIError

from .conftest import HookNode, end

Process = Callable[[], int]


def test_a_name_is_the_container_and_its_process() -> None:
    pins = Pins("/run/pins")
    pin = pins.parse("/run/pins/web.1.4711")
    assert pin is not None
    assert (pin.container_id, pin.pid) == ("web.1", 4711)


@pytest.mark.parametrize("path", ["/run/netns/web.1", "/run/pins/web", "/run/pins/.1", "/run/pins/web.x", ""])
def test_other_paths_are_no_pins(path: str) -> None:
    assert Pins("/run/pins").parse(path) is None


def test_a_directory_that_does_not_exist_has_no_pins(tmp_path: Path) -> None:
    assert Pins(str(tmp_path / "none")).all() == []


def test_a_pin_outlives_its_process_and_is_removed_with_the_namespace(node: HookNode, process: Process) -> None:
    pid = process()
    identity = namespace_of(pid)
    pin = node.pins.pin("c1", pid)
    assert pin.is_alive
    assert node.pins.pin("c1", pid).identity == identity
    end(pid)
    assert (pin.identity, pin.is_alive) == (identity, False)
    assert [one.path for one in node.pins.all("c1")] == [pin.path]
    assert node.pins.all("c2") == []
    for _ in range(2):
        node.pins.remove(pin)
        assert pin.identity is None


def test_what_a_killed_hook_or_an_earlier_process_of_that_number_left_is_replaced(
    node: HookNode, process: Process
) -> None:
    pid, other = process(), process()
    pin = Pin(f"{node.pins.directory}/c1.{pid}", "c1", pid)
    node.pins.remove(node.pins.pin("c1", pid))  # makes the directory
    Path(pin.path).touch()  # a hook that was killed before its mount
    assert node.pins.pin("c1", pid).identity == namespace_of(pid)
    subprocess.run(["mount", "--bind", f"/proc/{other}/ns/net", pin.path], check=True)
    assert node.pins.pin("c1", pid).identity == namespace_of(pid)
    node.pins.remove(pin)
    assert node.pins.all() == []


def test_files_and_mounts_of_others_are_no_pins_and_stay(node: HookNode, process: Process, tmp_path: Path) -> None:
    pid = process()
    node.pins.remove(node.pins.pin("c1", pid))  # makes the directory
    log, link, mount = Path(node.pins.directory, "log.1"), Path(node.pins.directory, "c1.2"), tmp_path / "mount"
    mount.mkdir()
    log.write_text("a file of another program")
    link.symlink_to(mount)
    subprocess.run(["mount", "--bind", tmp_path, mount], check=True)
    try:
        assert node.pins.all() == []
        for path in (log, link):
            pin = node.pins.parse(str(path))
            assert pin is not None
            node.pins.remove(pin)
        assert (log.read_text(), link.is_symlink(), mount.is_mount()) == ("a file of another program", True, True)
    finally:
        subprocess.run(["umount", mount], check=True)
        link.unlink()
        log.unlink()


def test_a_process_that_has_gone_cannot_be_pinned_and_leaves_nothing(node: HookNode) -> None:
    with pytest.raises(CNIError, match="cannot pin the network namespace /proc/999999999/ns/net"):
        node.pins.pin("c1", 999999999)
    assert node.pins.all() == []


def test_a_file_that_another_program_makes_meanwhile_is_not_removed(
    node: HookNode, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = process()
    theirs = Path(node.pins.directory, f"c1.{pid}")
    monkeypatch.setattr(Pins, "remove", lambda *_: theirs.touch())  # after this hook has looked for an old one
    with pytest.raises(CNIError, match="File exists"):
        node.pins.pin("c1", pid)
    assert theirs.exists()
    monkeypatch.undo()
