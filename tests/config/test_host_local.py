"""host-local's files. The doctor neither hangs nor fills the memory if a reservation is a FIFO, a device or huge."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from libcni import NetworkConfigList
from libcni.config.host_local import range_sets, reservations_in


def test_a_reservation_has_a_container_and_an_interface(tmp_path: Path) -> None:
    (tmp_path / "10.1.0.5").write_text("c1\r\neth0", encoding="utf-8", newline="")
    (tmp_path / "lock").touch()
    [reservation] = reservations_in(str(tmp_path))
    assert (reservation.address, reservation.container_id, reservation.ifname) == ("10.1.0.5", "c1", "eth0")
    assert reservation.changed == pytest.approx((tmp_path / "10.1.0.5").stat().st_mtime)
    assert reservations_in(f"{tmp_path}/missing") == []


STRANGE: dict[str, Callable[[str], object]] = {
    "device": lambda path: os.symlink("/dev/null", path),
    "large": lambda path: Path(path).write_bytes(bytes(1 << 17)),
    "directory": os.mkdir,
    "fifo": os.mkfifo,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_reservation_that_is_no_small_file_cannot_be_read(tmp_path: Path, kind: str) -> None:
    STRANGE[kind](f"{tmp_path}/10.1.0.5")
    with pytest.raises(OSError, match=r"10\.1\.0\.5: it (is not a regular file|has 131,072 bytes)"):
        reservations_in(str(tmp_path))


@pytest.mark.parametrize("kind", STRANGE)
def test_a_file_of_flannel_that_is_no_small_file_gives_no_range(tmp_path: Path, kind: str) -> None:
    STRANGE[kind](f"{tmp_path}/subnet.env")
    for path in (f"{tmp_path}/subnet.env", "a\0b"):
        plugin = {"type": "flannel", "subnetFile": path}
        net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [plugin]})
        assert list(range_sets(net)) == []


def test_bytes_that_are_no_text_do_not_stop_the_reading_of_flannels_file(tmp_path: Path) -> None:
    (tmp_path / "subnet.env").write_bytes(b"\xff\nFLANNEL_SUBNET=10.1.0.1/24\n")
    plugin = {"type": "flannel", "subnetFile": f"{tmp_path}/subnet.env"}
    net = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "n", "plugins": [plugin]})
    assert [pools[0].size for pools in range_sets(net)] == [253]
