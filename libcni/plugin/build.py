"""Make one executable file of a plugin: ``python -m libcni.plugin build my_plugin.py -o /opt/cni/bin/my-plugin``.

The file is a zipapp with the plugin, the plugin side of libcni, and the bytecode of both. It needs Python and no
packages. Under another version of Python, whose bytecode differs, it compiles the sources, which are in the file too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from libcni.errors import CNIError
from libcni.executor.start_ahead import PLUGIN_MARKER

_LIBRARY = (
    "*.py", "config/*.py", "protocol/*.py", "executor/*.py", "kernel/__init__.py", "kernel/namespace.py",
    "kernel/system.py", "plugin/*.py",
)  # fmt: skip
"""The files of libcni that a plugin imports, directly or through others, except those of ``_RUNTIME_ONLY``."""

_RUNTIME_ONLY = frozenset({
    "__main__.py", "aio.py", "client.py", "options.py", "reports.py", "config/capability_args.py",
    "config/directory.py", "config/host_local.py", "config/network.py", "config/runtime_conf.py",
    "config/timeouts.py", "config/yamltext.py",
    "executor/async_process.py", "executor/invoke.py", "executor/loop_events.py", "executor/recording.py",
    "executor/start_ahead.py", "plugin/build.py", "plugin/__main__.py", "protocol/request.py",
})  # fmt: skip
"""Files that no plugin imports. Each file in the product makes each start of the plugin slower."""

_PLUGIN = "_cni_plugin"
"""The name of the plugin's own module in the product."""

# Any Python since 2.7 must be able to read this. It needs the file's own loader: zipimport finds the bytecode.
_MAIN = """import sys

if sys.version_info < (3, 11):
    import json

    found = ".".join(str(number) for number in sys.version_info[:3])
    try:
        version = json.loads(sys.stdin.read())["cniVersion"]
    except Exception:
        version = "1.1.0"
    msg = "this plugin needs Python 3.11 or newer, and %s is Python %s" % (sys.executable, found)
    hint = "install a newer Python, and build the plugin with --python and its path"
    print(json.dumps({"cniVersion": version, "code": 100, "msg": msg, "details": hint}))
    sys.exit(1)


class _Source:
    def get_source(self, name, loader=__loader__):
        return loader.get_source("_cni_plugin")


code = __loader__.get_code("_cni_plugin")
__loader__, __spec__ = _Source(), None  # tracebacks show the lines of the plugin
exec(code)
"""

_VERSION_SECONDS = 60.0
"""Seconds in which a new product must answer VERSION."""


class BuildError(CNIError):
    """The plugin cannot be built."""


def build(
    plugin: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    include: list[str] | None = None,
    python: str = "/usr/bin/python3",
    packages: bool = False,
) -> None:
    """Write one executable file with ``plugin`` and the plugin side of libcni in it.

    The file has bytecode for the version of ``python``. On a node with another version the plugin starts more slowly.

    Args:
        plugin: the plugin's script, which calls ``plugin.run()`` when it is ``__main__``. Its module level must
            contain only definitions, because a runtime may start a plugin before its configuration is known.
        output: the file to write, whose name is the plugin's type.
        include: further Python files, each to be imported by its name.
        python: the interpreter that runs the plugin, at the same path here and on the node.
        packages: whether the plugin imports installed packages. Without them the start takes less time.

    Raises:
        BuildError: if a file is missing or is not Python, or the product does not answer VERSION.
    """
    target = Path(output)
    if not target.parent.is_dir():
        raise BuildError(f"cannot write {target}: there is no directory {target.parent}")
    if target.exists() and not target.is_file():
        # A rename would replace a device such as /dev/null, for every program of the machine.
        raise BuildError(f"cannot write {target}: it is not a regular file")
    try:
        # In the target's directory, so that a rename puts the product in place: a runtime never sees half of it.
        with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as directory:
            product = Path(directory, target.name)
            sources = Path(directory, "sources")
            _collect(sources, plugin, include or [])
            _compile(sources, target.name, python)
            zipapp.create_archive(sources, product, f"{python} {'-I' if packages else '-IS'}")
            with zipfile.ZipFile(product, "a") as archive:
                archive.comment = PLUGIN_MARKER
            product.chmod(0o755)  # any user may run a plugin
            _try(product)  # before the rename: if the new plugin fails, the old file stays in place
            product.rename(target)
    except OSError as error:
        raise BuildError(f"cannot write {target}: {error.strerror}") from error


def _collect(sources: Path, plugin: str | os.PathLike[str], include: list[str]) -> None:
    root = Path(__file__).parents[1]
    names = {str(path.relative_to(root)) for pattern in _LIBRARY for path in root.glob(pattern)}
    files = {Path("libcni", name): root / name for name in names - _RUNTIME_ONLY}
    files |= {Path(Path(name).name): Path(name) for name in include}
    files[Path(f"{_PLUGIN}.py")] = Path(plugin)
    for name, path in files.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, sources / name)
        except OSError as error:
            raise BuildError(f"cannot read {path}: {error.strerror}") from error
    (sources / "__main__.py").write_text(_MAIN, encoding="utf-8")


def _compile(sources: Path, name: str, python: str) -> None:
    """Write the bytecode of ``python`` next to each source. An import does not compare it with the source."""
    words = ["-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash"]
    words += ["-s", str(sources), "-p", name, str(sources)]  # tracebacks name the product and not this directory
    try:
        process = subprocess.run([python, "-IS", *words], capture_output=True, text=True, check=False)  # noqa: S603 - as asked
    except OSError as error:
        hint = "give another interpreter with --python"
        raise BuildError(f"cannot start the interpreter {python}: {error.strerror}", hint=hint) from error
    if process.returncode:
        raise BuildError(f"cannot compile {name}: {(process.stdout + process.stderr).strip()[-2000:]}")


def _try(product: Path) -> None:
    """Raise BuildError if the product does not answer VERSION."""
    try:
        process = subprocess.run(  # noqa: S603 - the plugin that is being built
            [product],
            env={"CNI_COMMAND": "VERSION"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        problem = f"{product.name} does not answer VERSION within {_VERSION_SECONDS:g} s"
        raise BuildError(problem, hint="write only definitions at module level, then plugin.run()") from error
    if process.returncode == 0 and "supportedVersions" in process.stdout:
        return
    hint = None if process.returncode else "does the script end with plugin.run()?"
    if "ModuleNotFoundError" in process.stderr:
        hint = "use --include for a module of your own, --packages for installed packages"
    output = (process.stderr or process.stdout).strip()[-2000:] or "no output"
    raise BuildError(f"{product.name} does not answer VERSION (exit status {process.returncode}): {output}", hint=hint)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of ``python -m libcni.plugin`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m libcni.plugin", description="Tools for authors of CNI plugins.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = "Make one executable file of a plugin, with libcni's plugin side in it."
    command = commands.add_parser("build", help=about, description=about)
    command.add_argument("plugin", help="the plugin's script")
    command.add_argument("-o", "--output", required=True, help="the file to write; its name is the plugin's type")
    command.add_argument("--include", action="append", default=[], metavar="FILE", help="another Python file to import")
    command.add_argument("--python", default="/usr/bin/python3", help="the interpreter on the node (%(default)s)")
    command.add_argument(
        "--packages", action="store_true", help="the plugin imports installed packages; it starts more slowly"
    )
    options = parser.parse_args(arguments)
    try:
        build(options.plugin, options.output, include=options.include, python=options.python, packages=options.packages)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
