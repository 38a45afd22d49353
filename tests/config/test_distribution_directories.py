"""The directories of other distributions: an error names those that this node has."""

from __future__ import annotations

from pathlib import Path

import pytest

from libcni import CNIConfig, NetworkNotFoundError, PluginNotFoundError
from libcni.config import distribution_directories
from libcni.diagnosis import diagnose


@pytest.fixture
def k3s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a node with k3s, whose user has a directory of configurations as well."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for directory in ("k3s/net.d", "k3s/bin", "home/.config/cni/net.d"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "k3s/bin/bridge").write_text("#!/bin/sh\n")
    (tmp_path / "k3s/bin/bridge").chmod(0o755)
    directories = {
        "k3s": ((f"{tmp_path}/k3s/net.d",), (f"{tmp_path}/k3s/bin", f"{tmp_path}/k3s/old")),
        "nerdctl": (("~/.config/cni/net.d", f"{tmp_path}/missing"), (f"{tmp_path}/k3s/bin",)),
    }
    monkeypatch.setattr(distribution_directories, "DIRECTORIES", directories)
    return tmp_path


def test_the_error_of_a_missing_directory_names_those_of_this_node(k3s: Path) -> None:
    cni = CNIConfig([k3s / "opt"], k3s / "cache", conf_dir=k3s / "etc")
    with pytest.raises(NetworkNotFoundError) as caught:
        cni.network("net")
    both = f"{k3s}/k3s/net.d (k3s), {k3s}/home/.config/cni/net.d (nerdctl)"
    assert str(caught.value.hint) == f"configurations may be in {both}: pass that directory with conf_dir"
    (k3s / "broken").mkdir()
    (k3s / "broken/a.conf").write_text("{")
    with pytest.raises(NetworkNotFoundError, match="1 file cannot be used") as unusable:
        CNIConfig([k3s / "opt"], k3s / "cache", conf_dir=k3s / "broken").network("net")
    assert "pass that directory with" not in str(unusable.value.hint), "the file's error is the one to mend"
    with pytest.raises(PluginNotFoundError) as missing:
        cni.find_plugin("bridge")
    assert str(missing.value.hint) == f"bridge is in {k3s}/k3s/bin (k3s, nerdctl): add this directory to path"
    remedies = [one.remedy for one in diagnose(cni).findings]
    assert f"configurations may be in {both}: choose one with --conf-dir" in remedies
    assert f"plugins may be in {k3s}/k3s/bin (k3s, nerdctl): choose one with --path" in remedies


def test_a_plugin_that_is_nowhere_and_an_unknown_network_have_their_own_hints(k3s: Path) -> None:
    cni = CNIConfig([k3s / "k3s/bin"], k3s / "cache", conf_dir=k3s / "k3s/net.d")
    with pytest.raises(PluginNotFoundError, match="install the plugin there"):
        cni.find_plugin("macvlan")
    with pytest.raises(NetworkNotFoundError) as empty:
        cni.network("net")
    other = f"{k3s}/home/.config/cni/net.d (nerdctl)"
    hint = f"configurations may be in {other}: pass that directory with conf_dir"
    assert str(empty.value.hint) == hint, "not the searched one"
    document = '{"cniVersion": "1.0.0", "name": "near", "plugins": [{"type": "bridge"}]}'
    (k3s / "k3s/net.d/near.conflist").write_text(document)
    with pytest.raises(NetworkNotFoundError, match="did you mean near"):
        cni.network("nearr")
