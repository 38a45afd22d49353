"""The desired-state file: the containers of a node, and their networks. See desired.yaml."""

from __future__ import annotations

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from libcni import ConfigError
from libcni.manager import Container, NetworkRequest


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Network(_Part):
    name: str
    ifname: str | None = None
    args: dict[str, str] = {}
    capabilities: dict[str, JsonValue] = {}
    network_args: dict[str, JsonValue] = {}


class _Container(_Part):
    id: str
    netns: str
    networks: list[str | _Network] | None = None
    args: dict[str, str] = {}
    capabilities: dict[str, JsonValue] = {}
    network_args: dict[str, JsonValue] = {}


class _Desired(_Part):
    # Required, and no null: an empty file never means "no container". Only "containers: []" does.
    containers: list[_Container]


def read_desired(path: str) -> tuple[Container, ...]:
    """Return the containers that a node should have.

    Raises:
        ConfigError: the file is missing, empty or wrong; the error names the file.
    """
    try:
        with open(path, "rb") as file:
            document = yaml.safe_load(file)
        if document is None:
            raise ConfigError('the desired state is empty; write "containers: []" if no container is meant', file=path)
        found = _Desired.model_validate(document)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc'])) or 'document'}: {one['msg']}" for one in error.errors()]
        raise ConfigError(f"the desired state cannot be read: {'; '.join(problems)}", file=path) from error
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the desired state cannot be read: {error}", file=path) from error
    ids = [one.id for one in found.containers]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise ConfigError(f"these containers are in it more than once: {', '.join(twice)}", file=path)
    return tuple(_container(one) for one in found.containers)


def _container(one: _Container) -> Container:
    networks = None if one.networks is None else tuple(_request(network) for network in one.networks)
    args = one.network_args or None
    return Container(one.id, one.netns, networks, args=one.args, capability_args=one.capabilities, network_args=args)


def _request(network: str | _Network) -> str | NetworkRequest:
    if isinstance(network, str):
        return network
    capabilities = network.capabilities or None
    return NetworkRequest(network.name, network.ifname, network.args, capabilities, network.network_args or None)
