"""The command line stands on the public API alone, and each command is a thin file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import libcni
import libcni.cli
import libcni.diagnosis
import libcni.engines.netavark
import libcni.engines.oci
import libcni.executor
import libcni.manager
import libcni.observe
import libcni.options
import libcni.reports
from cli.node import REPOSITORY
from libcni.cli.commands import COMMANDS
from libcni.cli.failures import _CODES

ROOT = Path(libcni.cli.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = [
    libcni,
    libcni.diagnosis,
    libcni.executor,
    libcni.manager,
    libcni.engines.netavark,
    libcni.observe,
    libcni.engines.oci,
    libcni.options,
    libcni.reports,
]
PUBLIC = {package.__name__: package.__all__ for package in PACKAGES}
PUBLIC["libcni.config.yamltext"] = ["read_yaml"]  # the one way to read YAML, which programs do without
# The same as the library's and the engines'.
PUBLIC["libcni._defaults"] = ["CACHE_DIR", "CONF_DIR", "PLUGIN_PATH", "TIMEOUT", "complete_path"]
PUBLIC["libcni.config.timeouts"] = ["seconds"]  # for command lines only
PUBLIC["libcni.config.identifiers"] = ["check_loopback"]  # the same rule as the engines'
PUBLIC["libcni.engines.ended_findings"] = ["collect_ended", "with_ended"]  # for doctor and gc --runtime
PUBLIC["libcni.diagnosis.refused_values"] = ["refused_values"]  # doctor and networks say the same
PUBLIC["libcni.diagnosis.printed_commands"] = ["with_commands"]  # doctor prints what the findings contain
PUBLIC["libcni._dataclass"] = ["dataclass", "field", "replace"]  # those of the standard library
# For text that is not an error's, whose text is printable already; and the same words as the findings.
PUBLIC["libcni.errors"] = ["counted", "printable", "some"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_public_names_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("libcni"):
            module = node.module or ""
            if not module.startswith("libcni.cli"):
                assert module in PUBLIC, f"{module} is internal"
                assert {alias.name for alias in node.names} <= set(PUBLIC[module])
        if isinstance(node, ast.Import):
            used = [alias.name for alias in node.names if alias.name.startswith("libcni")]
            assert set(used) <= PUBLIC.keys()
        if isinstance(node, ast.Attribute) and (module := ast.unparse(node.value)) in PUBLIC:
            assert node.attr in PUBLIC[module] or f"{module}.{node.attr}" in PUBLIC


def test_the_page_has_every_command_and_every_exit_code() -> None:
    page = (REPOSITORY / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    for name in (command.name for command in COMMANDS):
        assert f"`{name} " in page or f"`{name}`" in page
    for code in (0, *_CODES, 1, 130):
        assert f"\n| {code} |" in page
