"""What is beside the node agent: its README's commands, and what deploys it."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from .conftest import ENVIRONMENT, FLEET, agent

REPOSITORY = FLEET.parents[1]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_commands_of_the_readme_print_what_it_says(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "examples", clone / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "plugins-fake", clone / "plugins-fake", symlinks=True)
    (clone / ".venv").symlink_to(sys.prefix)
    place = str(tmp_path / "libcni-fleet")
    for file in clone.glob("examples/fleet/demo/**/*"):
        if file.is_file():
            file.write_text(file.read_text().replace("/tmp/libcni-fleet", place))
    typed = "".join(CONSOLE.findall((FLEET / "README.md").read_text()))
    commands = re.findall(r"^\$ (.*)$", typed, re.MULTILINE)
    script = "\n".join(f"echo {shlex.quote(f'$ {one}')}\n{one}".replace("/tmp/libcni-fleet", place) for one in commands)
    done = subprocess.run(
        ["bash", "-c", script], cwd=clone, env=ENVIRONMENT, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.replace(place, "/tmp/libcni-fleet") == typed, done.stderr


def test_the_daemon_set_gives_the_agent_and_the_plugins_what_they_need() -> None:
    document = yaml.safe_load((FLEET / "daemonset.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "DaemonSet")
    spec = document["spec"]["template"]["spec"]
    assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"]
    assert spec["hostNetwork"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {"privileged": True}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    for path, mount in mounts.items():
        assert "subPath" not in mount  # a ConfigMap would never be updated
        assert volumes[mount["name"]].get("hostPath", {"path": path})["path"] == path
    assert "configMap" in volumes[mounts["/etc/libcni-fleet"]["name"]]
    assert volumes[mounts["/run/xtables.lock"]["name"]]["hostPath"]["type"] == "FileOrCreate"
    assert mounts["/run/netns"]["mountPropagation"] == "HostToContainer"
    options = agent.parser().parse_args(container["args"])
    assert "$(NODE_NAME)" in options.desired
    assert [one["name"] for one in container["env"]] == ["NODE_NAME"]
    named = {options.conf_dir, options.cache_dir, options.plugin_dir, os.path.dirname(options.status)}
    assert {*named, os.path.dirname(options.desired), "/var/lib/cni"} <= set(mounts)
    for path in (options.cache_dir, "/var/lib/cni", os.path.dirname(options.status)):
        assert not mounts[path].get("readOnly")
    _, program, *words = container["readinessProbe"]["exec"]["command"]
    assert program == "/fleet/agent.py"
    assert agent.parser().parse_args(words).healthy == options.status


def test_the_image_has_what_the_plugins_run_and_what_the_agent_imports() -> None:
    text = (FLEET / "Dockerfile").read_text().replace("\\\n", " ")
    assert {"iptables", "iproute2", "kmod"} <= set(text.split())
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY")]
    sources = [Path(source) for line in copied for source in line]
    # the tests against the wheel run beside no source of the library
    assert all((REPOSITORY / source).exists() for source in sources if source.name != "libcni")
    # all that the build of the package reads, and the build context has it
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    read = [*wheel["packages"], *wheel.get("force-include", {}), project["tool"]["hatch"]["version"]["path"]]
    read += ["pyproject.toml", "hatch_build.py", "README.md", *project["project"]["license-files"]]
    for path in map(Path, read):
        assert any(path.is_relative_to(source) for source in sources), path
    context = (FLEET / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{source}" for source in sources} <= set(context)
    [entry] = [line for line in text.splitlines() if line.startswith("ENTRYPOINT")]
    assert json.loads(entry.removeprefix("ENTRYPOINT ")) == ["python", "/fleet/agent.py"]


def test_the_systemd_unit_starts_the_agent_with_options_that_it_has() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FLEET / "libcni-fleet.service")
    service = unit["Service"]
    _, program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/agent.py")
    options = agent.parser().parse_args(words)
    assert options.cache_dir == f"/var/lib/{service['StateDirectory']}"
    assert os.path.dirname(options.status) == f"/run/{service['RuntimeDirectory']}"
    assert service["RestartPreventExitStatus"] == str(agent.REFUSED)
    assert service["NoNewPrivileges"] == "yes"
