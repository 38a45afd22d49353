"""The fixtures that the reliability suites share: plugins in C and in shell, and a place for what they keep."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.shell import Shell
from reliability.support import Place, build_plugins, make_place

_numbers = itertools.count()


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    return build_plugins(tmp_path_factory.mktemp("plugins"))


@pytest.fixture
def place(tmp_path: Path, plugins: str) -> Place:
    return make_place(tmp_path / f"place{next(_numbers)}", plugins)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / f"shell{next(_numbers)}")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure or a seed, so that it stands in the output of the run, whether the test passes or not."""

    def write(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return write
