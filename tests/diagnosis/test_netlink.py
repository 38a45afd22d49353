"""Interfaces of a namespace, read from the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from libcni.diagnosis.netlink import links


def test_a_file_that_is_no_namespace_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Invalid argument") as caught:
        links(str(tmp_path / "file"))
    assert caught.value.filename == str(tmp_path / "file")
