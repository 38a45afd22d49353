"""Make one executable file of a plugin: ``python -m libcni.plugin build my_plugin.py -o /opt/cni/bin/my-plugin``.

The file is a Python script with the compiled modules of the plugin and of the plugin side of libcni in it. It needs
Python and no packages. It is no zip archive on purpose: Python starts an archive through ``runpy``, which takes 4 ms
more. Under another version of Python, whose bytecode differs, it compiles the source instead, which is in the file too.
"""

from __future__ import annotations

import argparse
import json
import marshal
import os
import subprocess
import sys
import tempfile
import zlib
from base64 import b85encode
from binascii import b2a_base64
from pathlib import Path
from textwrap import fill

from libcni import __version__
from libcni.errors import CNIError
from libcni.executor.start_ahead import PLUGIN_MARKER

_LIBRARY = (
    "libcni",
    "libcni._version",
    "libcni._error_code",
    "libcni._namespace",
    "libcni.errors",
    "libcni.config",
    "libcni.config.identifiers",
    "libcni.config.versions",
    "libcni.protocol",
    "libcni.protocol.conversion",
    "libcni.protocol.invocation",
    "libcni.executor",
    "libcni.plugin",
)
"""The modules of the plugin side; of a package in ``_WHOLE`` all modules."""

_WHOLE = ("libcni.plugin", "libcni.executor")
_NOT_AT_RUN_TIME = frozenset({"libcni.plugin.build", "libcni.plugin.__main__"})

# What a start needs; the other modules are decoded on first import.
_EAGER = (
    "libcni",
    "libcni._version",
    "libcni.errors",
    "libcni.config",
    "libcni.config.identifiers",
    "libcni.config.versions",
    "libcni.plugin",
    "libcni.plugin.dispatch",
    "libcni.plugin.environment",
    "libcni.plugin.failure",
    "libcni.plugin.fastjson",
    "libcni.plugin.reading",
    "libcni.plugin.request",
    "libcni.plugin.results",
    "libcni.protocol",
    "libcni.protocol.conversion",
)

# Runs in the interpreter of the node. An import of __future__ would read a file at each start, so it becomes flags of
# the compiler, for that module only: annotations that are strings are looked up in the module's names alone.
_COMPILER = """
import __future__, ast, json, marshal, sys
from importlib.util import MAGIC_NUMBER
sources = json.load(sys.stdin)
codes = {}
for name, source in sources["modules"].items():
    tree, flags = ast.parse(source, name), 0
    for node in [node for node in tree.body if getattr(node, "module", None) == "__future__"]:
        tree.body.remove(node)
        for feature in node.names:
            flags |= getattr(__future__, feature.name).compiler_flag
    codes[name] = marshal.dumps(
        compile(tree, sources["target"] + "/" + name, "exec", flags=flags, dont_inherit=True, optimize=2)
    )
sys.stdout.buffer.write(marshal.dumps((MAGIC_NUMBER, codes)))
"""

_SCRIPT = '''\
#!{interpreter}
# {marker}
# {name}: a CNI plugin with libcni {version} in it, made by "python -m libcni.plugin build". Do not edit.
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER
from binascii import a2b_base64
from marshal import loads


class Modules:
    """Imports the modules in this file."""

    def find_spec(self, name, path=None, target=None):
        if name not in PACKAGES:
            return None
        return ModuleSpec(name, self, origin=f"{{__file__}}/{{name}}", is_package=PACKAGES[name])

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name):
        if MAGIC_NUMBER != {magic!r}:
            return compile(self.get_source(name), f"{{__file__}}/{{name}}", "exec", dont_inherit=True)
        if name not in CODE:
            from zlib import decompress

            CODE.update(loads(decompress(a2b_base64(stored("later")))))
        return loads(CODE[name])

    def get_source(self, name):
        from base64 import b85decode
        from zlib import decompress

        return loads(decompress(b85decode(stored("source"))))[name]


def stored(key):
    """Return a block of this file; blocks are comments, because a string of that length takes 1 ms to parse."""
    start = b"#" + key.encode() + b" "
    with open(__file__, "rb") as file:
        return next(line[len(start):] for line in file if line.startswith(start)).strip()


PACKAGES = {packages!r}
CODE = loads(a2b_base64(stored("start"))) if MAGIC_NUMBER == {magic!r} else {{}}
modules = Modules()
sys.meta_path.insert(0, modules)
# A traceback shows the plugin's lines, and not those of this file.
__loader__ = modules
exec(modules.get_code("__main__"), globals())
#start {eager}
#later {later}
#source {source}
'''


_VERSION_SECONDS = 60.0
"""Seconds for the VERSION of a new product."""


class BuildError(CNIError):
    """A plugin that cannot be built."""


def build(
    plugin: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    include: list[str] | None = None,
    python: str = "/usr/bin/python3",
    packages: bool = False,
) -> None:
    """Write one executable file with ``plugin`` and the plugin side of libcni in it.

    The bytecode is made by ``python``. On a node with another version the plugin runs too, and starts more slowly.

    Args:
        plugin: the plugin's script, which calls ``plugin.run()`` when it is ``__main__``. Its module level must do
            nothing but definitions, because a runtime may start a plugin before its configuration is known.
        output: the file to write, whose name is the plugin's type.
        include: further Python files, each to be imported by its name.
        python: the interpreter that runs the plugin, at the same path here and on the node.
        packages: whether the plugin imports installed packages. Without them the start takes less time.

    Raises:
        BuildError: if a file is missing or no Python, or the product does not answer VERSION.
    """
    path, target = Path(plugin), Path(output)
    files = {name: _library_file(name) for name in _library_names()}
    sources = {name: _read(file) for name, file in files.items()}
    sources.update({Path(extra).stem: _read(Path(extra)) for extra in include or []})
    sources["__main__"] = _read(path)
    # The interpreter of the node compiles: bytecode is of one version of Python only.
    magic, code = _compiled(sources, target.name, python)
    eager = {name: code[name] for name in (*_EAGER, "__main__")}
    later = {name: text for name, text in code.items() if name not in eager}
    script = _SCRIPT.format(
        interpreter=f"{python} -I" if packages else f"{python} -IS",
        marker=PLUGIN_MARKER.decode(),
        name=target.name,
        version=__version__,
        magic=magic,
        packages={name: name in files and files[name].name == "__init__.py" for name in sources if name != "__main__"},
        eager=b2a_base64(marshal.dumps(eager), newline=False).decode(),
        later=b2a_base64(zlib.compress(marshal.dumps(later), 9), newline=False).decode(),
        source=b85encode(zlib.compress(marshal.dumps(sources), 9)).decode(),
    )
    _install(script, target)


def _build_hint(done: subprocess.CompletedProcess[bytes]) -> str | None:
    if b"ModuleNotFoundError" in done.stderr:
        return "--include adds a module of yours, --packages lets the plugin import installed packages"
    return None if done.returncode else "does the script end with plugin.run()?"


def _install(script: str, target: Path) -> None:
    """Write the file into the target's directory, try it, and rename it.

    So a runtime never sees half a plugin or a broken one.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise BuildError(f"cannot write to {target.parent}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(temporary, 0o755)  # noqa: S103 - a plugin is a program for all
        # Before the rename: the file that works now stays, if the new one does not.
        done = subprocess.run(  # noqa: S603 - the plugin that is being built
            [temporary],
            env={"CNI_COMMAND": "VERSION"},
            input=b"",
            capture_output=True,
            check=False,
            timeout=_VERSION_SECONDS,
        )
        if done.returncode or b"supportedVersions" not in done.stdout:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]
            problem = f"{target.name} does not answer VERSION (exit status {done.returncode}): {said or 'no output'}"
            raise BuildError(problem, hint=_build_hint(done))
        os.rename(temporary, target)
    except subprocess.TimeoutExpired as error:
        Path(temporary).unlink(missing_ok=True)
        raise BuildError(f"{target.name} does not answer VERSION within {_VERSION_SECONDS:g} s") from error
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise BuildError(f"cannot write {target}: {error.strerror}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _library_names() -> list[str]:
    root = Path(__file__).parents[1]
    whole = [
        ".".join(("libcni", *path.relative_to(root).with_suffix("").parts))
        for package in _WHOLE
        for path in sorted((root / package.removeprefix("libcni.")).glob("*.py"))
        if path.stem != "__init__"
    ]
    return [name for name in dict.fromkeys([*_LIBRARY, *whole]) if name not in _NOT_AT_RUN_TIME]


def _library_file(name: str) -> Path:
    path = Path(__file__).parents[1].joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"cannot read {path}: {error}") from error


def _compiled(sources: dict[str, str], target: str, python: str) -> tuple[bytes, dict[str, bytes]]:
    """Return the magic number of ``python``, and the bytecode of each module, without docstrings and columns."""
    command = [python, "-IS", "-X", "no_debug_ranges", "-c", _COMPILER]
    text = json.dumps({"target": target, "modules": sources})
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)  # noqa: S603 - as asked
    except OSError as error:
        raise BuildError(
            f"cannot start the interpreter {python}: {error.strerror}", hint="name another one with --python"
        ) from error
    if done.returncode:
        raise BuildError(f"cannot compile {target}: {done.stderr.decode(errors='replace').strip()[-2000:]}")
    magic, codes = marshal.loads(done.stdout)  # noqa: S302 - printed by the interpreter that was just started
    return magic, codes


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of ``python -m libcni.plugin`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m libcni.plugin", description="Tools for authors of CNI plugins.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = "Make one executable file of a plugin, with the compiled modules of libcni's plugin side in it."
    command = commands.add_parser("build", help=about, description=fill(about, 100))
    command.add_argument("plugin", help="the plugin's script")
    command.add_argument("-o", "--output", required=True, help="the file to write; its name is the plugin's type")
    command.add_argument("--include", action="append", default=[], metavar="FILE", help="another Python file to import")
    command.add_argument("--python", default="/usr/bin/python3", help="the interpreter on the node (%(default)s)")
    command.add_argument(
        "--packages", action="store_true", help="the plugin imports installed packages; it starts more slowly"
    )
    given = parser.parse_args(arguments)
    try:
        build(given.plugin, given.output, include=given.include, python=given.python, packages=given.packages)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
