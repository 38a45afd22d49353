"""Read the values of arguments: networks, capability arguments, attachments, and files of these."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import libcni
from libcni import ConfigError

if TYPE_CHECKING:
    from libcni import NetworkConfigList, RuntimeConf

_ENDINGS = (".conflist", ".conf", ".json", ".yaml", ".yml")


def container_id_of(netns: str) -> str:
    """Return the container ID that cnitool derives from a namespace's path."""
    # cnitool's own formula: each of the two programs must find the other one's attachments.
    digest = hashlib.sha512(os.fsencode(os.path.abspath(netns))).hexdigest()
    return f"cnitool-{digest[:20]}"


class Target(NamedTuple):
    """The arguments of add, check, del and explain: an attachment, which need not be recorded."""

    network: str
    netns: str | None
    ifname: str
    container: str | None
    args: str
    capabilities: str

    def net(self) -> str | NetworkConfigList:
        """Return the network's name, or its configuration if a path was given."""
        return network_of(self.network)

    def conf(self) -> RuntimeConf:
        """Return the parameters of the attachment. Without a container its ID is derived from the namespace."""
        path = os.path.abspath(self.netns) if self.netns else self.netns  # "" means: without a namespace
        return libcni.RuntimeConf(
            self.container or container_id_of(self.netns or ""),
            path,
            self.ifname or "eth0",
            args=libcni.parse_args(self.args) if self.args else None,
            capability_args=capability_args(self.capabilities) if self.capabilities else None,
        )


def capability_args(text: str) -> dict[str, Any]:
    """Read capability arguments: a JSON or YAML object, or ``@FILE`` with one."""
    source = text[1:] if text.startswith("@") else "capability arguments"
    document = _parse(read_bytes(source) if text.startswith("@") else text, source)
    if not isinstance(document, dict):
        raise ConfigError("capability arguments must be an object, such as {mac: ...}", file=source)
    return document


def network_of(text: str) -> str | NetworkConfigList:
    """Return a network's name unchanged, or read the configuration if ``text`` is a path or ``-`` (stdin)."""
    is_path = text == "-" or "/" in text or (text.endswith(_ENDINGS) and os.path.isfile(text))
    if not is_path:
        return text
    # Only from_file reads the drop-in plugins of the file.
    if text.endswith((".conflist", ".conf")):
        return libcni.NetworkConfigList.from_file(text)
    return _network_from(read_bytes(text), "stdin" if text == "-" else text)


def _network_from(data: bytes, source: str) -> NetworkConfigList:
    if data.lstrip().startswith(b"{") and b'"kind"' not in data:
        # Not decoded here: from_bytes keeps each number as it is written.
        return libcni.NetworkConfigList.from_bytes(data, file=source)
    document = _parse(data, source)
    if not isinstance(document, dict):
        raise ConfigError("a network's configuration must be an object", file=source)
    if "kind" in document and "spec" in document:
        return _from_definition(document, source)
    return libcni.NetworkConfigList.from_dict(document, file=source)


def _from_definition(document: Mapping[str, Any], source: str) -> NetworkConfigList:
    from libcni.manager import NetworkAttachmentDefinition

    found = NetworkAttachmentDefinition.from_object(document, file=source)
    if found.net is None:
        hint = f"give the name of the network on this node: {found.name}"
        raise ConfigError("the definition has no spec.config", file=source, hint=hint)
    return found.net


def load_document(path: str) -> Any:
    """Decode a JSON or YAML file; ``-`` is stdin."""
    return _parse(read_bytes(path), "stdin" if path == "-" else path)


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file; ``-`` is stdin. Raises ConfigError if the file cannot be read."""
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from error


def _parse(data: bytes | str, source: str) -> Any:
    """Decode JSON or YAML. JSON is tried first: YAML reads 1e3 as text."""
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    from libcni.config.yamltext import read_yaml  # YAML takes 10 ms to import

    documents = read_yaml(data, source)
    if len(documents) > 1:
        raise ConfigError("it has several YAML documents, and one is expected", file=source)
    return documents[0] if documents else None
