"""Read the values of arguments: networks, capability arguments, attachments, and files that contain them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import libcni
from libcni import ConfigError
from libcni.cli.failures import UsageError

if TYPE_CHECKING:
    from libcni import NetworkConfigList, RuntimeConf

_MAX_BYTES = 16 << 20
"""The size of the largest document, as for a configuration."""
CONFIGURATION_ENDINGS = (".conflist", ".conf", ".json", ".yaml", ".yml")


def container_id_of(netns: str) -> str:
    """Return the container ID that cnitool derives from a namespace's path."""
    # cnitool's own formula: each of the two programs must find the attachments of the other.
    digest = hashlib.sha512(os.fsencode(os.path.abspath(netns))).hexdigest()
    return f"cnitool-{digest[:20]}"


class Selection(NamedTuple):
    """The recorded attachments that a user selects: those of a container, an interface and a network.

    ``container`` is None for all containers; ``ifname`` and ``network`` are "" for all.
    """

    container: str | None
    ifname: str = ""
    network: str = ""


class Target(NamedTuple):
    """The arguments of add, check, del and explain: an attachment, which need not be recorded."""

    network: str
    netns: str | None
    ifname: str
    container: str | None
    args: str
    capabilities: str
    only: str = ""

    def selection(self) -> Selection | None:
        """Return the selection of recorded attachments; None if the user gave cnitool's NETWORK and NETNS."""
        if self.netns is not None:
            return None
        if self.container is None:
            return Selection(self.network, self.ifname, self.only)
        return Selection(self.container, self.ifname, self.network or self.only)

    def net(self) -> str | NetworkConfigList:
        """Return the network's name, or its configuration if a path was given."""
        return network_of(self.network)

    def conf(self) -> RuntimeConf:
        """Return the parameters of the attachment. Without a container, derive its ID from the namespace."""
        named = f"/run/netns/{self.netns}"
        if self.netns and "/" not in self.netns and not os.path.exists(self.netns) and os.path.exists(named):
            raise UsageError(f"NETNS must be a path; did you mean {named}?")
        path = os.path.abspath(self.netns) if self.netns else self.netns  # "" means: without a namespace
        return libcni.RuntimeConf(
            self.container or container_id_of(self.netns or ""),
            path,
            self.ifname or "eth0",
            args=_cni_args(self.args) if self.args else None,
            capability_args=capability_args(self.capabilities) if self.capabilities else None,
        )


def _cni_args(text: str) -> tuple[tuple[str, str], ...]:
    """Read CNI_ARGS as cnitool does, which refuses an empty value."""
    pairs = libcni.parse_args(text)
    for key, value in pairs:
        if not value:
            raise UsageError(f"CNI_ARGS: {key} has no value: write {key}=VALUE")
    return pairs


def capability_args(text: str) -> dict[str, Any]:
    """Read capability arguments: a JSON or YAML object, or ``@FILE`` that contains it."""
    source = text[1:] if text.startswith("@") else "capability arguments"
    document = _parse(read_bytes(source) if text.startswith("@") else text, source)
    if not isinstance(document, dict):
        problem = f"they must be an object, such as {{mac: ...}}, not {type(document).__name__}"
        raise ConfigError(problem, file=source)
    return document


def network_of(text: str) -> str | NetworkConfigList:
    """Return a network's name unchanged, or read the configuration if ``text`` is a path or ``-`` (stdin)."""
    is_path = text == "-" or "/" in text or (text.endswith(CONFIGURATION_ENDINGS) and os.path.isfile(text))
    if not is_path:
        return text
    if text != "-" and not os.path.exists(text):
        stem = os.path.splitext(text)[0]
        near = [stem + ending for ending in CONFIGURATION_ENDINGS if os.path.isfile(stem + ending)]
        raise ConfigError("there is no such file", file=text, hint=f"did you mean {near[0]}?" if near else None)
    # Only from_file reads the drop-in plugins of the file.
    if text.endswith((".conflist", ".conf")):
        return libcni.NetworkConfigList.from_file(text)
    data, source = read_bytes(text), "stdin" if text == "-" else text
    if data.lstrip().startswith(b"{"):
        # Not decoded here: from_bytes keeps each number as it is written.
        return libcni.NetworkConfigList.from_bytes(data, file=source)
    document = _parse(data, source)
    if not isinstance(document, dict):
        raise ConfigError("a network's configuration must be an object", file=source)
    return libcni.NetworkConfigList.from_dict(document, file=source)


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file; ``-`` is stdin. Raises ConfigError if the file cannot be read."""
    try:
        with open(sys.stdin.fileno() if path == "-" else path, "rb", closefd=path != "-") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"it has more than {_MAX_BYTES:,} bytes", file="stdin" if path == "-" else path)
    return data


def _parse(data: bytes | str, source: str) -> Any:
    """Decode JSON or YAML. JSON is tried first: YAML reads 1e3 as text."""
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    from libcni.config.yamltext import read_yaml  # YAML takes 10 ms to import

    documents = read_yaml(data, source)
    if len(documents) > 1:
        raise ConfigError(f"it has {len(documents)} YAML documents; only a single document is allowed", file=source)
    return documents[0] if documents else None
