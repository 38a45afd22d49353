"""Write libcni.pyz, the command as one file that needs nothing but Python: for nodes without a clone and without pip.

    one_file.py [-o FILE] [--packages DIRECTORY]

The file has the sources of libcni without its testing and plugin sides, and the Python files of filelock and PyYAML
from DIRECTORY (by default those that this Python imports; "make zipapp" takes the versions that pyproject.toml names).
Nothing in it is compiled, so it runs with each Python since 3.11 on each processor. Nothing in it is compressed or
dated, so the same sources make the same bytes on each machine.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

import libcni

PACKAGES = ("filelock", "PyYAML")
# -I: root runs this file, and must import nothing from the current directory or from PYTHONPATH.
INTERPRETER = b"#!/usr/bin/python3 -I\n"
# What the command never imports. The library in the file is not for other programs: they need pydantic, too.
LEFT_OUT = ("testing", "plugin")

# Any Python since 2.7 must be able to read this.
MAIN = """import os
import sys

if sys.version_info < (3, 11):
    found = ".".join(str(number) for number in sys.version_info[:3])
    sys.exit("error: libcni needs Python 3.11 or newer, and %s is Python %s; "
             "name a newer one: python3.11 %s" % (sys.executable, found, sys.argv[0]))

# For each module Python opens this file by its name again. Another one may have the name by then: an upgrade.
opened = "/proc/self/fd/%d" % os.open(sys.path[0], os.O_RDONLY)
if os.path.exists(opened):
    sys.path[0] = opened

from libcni.cli import run

run()
"""


def members(packages: str | None) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file."""
    yield "__main__.py", MAIN.encode()
    root = Path(libcni.__file__).parent
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        if relative.parts[0] not in LEFT_OUT:
            yield f"libcni/{relative.as_posix()}", path.read_bytes()
    found = {one.name.lower(): one for one in distributions(**({"path": [packages]} if packages else {}))}
    for name in PACKAGES:
        yield from package_members(name, found.get(name.lower()))


def package_members(name: str, package: Distribution | None) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files of a package, and its licence, which whoever hands the file on must hand on, too."""
    if package is None:
        sys.exit(f"one_file: {name} is not there; run: make zipapp")
    licences = 0
    for file in package.files or ():
        path = PurePosixPath(file)
        content = Path(str(package.locate_file(file)))
        # cyaml.py and _yaml import the compiled part; PyYAML does without both.
        if path.suffix == ".py" and path.name != "cyaml.py" and path.parts[0] != "_yaml":
            yield path.as_posix(), content.read_bytes()
        elif path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            licences += 1
            yield f"licenses/{name}-{package.version}/{path.name}", content.read_bytes()
    if not licences:
        sys.exit(f"one_file: {name} has no licence in {package.locate_file('')}")


def write(output: Path, packages: str | None) -> None:
    """Write the file, or replace it."""
    draft = output.with_name(f".{output.name}.new")
    with draft.open("wb") as opened:
        opened.write(INTERPRETER)
        # Stored, not compressed: what a compression makes depends on the version of its library.
        with zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(members(packages)):
                member = zipfile.ZipInfo(name)  # without a date of its own it has the first one that a zip knows
                member.create_system = 3
                member.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(member, content)
    draft.chmod(0o755)
    os.replace(draft, output)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the command libcni as one file.")
    parser.add_argument("-o", "--output", type=Path, default=Path("dist/libcni.pyz"))
    parser.add_argument("--packages", metavar="DIRECTORY", help="where filelock and PyYAML are installed")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write(options.output, options.packages)
    print(options.output)


if __name__ == "__main__":
    main()
