"""Write testdata/go-names.txt: the exported names of Go's CNI libraries, for the table in docs/how-to/migrate.md.

    python scripts/go_names.py cni=DIRECTORY go-cni=DIRECTORY ocicni=DIRECTORY

A directory has the library's sources, for example those of Debian's package golang-github-appc-cni-dev, which
``scripts/peers go`` unpacks. Each line has a package and a name: of a function, a type, a constant, a variable, or a
method as ``Type.Method``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "testdata" / "go-names.txt"
PACKAGES = {
    "cni": (
        "libcni", "pkg/invoke", "pkg/types", "pkg/types/100", "pkg/types/040", "pkg/types/020", "pkg/types/create",
        "pkg/version", "pkg/skel", "pkg/utils", "pkg/ns",
    ),
    "go-cni": (".",),
    "ocicni": ("pkg/ocicni",),
}  # fmt: skip
_DECLARED = re.compile(
    r"^func \(\w* ?\*?(?P<receiver>[A-Z]\w*)\) (?P<method>[A-Z]\w*)"
    r"|^(?:func|type|var|const) (?P<name>[A-Z]\w*)"
    r"|^\t(?P<member>[A-Z]\w*)(?:, [A-Z]\w*)* *(?:[\w.*\[\]]+ *)?=",
    re.MULTILINE,
)
_BLOCK = re.compile(r"^(?:const|var) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_IOTA = re.compile(r"^\t([A-Z]\w*)(?: +[\w.]+)?(?: = .*)?(?: *//.*)?$", re.MULTILINE)
_INTERFACE = re.compile(r"^type (?P<type>[A-Z]\w*) interface \{\n(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)


def names(text: str) -> Iterator[str]:
    """Yield the exported names of one file."""
    for found in _DECLARED.finditer(text):
        if found["method"]:
            yield f"{found['receiver']}.{found['method']}"
        elif found["name"]:
            yield found["name"]
    for block in _BLOCK.findall(text):
        yield from _IOTA.findall(block)
    for found in _INTERFACE.finditer(text):
        yield from (f"{found['type']}.{name}" for name in re.findall(r"^\t([A-Z]\w*)\(", found["body"], re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Write the file from the libraries in these directories; keep the lines of the others."""
    kept = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    directories = dict(argument.split("=", 1) for argument in arguments)
    lines = {line for line in kept if line.partition("/")[0].partition(" ")[0] not in directories}
    for library, directory in directories.items():
        for package in PACKAGES[library]:
            title = library if package == "." else f"{library}/{package}"
            for file in Path(directory, package).glob("*.go"):
                if not re.search(r"_(test|windows|freebsd|unsupported|others)\.go$", file.name):
                    lines |= {f"{title} {name}" for name in names(file.read_text(encoding="utf-8"))}
    FILE.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
