"""What CONTRIBUTING.md names exists: paths, modules, commands and the folders of the library."""

from __future__ import annotations

import re
from pathlib import Path

import libcni

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(libcni.__file__).parent  # the wheel's, if the tests run with it
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([^`\n]+)`", PAGE) + re.findall(r"^    (\S[^#\n]*)", PAGE, re.MULTILINE)
PLACES = (ROOT, LIBRARY.parent, LIBRARY, LIBRARY / "protocol", LIBRARY / "diagnosis")
GENERATED = {"site/"}


def test_every_path_exists() -> None:
    words = {
        word for named in NAMED for word in named.split() if re.fullmatch(r"[\w.-]*/[\w./-]*|[\w-]+\.(py|md)", word)
    }
    paths = words - GENERATED - {".venv/bin/python", ".venv/bin/pytest"}
    assert len(paths) > 50
    assert sorted(path for path in paths if not any((place / path).exists() for place in PLACES)) == []


def test_every_target_of_make_and_each_variable_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {match for named in NAMED for match in re.findall(r"^(?:\S+ )?make ([\w-]+)", named)}
    assert {"setup", "test", "frozen"} <= targets
    assert targets - {*re.findall(r"^([\w-]+):", makefile, re.MULTILINE)} == set()


def test_every_module_of_diagnosis_and_each_name_in_capitals_exists() -> None:
    table = PAGE[PAGE.index("| module | it compares |") :]
    modules = {
        name
        for row in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
        for name in re.findall(r"\w+", row)
    }
    assert len(modules) > 10
    assert [name for name in sorted(modules) if not (LIBRARY / f"diagnosis/{name}.py").exists()] == []
    sources = "".join(
        path.read_text(encoding="utf-8") for top in (LIBRARY, ROOT / "tests") for path in top.rglob("*.py")
    )
    names = {named for named in NAMED if re.fullmatch(r"_?[A-Z]\w+", named)}
    assert names >= {"LAYERS", "SINCE", "FAULTS", "NodeState"}
    assert [name for name in sorted(names) if not re.search(rf"^(class )?{name}\b", sources, re.MULTILINE)] == []


def test_every_folder_of_the_library_is_in_the_table() -> None:
    table = PAGE[PAGE.index("| folder | content |") : PAGE.index("## Rules")]
    folders = {f"{path.parent.name}/" for path in LIBRARY.glob("*/__init__.py")}
    assert sorted(folders - {*re.findall(r"`(\w+/)`", table)}) == []
