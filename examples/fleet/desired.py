"""The desired-state file: the containers of a node, and their networks. See desired.yaml."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from libcni import ConfigError
from libcni.manager import Container, NetworkRequest


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Network(_Part):
    name: str
    ifname: str | None = None
    args: dict[str, str] = {}
    capabilities: dict[str, Any] = {}


class _Container(_Part):
    id: str
    netns: str
    networks: list[str | _Network] | None = None
    args: dict[str, str] = {}
    capabilities: dict[str, Any] = {}


class _Desired(_Part):
    containers: list[_Container]


def read_desired(path: str) -> tuple[Container, ...]:
    """Return the containers that a node should have.

    Raises:
        ConfigError: the file cannot be used; it names the file.
    """
    try:
        with open(path, "rb") as file:
            found = _Desired.model_validate(yaml.safe_load(file))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"it cannot be used: {error}", file=path) from error
    ids = [one.id for one in found.containers]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise ConfigError(f"these containers are in it more than once: {', '.join(twice)}", file=path)
    return tuple(_container(one) for one in found.containers)


def _container(one: _Container) -> Container:
    networks = None if one.networks is None else tuple(_request(network) for network in one.networks)
    return Container(one.id, one.netns, networks, args=one.args, capability_args=one.capabilities)


def _request(network: str | _Network) -> str | NetworkRequest:
    if isinstance(network, str):
        return network
    return NetworkRequest(network.name, network.ifname, network.args, network.capabilities or None)
