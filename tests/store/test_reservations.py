"""Who has an address now, by host-local's own file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from libcni import NetworkConfigList
from libcni.store import reservations
from libcni.store.reservations import holder_of, holders_of


def network(*ipam: Any) -> NetworkConfigList:
    plugins = [{"type": "bridge", "ipam": one} for one in ipam]
    return NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "net", "plugins": [*plugins, {"type": "a"}]})


def reserve(data_dir: Path, text: str, address: str = "10.0.0.2") -> None:
    (data_dir / "net").mkdir(parents=True, exist_ok=True)
    (data_dir / "net" / address).write_text(text)


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        ("c1\r\neth0", "this"),  # as host-local writes it
        ("c1\neth0\n", "this"),
        ("c2\r\neth0", "another"),
        ("c1\r\neth1", "another"),
        ("c2", "another"),  # as host-local before 0.7 wrote it
        ("c1", "unknown"),  # of any interface of the container
        ("", "another"),
        (None, "unknown"),
    ],
)
def test_the_file_of_an_address_says_who_has_it(tmp_path: Path, text: str | None, holder: str) -> None:
    if text is not None:
        reserve(tmp_path, text)
    net = network({"type": "host-local", "dataDir": str(tmp_path)})
    assert holder_of(net, "c1", "eth0", "10.0.0.2") == holder
    assert holder_of(net, "c1", "eth0", "10.0.0.3") == "unknown"


def test_of_several_plugins_one_reservation_of_this_attachment_decides(tmp_path: Path) -> None:
    reserve(tmp_path / "a", "c2\r\neth0")
    reserve(tmp_path / "b", "c1\r\neth0")
    net = network(*({"type": "host-local", "dataDir": str(tmp_path / name)} for name in "ab"))
    assert holder_of(net, "c1", "eth0", "10.0.0.2") == "this"
    assert holder_of(net, "c3", "eth0", "10.0.0.2") == "another"


def test_the_reservation_of_a_delegate_says_that_this_attachment_has_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each DEL of flannel reads the records of all other attachments."""
    monkeypatch.setattr(reservations, "_DATA_DIR", str(tmp_path))
    flannel = network()
    assert holder_of(flannel, "c1", "eth0", "10.0.0.2") == "unknown"
    reserve(tmp_path, "c1\r\neth0")
    (tmp_path / "a-file").write_text("")
    assert holder_of(flannel, "c1", "eth0", "10.0.0.2") == "this"
    # Another network's pool may have the same addresses, so this says nothing.
    assert holder_of(flannel, "c2", "eth0", "10.0.0.2") == "unknown"
    # The network's own pool knows better.
    own = network({"type": "host-local", "dataDir": str(tmp_path / "own")})
    reserve(tmp_path / "own", "c2\r\neth0")
    assert holder_of(own, "c1", "eth0", "10.0.0.2") == "another"


def test_a_directory_that_is_written_with_escape_sequences_is_found(tmp_path: Path) -> None:
    reserve(tmp_path, "c2\r\neth0")
    text = json.dumps({"name": "net", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "DIR": "x"}}]})
    text = text.replace('"DIR": "x"', f'"data\\u0044ir": "{tmp_path}"')
    net = NetworkConfigList.from_bytes(text.encode())
    assert holder_of(net, "c1", "eth0", "10.0.0.2") == "another"


def test_another_ipam_plugin_and_what_is_no_file_say_nothing(tmp_path: Path) -> None:
    reserve(tmp_path, "c2\r\neth0")
    os.mkfifo(tmp_path / "net" / "10.0.0.9")
    assert holder_of(network({"type": "whereabouts", "dataDir": str(tmp_path)}), "c1", "eth0", "10.0.0.2") == "unknown"
    net = network({"type": "host-local", "dataDir": str(tmp_path)})
    assert holder_of(net, "c1", "eth0", "10.0.0.9") == "unknown"
    assert holder_of(net, "c1", "eth0", "..") == "unknown"
    assert holder_of(net, "c1", "eth0", "\0") == "unknown"


def test_a_text_that_is_no_address_leads_to_no_other_file(tmp_path: Path) -> None:
    """It may be from the error text of a plugin."""
    reserve(tmp_path, "c2\r\neth0")
    (tmp_path / "secret").write_text("secret")
    net = network({"type": "host-local", "dataDir": str(tmp_path)})
    assert list(holders_of(net, "10.0.0.2")) == [("c2", "eth0")]
    for text in ("../secret", f"{tmp_path}/secret"):
        assert list(holders_of(net, text)) == []
