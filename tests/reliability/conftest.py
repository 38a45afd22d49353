"""The fixtures that the reliability suites share: plugins in C, and a node with them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.c_node import CNode, build_plugins

__all__ = ["c_node", "plugins", "say"]


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing")
    return build_plugins(tmp_path_factory.mktemp("plugins"))


@pytest.fixture
def c_node(tmp_path: Path, plugins: str) -> CNode:
    return CNode(tmp_path, plugins)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a figure or a seed, so that it stands in the output of the run, whether the test passes or not."""

    def write(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return write
