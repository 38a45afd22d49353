"""Every Python example in docs/ runs, and prints what the page says."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import Namespace, RealNode

import libcni.diagnosis
import libcni.engines.oci
import libcni.executor
import libcni.manager
import libcni.observe
import libcni.options
import libcni.plugin
import libcni.reports
import libcni.testing
from libcni.cli import failures

DOCS = Path(__file__).resolve().parents[2] / "docs"
CODE = re.compile(r"""^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<out>.*?)^```$)?""", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"how-to/networks.md"}  # tests/manager/test_docs.py
FILES = re.compile(r'^```\w+ title="(?P<name>[^"]+)"\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = re.compile(r'^```(?:\w+ title="(?P<name>[^"]+)"|console)\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
DBNET = {
    "cniVersion": "1.1.0",
    "name": "dbnet",
    "plugins": [
        {"type": "fake-bridge", "ipam": {"subnet": "10.1.0.0/16"}},
        {"type": "fake-portmap", "capabilities": {"portMappings": True}},
    ],
}
PAGES = [
    name
    for page in sorted(DOCS.rglob("*.md"))
    if (name := page.relative_to(DOCS).as_posix()) not in ELSEWHERE and CODE.search(page.read_text())
]


@pytest.fixture
def places(tmp_path: Path, fake_path: str, fake_state: Path) -> Iterator[dict[str, str]]:
    """Return where the pages' directories are."""
    assert not fake_state.exists()
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / "10-db.conflist").write_text(json.dumps(DBNET))
    yield {
        "/etc/cni/net.d": str(tmp_path / "net.d"),
        "/opt/cni/bin": fake_path,
        "/var/lib/cni": str(tmp_path / "cache"),
        "/tmp/tutorial/net.d": str(tmp_path / "net.d"),
        "/tmp/tutorial/cni": str(tmp_path / "cache"),
        '"plugins-fake"': f'"{fake_path}"',
        "/tmp/crowd/bin": fake_path,
        "/tmp/crowd/cache": str(tmp_path / "crowd"),
    }
    (tmp_path / "net.d" / "10-db.conflist").unlink()


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_and_prints_what_it_says(
    page: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"__name__": "page"}
    for match in CODE.finditer((DOCS / page).read_text()):
        code = re.sub("|".join(places), lambda found: places[found[0]], match["code"])
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out == (match["out"] or "")


def restart_of_page(cni: libcni.CNIConfig) -> Any:
    """Return the function ``restart`` of the page, with a client."""
    page = (DOCS / "how-to/embed.md").read_text()
    names: dict[str, Any] = {"libcni": libcni, "cni": cni}
    end = page.index('\n\ncni.add_network_list("dbnet", libcni.RuntimeConf("old"')
    exec(page[page.index("def restart(") : end], names)
    return names["restart"]


@pytest.mark.real
def test_the_recipe_for_a_restart_detaches_keeps_and_mends(
    places: dict[str, str], fake_state: Path, container: Namespace
) -> None:
    cni = libcni.CNIConfig(places["/opt/cni/bin"], places["/var/lib/cni"], conf_dir=places["/etc/cni/net.d"])
    restart = restart_of_page(cni)
    alive = {"kept": container.path, "damaged": container.path}
    for name, ifname in (("kept", "eth0"), ("old", "eth9")):
        cni.add_network_list("dbnet", libcni.RuntimeConf(name, container.path, ifname))
    restart("dbnet", alive)
    (fake_state / "interfaces/damaged.eth0").unlink()
    restart("dbnet", alive)
    assert sorted(one.container_id for one in cni.get_cached_attachments()) == ["damaged", "kept"]
    assert sorted(path.name for path in (fake_state / "interfaces").iterdir()) == ["damaged.eth0", "kept.eth0"]


@pytest.mark.real
def test_the_recipe_for_a_restart_leaves_a_healthy_container_with_a_port_alone(
    real_node: RealNode, container: Namespace
) -> None:
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    cni = real_node.client(env={"PATH": f"{os.defpath}:/usr/sbin:/sbin"})  # with it, CHECK of portmap 1.1.1 fails
    real_node.configure("dbnet", real_node.bridge("10.79.3.0/24"), ports)
    wanted = {"portMappings": [{"hostPort": 18082, "containerPort": 80, "protocol": "tcp"}]}
    cni.add_network_list("dbnet", libcni.RuntimeConf("web", container.path, "eth0", capability_args=wanted))
    before = container.link("eth0")
    restart_of_page(cni)("dbnet", {"web": container.path})
    assert container.link("eth0") == before


def test_the_networks_among_the_answers_load() -> None:
    page = (DOCS / "how-to/questions.md").read_text()
    documents = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [libcni.NetworkConfigList.from_bytes(text).name for text in documents] == ["dual", "lan"]
    [first] = re.findall(r"replace the first line of the plugin by `(.*?)`", page)
    vlan = re.sub(r'^  \{"type": "macvlan".*$', lambda _: first, documents[1], flags=re.MULTILINE)
    assert libcni.NetworkConfigList.from_bytes(vlan).plugins[0].type == "vlan"


def test_the_copied_network_has_a_name_a_bridge_and_a_subnet_of_its_own() -> None:
    network = dict(FILES.findall((DOCS / "how-to/podman.md").read_text()))["/etc/cni/net.d/10-front.conflist"]
    command = re.search(r"^sed '(.*?)' ", (DOCS / "how-to/networks.md").read_text(), re.MULTILINE)
    assert command
    copied = subprocess.run(["sed", command[1]], input=network, capture_output=True, text=True, check=True).stdout
    first, second = (json.loads(text) for text in (network, copied))
    assert first["name"] != second["name"]
    assert first["plugins"][0]["bridge"] != second["plugins"][0]["bridge"]
    assert first["plugins"][0]["ipam"]["subnet"] != second["plugins"][0]["ipam"]["subnet"]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_metric_counts_findings_and_none() -> None:
    command = re.search(r"doctor -o json \| jq -c '(.*)'$", (DOCS / "reference/cli.md").read_text(), re.MULTILINE)
    assert command
    for severities, counted in {("error", "error", "note"): (2, 0, 1), (): (0, 0, 0)}.items():
        report = json.dumps({"findings": [{"severity": severity} for severity in severities]})
        printed = subprocess.run(["jq", "-c", command[1]], input=report, capture_output=True, text=True, check=True)
        assert tuple(json.loads(printed.stdout).values()) == counted


def test_the_page_of_the_command_line_has_every_key_of_json() -> None:
    section = (DOCS / "reference/cli.md").read_text().partition("\n## JSON\n")[2]
    rows = {"error": set(re.findall(r"`(\w+)`", section[section.index("An error goes to stderr") :]))}
    for names, keys in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE):
        rows |= {name: set(re.findall(r"`(\w+)`", keys)) for name in re.findall(r"`(\w+)`", names)}
    frozen = (DOCS.parent / "testdata/api.txt").read_text().partition("\n## Keys of -o json\n")[2]
    parts = [line.rpartition(": ") for line in frozen.splitlines() if not line.startswith("add net ")]
    printed = {
        ("error" if "(stderr)" in command else command.split()[0], key.rpartition(".")[2].removesuffix("[]"))
        for command, _, keys in parts
        for key in keys.split()
    }
    kinds = {
        "doctor": (libcni.diagnosis.NodeFinding, libcni.diagnosis.Checked, libcni.diagnosis.NotChecked),
        "repair": (libcni.diagnosis.MendOutcome, libcni.diagnosis.Mend),
    }
    printed |= {(name, field.name) for name, of in kinds.items() for kind in of for field in dataclasses.fields(kind)}
    printed |= {("error", name) for name in (*failures._FIELDS, "errors", "rollback_errors", "cause")}
    assert {command for command, _ in printed} == rows.keys() - {"add"}
    assert [(command, key) for command, key in sorted(printed) if key not in rows[command]] == []


def test_the_tutorial_has_the_network_of_these_tests() -> None:
    page = (DOCS / "tutorial.md").read_text()
    written = re.search(r"^cat > \S+/10-db.conflist <<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL)
    assert written
    assert json.loads(written[1]) == DBNET
    assert "FAKE_CNI_STATE=/tmp/tutorial/state .venv/bin/python" in page


def test_the_tests_of_the_page_on_plugins_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(libcni.__file__).parent.parent))
    files = dict(FILES.findall((DOCS / "how-to/plugin.md").read_text()))
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    count = sum(len(re.findall("^def test_", text, re.MULTILINE)) for text in files.values())
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the tests
    outcomes = pytester.runpytest_subprocess("-p", "libcni.testing.pytest_plugin").parseoutcomes()
    skipped = outcomes.pop("skipped", 0)
    assert outcomes == {"passed": count - skipped}
    assert count > skipped
    assert not skipped or libcni.testing.why_no_namespaces()


def reader_does(block: re.Match[str], directory: Path) -> list[str]:
    """Return shell commands that save a file of the page, or type the commands of a console block."""
    if block["name"]:
        return [f"printf %s {shlex.quote(block['text'])} > {shlex.quote(str(directory / block['name']))}"]
    commands = re.findall(r"^\$ (.*)$", block["text"], re.MULTILINE)
    return [f"echo {shlex.quote(f'$ {command}')}\n{command}" for command in commands]


def test_the_files_and_commands_of_the_tutorial_go_as_written(tmp_path: Path, fake_path: str) -> None:
    page = (DOCS / "tutorial.md").read_text().replace("/tmp/first", str(tmp_path / "first"))
    clone = tmp_path / "libcni"
    clone.mkdir()
    (clone / ".venv").symlink_to(sys.prefix)
    (clone / "plugins-fake").symlink_to(fake_path)
    for directory in ("net.d", "plugins"):
        (tmp_path / "first" / directory).mkdir(parents=True)
    typed = "".join(CONSOLE.findall(page))
    steps = [part for block in BLOCKS.finditer(page) for part in reader_does(block, tmp_path / "first")]
    assert len(steps) > len(FILES.findall(page)) > 1
    script = "\n".join(steps)
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(libcni.__file__).parent.parent),
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p libcni.testing.pytest_plugin",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the other plugins take longer to load than the tests to run
    }
    run = ["bash", "-c", f"exec 2>&1\n{script}"]
    printed = subprocess.run(
        run, cwd=clone, env=env, check=False, stdout=subprocess.PIPE, text=True, timeout=300
    ).stdout
    # The number of checks grows with libcni.testing.
    typed = re.sub(r"\d\.\d\ds$", "TIME", re.sub(r"of \d+ checks", "of CHECKS checks", typed), flags=re.MULTILINE)
    wanted = re.escape(typed).replace("TIME", r"[\d.]+s").replace("CHECKS", r"\d+")
    assert re.fullmatch(wanted.replace("\\.\\.\\.\\\n", "(?:.*\n)+"), printed), printed


def test_every_public_name_is_in_the_reference() -> None:
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    named = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    rest = {name for name in named if name.endswith(".*")}  # scripts/site_links.py
    modules_of_rest = [sys.modules[name.removesuffix(".*")] for name in rest]
    named = (named - rest) | {f"{module.__name__}.{name}" for module in modules_of_rest for name in module.__all__}
    modules = (
        libcni,
        libcni.diagnosis,
        libcni.executor,
        libcni.manager,
        libcni.observe,
        libcni.engines.oci,
        libcni.options,
        libcni.reports,
    )
    public = {
        f"{module.__name__}.{name}" for module in (*modules, libcni.plugin, libcni.testing) for name in module.__all__
    }
    assert named - {"libcni.options.DelPolicy"} == public - {"libcni.__version__", "libcni.options.DelPolicy"}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    pages = (*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md"), *(DOCS.parent / "testdata/evidence").glob("*.md"))
    broken = [
        (page.name, link, anchor)
        for page in pages
        for link, anchor in re.findall(r"\]\((?!http|\*)([^)#]*)#?([^)]*)\)", page.read_text())
        if not (target := page.parent / link if link else page).exists()
        or (anchor and target.suffix == ".md" and anchor not in anchors(target))
    ]
    assert broken == []
