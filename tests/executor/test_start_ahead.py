"""Which executables are known to read their configuration before they act."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from executor.plugins import c_program
from libcni.executor import start_ahead
from libcni.executor.start_ahead import GO_MARKER, PLUGIN_MARKER, reads_first

MARK = f"# {PLUGIN_MARKER.decode()}"


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    path.chmod(0o755)
    return str(path)


def elf(path: Path, *, padding: int = 0) -> str:
    """Write what looks like a Go plugin; the marker is ``padding`` bytes behind the start."""
    return write(path, b"\x7fELF".ljust(padding + 4, b"\0") + GO_MARKER + b"\0" * 100)


def zipapp(path: Path, comment: bytes) -> str:
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("__main__.py", "print('{}')")
            archive.comment = comment
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("padding", [0, 1024 * 1024 - 20, 3 * 1024 * 1024])
def test_an_executable_with_the_name_of_plugin_main(tmp_path: Path, padding: int) -> None:
    assert reads_first(elf(tmp_path / "plugin", padding=padding))


@pytest.mark.parametrize("plugin", ["bridge", "host-local", "tuning"])
def test_real_plugins(plugin: str) -> None:
    path = f"/usr/lib/cni/{plugin}"
    if not os.path.exists(path):
        pytest.skip("the real plugins are not installed")
    assert reads_first(path)


def test_other_executables(tmp_path: Path) -> None:
    for path in (sys.executable, "/bin/sh", c_program(tmp_path, "return 0;")):
        assert not reads_first(path)


def test_a_link_to_a_program_of_another_name_may_be_one_of_many_purposes(tmp_path: Path) -> None:
    program = elf(tmp_path / "all-in-one")
    assert reads_first(program)
    for name in ("bridge", "all-in-one"):
        (tmp_path / f"links-{name}").mkdir()
        (tmp_path / f"links-{name}" / name).symlink_to(program)
    assert not reads_first(str(tmp_path / "links-bridge" / "bridge"))
    assert reads_first(str(tmp_path / "links-all-in-one" / "all-in-one"))
    os.link(program, tmp_path / "bridge")
    assert not reads_first(str(tmp_path / "bridge"))
    assert not reads_first(program)


@pytest.mark.parametrize(
    "first", ["/usr/bin/env python3", "/usr/bin/python3 -I", "/usr/bin/env -S python3.12 -B", " /opt/venv/bin/python"]
)
def test_a_marked_python_script(tmp_path: Path, first: str) -> None:
    assert reads_first(write(tmp_path / "p", f"#!{first}\nimport os\n{MARK}\nprint()\n".encode()))


@pytest.mark.parametrize(
    "text",
    [
        f"#!/bin/sh\n{MARK}\n",
        f"#!/bin/sh /usr/bin/python3\n{MARK}\n",
        f"#!/usr/bin/pythonish\n{MARK}\n",
        f"#!/usr/bin/env bash\n{MARK}\n",
        f"#!/usr/bin/env python3 {MARK}\nprint()\n",
        f"#!/usr/bin/env python3\nprint('{MARK}')\n",
        f"#!/usr/bin/env python3\n  {MARK}\n",
        f"#!/usr/bin/env python3\n{MARK} not\n",
        f"#!/usr/bin/env python3\n# {GO_MARKER.decode()}\n",
        f"#!/bin/sh\n# {GO_MARKER.decode()}\n",
        f"{MARK}\n",
        "",
    ],
)
def test_a_script_that_merely_mentions_a_marker(tmp_path: Path, text: str) -> None:
    assert not reads_first(write(tmp_path / "p", text.encode()))


def test_a_zipapp_is_marked_by_its_archives_comment(tmp_path: Path) -> None:
    marked = zipapp(tmp_path / "marked", PLUGIN_MARKER)
    assert reads_first(marked)
    assert not reads_first(zipapp(tmp_path / "other", b"another comment, which is longer than the marker"))
    done = subprocess.run([sys.executable, marked], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"


def test_only_readable_regular_files_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path), str(tmp_path / "none"), str(tmp_path / "fifo"), "/dev/zero", "a\0b"):
        assert not reads_first(path)
    monkeypatch.setattr(start_ahead, "_LARGEST", 100)
    assert not reads_first(elf(tmp_path / "large"))


def test_a_file_is_examined_once_and_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[int] = []
    real = start_ahead._is_marked

    def examine(descriptor: int, size: int) -> bool:
        examined.append(descriptor)
        return real(descriptor, size)

    monkeypatch.setattr(start_ahead, "_is_marked", examine)
    path = tmp_path / "plugin"
    elf(path)
    assert reads_first(str(path))
    assert reads_first(str(path))
    assert len(examined) == 1
    status = path.stat()
    changed = path.read_bytes().replace(b"skel", b"leks")
    path.write_bytes(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # an installer that keeps the time, and the same size
    assert not reads_first(str(path))
    assert len(examined) == 2


def test_a_file_that_is_replaced_while_it_is_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plugin"
    elf(path)

    def shorten(_descriptor: int, _size: int) -> bool:
        os.truncate(path, 10)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(start_ahead, "_is_marked", shorten)
        assert not reads_first(str(path))
    assert not reads_first(str(path))
