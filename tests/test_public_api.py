"""The shape of the library: imports go one way, public names are listed and documented, and importing is light."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import libcni
import libcni.diagnosis
import libcni.engines.netavark
import libcni.engines.oci
import libcni.executor
import libcni.kernel.system
import libcni.manager
import libcni.observe
import libcni.options
import libcni.plugin
import libcni.reports
import libcni.testing
from libcni.options import AddOptions, GCOptions

ROOT = Path(libcni.__file__).parent

# Imports go one way: a room may import from itself and from those in the lines before it.
LAYERS = [
    ["_dataclass", "_defaults", "_known_faults", "_version"],
    ["kernel"],
    ["errors"],
    ["config"],
    ["protocol"],
    ["executor", "store", "observe"],
    ["options"],
    ["verbs"],
    ["reports"],
    ["client", "aio"],
    ["diagnosis"],
    ["manager", "plugin", "testing"],
    ["engines"],
    ["cli", "__main__"],
]
PLAIN = {"_dataclass", "_lazy", "kernel", "errors", "config", "protocol"}


PACKAGES = (
    libcni,
    libcni.diagnosis,
    libcni.executor,
    libcni.manager,
    libcni.engines.netavark,
    libcni.observe,
    libcni.engines.oci,
    libcni.reports,
    libcni.testing,
)


@cache
def modules() -> dict[str, set[str]]:
    """Return our modules that each module imports, by the first part of their names below libcni."""
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if name != "__init__":
            found.setdefault(name, set()).update(_imported(path) - {name})
    return found


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = [f"libcni.{alias.name}" for alias in node.names] if node.module == "libcni" else []
            names.update(whole or [node.module or ""])
    return {name.split(".")[1] for name in names if name.startswith("libcni.")}


def test_imports_go_one_way() -> None:
    level = {name: index for index, names in enumerate(LAYERS) for name in names}
    assert modules().keys() <= level.keys(), "a new module needs its place in LAYERS"
    wrong = [
        f"{name} imports {other}"
        for name, imported in modules().items()
        for other in imported
        if other in level and level[other] > level[name]
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    found = modules()
    seen: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' -> '.join([*above, name])}"
        if name not in seen:
            for other in found.get(name, set()):
                visit(other, (*above, name))
            seen.add(name)

    for name in found:
        visit(name, ())


@pytest.mark.parametrize("name", ["executor", "store", "observe"])
def test_what_touches_the_system_knows_errors_and_plain_data_only(name: str) -> None:
    assert modules()[name] <= PLAIN


def test_verbs_store_and_hook_reach_the_system_through_one_module() -> None:
    """The simulated node (tests/sim) replaces the names of libcni.kernel.system, and sees nothing else."""
    single = (
        "kernel/namespace",
        "kernel/regular_file",
        "client",
        *(f"engines/oci/{name}" for name in ("hook", "pins", "ended_containers")),
    )
    paths = [*ROOT.glob("store/*.py"), *ROOT.glob("verbs/*.py"), *(ROOT / f"{name}.py" for name in single)]
    direct = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in vars(libcni.kernel.system)
        and ast.unparse(node.value) in {"os", "os.path", "time", "fcntl", "_socket"}
    ]
    assert direct == []


MOST_BRANCHES = 12


def test_functions_of_verbs_and_store_have_few_branches() -> None:
    """Like ruff's C901, but with ``and``, ``or``, conditional expressions and comprehensions, which readers follow."""
    found = {
        f"{path.stem}.{function.name}": count
        for path in (*ROOT.glob("verbs/*.py"), *ROOT.glob("store/*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and (count := _branches(function))
    }
    assert {name: count for name, count in found.items() if count > MOST_BRANCHES} == {}


def _branches(function: ast.AST) -> int:
    branching = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
    count = 0
    for node in ast.walk(function):
        if isinstance(node, branching):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_package_offers_its_names(package: ModuleType) -> None:
    for home in package._MODULES:  # the names stay those of the package, whatever module of it was imported before
        import_module(resolve_name(f".{home}", package.__name__))
    assert set(package.__all__) == set(" ".join(package._MODULES.values()).split())
    for name in package.__all__:
        assert not inspect.ismodule(getattr(package, name)), name
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_a_module_lists_the_names_that_are_promised_and_no_others() -> None:
    promised: dict[str, set[str]] = {}
    for package in PACKAGES:
        for home, names in package._MODULES.items():
            promised.setdefault(resolve_name(f".{home}", package.__name__), set()).update(names.split())
    for name in set(libcni.plugin.__all__) - {"ErrorCode"}:
        promised.setdefault(getattr(libcni.plugin, name).__module__, set()).add(name)
    promised["libcni.reports"] = set(libcni.reports.__all__)
    promised["libcni.options"] = set(libcni.options.__all__)  # it has the types that are defined elsewhere, too
    for path in ROOT.rglob("*.py"):
        if path.name != "__init__.py":
            module = ".".join(("libcni", *path.relative_to(ROOT).with_suffix("").parts))
            assert _listed(path) == promised.get(module, set()), f"the names in __all__ of {module}"


def _listed(path: Path) -> set[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    both = vars(libcni.CNIConfig).keys() | vars(libcni.CNIConfig.__mro__[1]).keys()
    verbs = [name for name in both if "network" in name or "attachment" in name or "version" in name]
    assert len(verbs) > 15
    for name in verbs:
        one, other = (inspect.signature(getattr(cls, name)) for cls in (libcni.CNIConfig, libcni.AsyncCNIConfig))
        assert one == other, name


def test_help_of_the_asyncio_classes_shows_the_whole_docstring() -> None:
    pairs = [
        (libcni.CNIConfig, libcni.AsyncCNIConfig),
        (libcni.manager.NetworkManager, libcni.manager.AsyncNetworkManager),
    ]
    for blocking, on_asyncio in pairs:
        for name in vars(blocking).keys() & vars(on_asyncio).keys():
            if not name.startswith("_"):
                expected, text = (inspect.getdoc(getattr(kind, name)) or "" for kind in (blocking, on_asyncio))
                assert [line for line in expected.splitlines() if line not in text.splitlines()] == [], name
    assert "``live`` may be a coroutine function." in (libcni.manager.AsyncNetworkManager.gc.__doc__ or "")


NET = libcni.NetworkConfigList.from_plugin(libcni.PluginConfig.from_dict({"name": "n", "type": "a"}))
RT = libcni.RuntimeConf("c1", "/ns", "eth0")


@pytest.mark.parametrize(
    ("method", "args", "option", "problem"),
    [
        (
            "add_network_list",
            (NET, RT),
            "rollbak",
            "add_network_list() has no option 'rollbak'; did you mean rollback?",
        ),
        ("add_network", (NET.plugins[0], RT), "namespace", "add_network_list() has no option 'namespace'"),
        ("gc_network_list", (NET, []), "dryrun", "gc_network_list() has no option 'dryrun'; did you mean dry_run?"),
    ],
)
def test_an_unknown_option_is_refused_in_the_callers_words(
    method: str, args: tuple[Any, ...], option: str, problem: str
) -> None:
    for kind in (libcni.CNIConfig, libcni.AsyncCNIConfig):
        with pytest.raises(TypeError) as caught:
            getattr(kind("/x"), method)(*args, **{option: 1}).send(None)  # one of them is a coroutine function
        assert str(caught.value) == problem


def test_an_unknown_option_of_a_set_up_is_refused_before_anything_is_made() -> None:
    options: Any = {"namespace": 1}
    manager = libcni.manager.NetworkManager(libcni.CNIConfig("/x"), networks=[NET])
    with pytest.raises(TypeError, match=r"^set_up\(\) has no option 'namespace'"):
        manager.set_up(libcni.manager.Container("c1", "/ns"), **options)


@pytest.mark.parametrize(("verb", "options"), [("add", AddOptions), ("gc", GCOptions)])
def test_a_verbs_docstring_names_all_its_options(verb: str, options: type) -> None:
    described = getattr(libcni.CNIConfig, f"{verb}_network_list").__doc__
    assert [name for name in options.__annotations__ if f"``{name}``" not in described] == []


VERBS = ["check", "forget", "gc", "reload", "status", "version"]


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("libcni", ["pydantic", "dataclasses", "pathlib", "asyncio", "filelock", "yaml", "subprocess"]),
        ("libcni.errors, libcni.config.identifiers, libcni.config.versions", ["pydantic", "dataclasses", "pathlib"]),
        (
            "libcni.plugin",
            ["pydantic", "dataclasses", "enum", "functools", "json", "logging", "re", "subprocess", "typing"],
        ),
        (
            "libcni; libcni.RuntimeConf; libcni.CNIConfig",
            ["asyncio", "yaml", "subprocess", "pydantic", "ipaddress", *(f"libcni.verbs.{one}" for one in VERBS)],
        ),
        (
            "libcni.config.directory, libcni.protocol.request, libcni.protocol.answer",
            ["pydantic", "logging", "socket", "ipaddress", "asyncio", "yaml", "datetime", "pathlib"],
        ),
    ],
)
def test_imports_stay_light(imported: str, absent: list[str]) -> None:
    code = f"import sys; before = set(sys.modules)\nimport {imported}\nprint(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _with_path(code)], capture_output=True, text=True, check=True
    )
    assert not set(done.stdout.split()) & set(absent)


@pytest.mark.parametrize(("set_up", "printed"), [("", ""), ("logging.basicConfig()", "runtimeConfig")])
def test_warnings_are_printed_only_by_a_program_that_asks_for_logs(set_up: str, printed: str) -> None:
    net = '{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "p", "runtimeConfig": {}}]}'
    code = f"import logging, libcni\n{set_up}\nlibcni.NetworkConfigList.from_bytes({net!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _with_path(code)], capture_output=True, text=True, check=True
    )
    assert (done.stderr == "") if not printed else (printed in done.stderr)


def _with_path(code: str) -> str:
    return f"import sys; sys.path[:] = {sys.path!r}\n{code}"
