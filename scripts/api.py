"""Write testdata/api.txt: what is promised to programs and scripts. With --check: compare, and print the difference.

Run it with .venv/bin/python. The file has the public names with their signatures and fields, the options and exit codes
of the command, and the keys of its ``-o json``. A change of it is a decision, which the commit message explains.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, ForwardRef

import libcni.cli
import libcni.engines.netavark.driver_command
import libcni.engines.oci.hook_command
from libcni.cli.commands import COMMANDS, Command
from libcni.cli.failures import _CODES
from libcni.cli.overview import EXIT_CODES
from libcni.cli.parser import parser_of
from libcni.testing import FakePlugins

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "testdata" / "api.txt"
PACKAGES = (
    "libcni",
    "libcni.diagnosis",
    "libcni.executor",
    "libcni.manager",
    "libcni.observe",
    "libcni.engines.oci",
    "libcni.options",
    "libcni.plugin",
    "libcni.reports",
    "libcni.testing",
)
NET = {"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "fake", "capabilities": {"mac": True}}]}
RESULT = {
    "interfaces": [{"name": "eth0", "sandbox": "/run/netns/none"}],
    "ips": [{"address": "10.1.0.2/16", "interface": 0}],
}
# The commands of a small node's life; each key of what they print is promised. {}: the node's directory.
COMMAND_LINES = (
    "add net /run/netns/none -c c1 --capabilities {mac: '02:00:00:00:00:01'}",
    "check net /run/netns/none -c c1",
    "check c1",
    "status net",
    "networks",
    "networks --validate",
    "attachments",
    "show c1",
    "explain net /run/netns/none",
    "doctor",
    "repair",
    "gc net --valid c1",
    "gc net --valid c1 --dry-run",
    "reload c1",
    "forget c1 --yes",
    "add refusing /run/netns/none -c c1",
    "add nothere /run/netns/none -c c1",
    "del c1",
    "del net /run/netns/none -c c2",
)
# Below these keys are documents of others, or findings that depend on the machine.
DOCUMENTS = {"args", "capability_args", "checked", "config", "document", "env", "environment", "findings"}
DOCUMENTS |= {"network_args", "not_checked", "outcomes", "result", "stdin"}


def main() -> int:
    new = "\n".join(render()) + "\n"
    old = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if sys.argv[1:] == ["--check"]:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "promised", "as it is", n=0, lineterm="")
        print(*lines, sep="\n", end="\n" if old != new else "")
        return int(old != new)
    FILE.write_text(new, encoding="utf-8")
    return 0


def render() -> Iterator[str]:
    """Yield the lines of the file."""
    yield "# Written by make api. A change of this file changes what is promised: explain it in the commit message."
    for package in PACKAGES:
        module = import_module(package)
        yield from ("", f"## {package}")
        for name in sorted(module.__all__):
            yield from describe(name, getattr(module, name))
    yield from ("", "## The command libcni")
    for command in COMMANDS:
        yield f"{command.name} {' '.join(sorted(options(command)))}"
    yield from ("", "## Exit codes", EXIT_CODES)
    yield from (f"{code} {error.__name__}" for code, errors in _CODES.items() for error in errors)
    yield from ("", "## Keys of -o json")
    yield from json_keys()


def describe(name: str, value: Any) -> Iterator[str]:
    """Yield a public name, with its signature and its members."""
    if not inspect.isclass(value):
        yield f"def {name}{signature(value)}" if callable(value) and not is_alias(value) else f"{name} = {shown(value)}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    # Classes without a constructor of their own; that of a pydantic model has types that no version prints alike.
    is_plain = issubclass(value, Enum) or hasattr(value, "__total__") or hasattr(value, "model_fields")
    yield f"class {name}({bases}){'' if is_plain else ' ' + signature(value)}"
    for member in sorted(members(value)):
        yield f"    {member}"


def is_alias(value: Any) -> bool:
    return not inspect.isroutine(value)


def shown(value: Any) -> str:
    return _without_addresses(re.sub(r"\b(typing|collections\.abc|types)\.", "", repr(value)))


def _without_addresses(text: str) -> str:
    return re.sub(r"<(?:function )?([\w.<>]+)(?: object)? at 0x[0-9a-f]+>", r"\1", text)


def members(kind: type) -> Iterator[str]:
    """Yield the public members of a class, those of our own base classes included."""
    if issubclass(kind, Enum):
        yield from (f"{member.name} = {member.value!r}" for member in kind)
        return
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("libcni"):
            continue
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_") and name not in seen | {"model_config"}:
                seen.add(name)
                yield f"{name}: {annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation}"
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in seen and name != "model_config":
                seen.add(name)
                yield from described_member(name, member)
        # The fields of classes that set them in __init__.
        documented = re.search(r"^Attributes:\n((?: {4,}.*\n?)+)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        for name in re.findall(r"^ {4}(\w+)(?: \(.*\))?:", documented[1], re.MULTILINE) if documented else ():
            if name not in seen:
                seen.add(name)
                yield f"{name}"


def described_member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, property):
        yield f"{name}: {annotation_of(member.fget)}"
    elif isinstance(member, (classmethod, staticmethod)):
        yield f"{type(member).__name__} {name}{signature(member.__func__)}"
    elif inspect.isfunction(member):
        yield f"{'async ' * inspect.iscoroutinefunction(member)}def {name}{signature(member)}"


def annotation_of(function: Any) -> str:
    return str(inspect.get_annotations(function).get("return", ""))


def signature(value: Any) -> str:
    """Return a signature with the annotations as they are written."""
    try:
        whole = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    # Annotations are strings here; a string's representation has quotes.
    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", str(whole))  # Python 3.14 has resolved them
    text = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", text)
    text = re.sub(r"<(\w+)\.(\w+): .*?>", r"\1.\2", re.sub(r"\bself, |\bcls, |\(self\)|\(cls\)", _without, text))
    return _without_addresses(text)


def _without(match: re.Match[str]) -> str:
    return "()" if match[0].startswith("(") else ""


def options(command: Command) -> Iterator[str]:
    of_engines = {
        "oci-hook": libcni.engines.oci.hook_command,
        "netavark-plugin": libcni.engines.netavark.driver_command,
    }
    program = of_engines.get(command.name)
    parser = parser_of(command) if program is None else program._parser()  # noqa: SLF001 - these have their own options
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        words = "/".join(action.option_strings) or str(action.metavar or action.dest)
        yield f"[{words}]" if action.option_strings or action.nargs in {"?", "*"} else words


def json_keys() -> Iterator[str]:
    """Yield the keys that each command prints, on stdout and, of an error, on stderr."""
    with tempfile.TemporaryDirectory() as directory:
        fakes = FakePlugins(Path(directory))
        fakes.shell("fake", result=RESULT)
        refusal = {"error": {"code": 11, "msg": "the pool is empty", "details": "10.1.0.0/16"}, "stderr": "no\n"}
        fakes.scenario("refuses", {"ADD": refusal})
        refusing = {"cniVersion": "1.1.0", "name": "refusing", "plugins": [{"type": "refuses"}]}
        for net in (NET, refusing):
            Path(directory, f"{net['name']}.conflist").write_text(json.dumps(net), encoding="utf-8")
        os.environ.update(NETCONFPATH=directory, CNI_PATH=directory, LIBCNI_CACHE_DIR=f"{directory}/cache")
        for line in COMMAND_LINES:
            words = line.split(" ", 6) if "{" in line else line.split()
            for stream, text in zip(("", " (stderr)"), run(words), strict=True):
                start = min((text.index(char) for char in "{[" if char in text), default=None)
                document = json.loads(text[start:]) if start is not None and text[start:].strip() else None
                if document:
                    yield f"{line}{stream}: {' '.join(sorted(set(keys(document))))}"


def run(words: Sequence[str]) -> tuple[str, str]:
    """Run a command, and return what it prints on stdout and stderr."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), contextlib.suppress(SystemExit):
        libcni.cli.main([*words, "-o", "json"])
    return tuple(stream.buffer.getvalue().decode() for stream in (stdout, stderr))


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the keys in a document; ``[]`` stands for each item of a list."""
    if isinstance(value, list):
        for item in value:
            yield from keys(item, f"{path}[]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}".removeprefix(".")
            if key not in DOCUMENTS:
                yield from keys(item, f"{path}.{key}".removeprefix("."))


if __name__ == "__main__":
    sys.exit(main())
