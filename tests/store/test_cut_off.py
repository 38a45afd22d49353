"""A power cut at any moment of an attachment's life, on real file systems: its record is whole, or was not begun."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import RT, network
from moments import CHANGES, count_moments, moments

from libcni import CNIConfig
from libcni.testing import RecordingExecutor

from .test_power_cut import frozen, loop_devices, make_image, mounted

pytestmark = pytest.mark.slow
__all__ = ["loop_devices"]

CUTS = int(os.environ.get("LIBCNI_POWER_CUTS", "12"))
"""Of each file system; 40 for the release."""
NET = network("a", "b", "c", cniVersion="1.1.0")


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an image of an empty file system."""
    kind: str = request.param
    if shutil.which(f"mkfs.{kind}") is None or kind not in Path("/proc/filesystems").read_text().split():
        pytest.skip(f"needs mkfs.{kind}, and a kernel that mounts it")
    image: Path = tmp_path_factory.mktemp("images") / kind
    with image.open("wb") as file:
        file.truncate(320 << 20)  # xfs takes no less than 300 MiB
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True)
    return image


def sync_of_another(disk: Path) -> None:
    """Let another program sync a file of its own: the journal is written."""
    with (disk / "other").open("w") as other:
        other.write("x")
        other.flush()
        os.fsync(other.fileno())


def write_back(disk: Path) -> None:
    """Let the kernel write the bytes of records, without the file system's own data."""
    for record in (disk / "cni/results").glob("*"):
        with record.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def nothing(_disk: Path) -> None:
    """Let the kernel write nothing more."""


def life(cni: CNIConfig) -> None:
    cni.add_network_list(NET, RT)
    cni.del_network_list(NET, RT)


def client(disk: Path, executor: RecordingExecutor) -> CNIConfig:
    return CNIConfig(["/plugins"], disk / "cni", executor=executor, durable=True, start_ahead="never")


def record_file(disk: Path) -> Path:
    return disk / "cni/results/net-c1-eth0"


@dataclass
class Cut:
    """What a power cut left."""

    copy: Path
    at: str
    must_be_there: bool


def cuts(empty: Path, directory: Path, back: Callable[[Path], object]) -> Iterator[Cut]:
    """Yield what is left of the file system after power cuts at moments of an attachment's life."""
    executor = RecordingExecutor()
    with mounted(make_image(directory / "outer", size=1 << 30), directory / "below", "loop") as below:
        image = below / "image"
        subprocess.run(["cp", "--sparse=always", empty, image], check=True)
        with mounted(image, directory / "disk", "loop") as disk:
            cni = client(disk, executor)
            life(cni)  # makes the directories
            count = count_moments(lambda: life(cni), CHANGES)
            for number in random.Random(back.__name__).sample(range(1, count + 1), min(count, -(-CUTS // 3))):
                cut = Cut(directory / f"copy{number}", f"{number} of {count}", must_be_there=False)

                def power_cut(moment: int, cut: Cut = cut, number: int = number) -> None:
                    if moment == number:
                        cut.must_be_there = bool(executor.verbs) and record_file(disk).exists()
                        back(disk)
                        with frozen(below):  # what the disk has at this moment
                            subprocess.run(["cp", "--sparse=always", image, cut.copy], check=True)

                executor.calls.clear()
                with moments(power_cut, CHANGES):
                    life(cni)
                yield cut


@pytest.mark.parametrize("back", [nothing, sync_of_another, write_back])
def test_a_record_survives_from_the_first_plugin_on(
    empty: Path, tmp_path: Path, back: Callable[[Path], object]
) -> None:
    for cut in list(cuts(empty, tmp_path, back)):  # some file systems cannot be mounted twice at a time
        with mounted(cut.copy, tmp_path / f"after {cut.at}", "loop") as after:
            cni = client(after, RecordingExecutor())
            found = cni.get_cached_attachments()
            assert [one.problem for one in found if one.problem] == [], cut
            assert found or not cut.must_be_there, cut
            cni.del_network_list(NET, RT)
            assert not record_file(after).exists()
