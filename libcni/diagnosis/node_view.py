"""The data that several checks of the doctor share: configurations, records, and the commands to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from libcni.client import CNIConfig
from libcni.config import jsontext
from libcni.config.cni_args import format_args
from libcni.config.directory import ConfigDirectory, read_config_directory
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, ConfigError, RecordError
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, recorded_network
from libcni.store.record import READY


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node at one moment.

    Attributes:
        cni: the client whose directories are checked.
        directory: the configurations, or None if they cannot be read.
        attachments: all records, also those of other owners.
        record_error: why the records cannot be listed, or None.
        run_check: whether CHECK may be run for each attachment.
    """

    cni: CNIConfig
    directory: ConfigDirectory | None
    attachments: tuple[Attachment, ...]
    record_error: RecordError | None = None
    run_check: bool = False
    _recorded: dict[str, NetworkConfigList | None] = field(default_factory=dict)

    @classmethod
    def of(cls, cni: CNIConfig, *, run_check: bool = False) -> NodeView:
        """Read a node's configurations and records."""
        directory = None
        with suppress(ConfigError):  # The check of the configurations reports it.
            directory = read_config_directory(cni.conf_dir)
        try:
            attachments = tuple(cni.get_cached_attachments())
        except RecordError as error:
            return cls(cni, directory, (), error, run_check)
        return cls(cni, directory, attachments, None, run_check)

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The usable configurations, in load order."""
        return self.directory.networks if self.directory else ()

    def configured(self, network: str) -> NetworkConfigList | None:
        """Return the configuration that a network has today, or None."""
        return next((net for net in self.networks if net.name == network), None)

    def recorded(self, attachment: Attachment) -> NetworkConfigList | None:
        """Return the configuration that an attachment's ADD used, or None if it cannot be read."""
        if attachment.path not in self._recorded:
            self._recorded[attachment.path] = recorded_network(attachment.record)
        return self._recorded[attachment.path]

    def live(self) -> Iterator[Attachment]:
        """Yield the ready attachments whose namespace path exists."""
        for attachment in self.attachments:
            if attachment.state == READY and attachment.netns.startswith("/") and os.path.exists(attachment.netns):
                yield attachment

    def attach_again(self, attachment: Attachment) -> tuple[str, ...]:
        """Return the command that detaches and attaches a container with today's configuration, or the way there."""
        if self.configured(attachment.network) is None:
            return (detach_command(attachment.container_id, attachment.ifname),)
        words = ["libcni", "add", attachment.network, attachment.netns, "-c", attachment.container_id]
        words += ["-i", attachment.ifname, "--on-existing", "replace"]
        if attachment.owner:
            words += ["--owner", attachment.owner]
        if attachment.args:
            words += ["--args", format_args(attachment.args)]
        if attachment.capability_args:
            words += ["--capabilities", jsontext.dumps(dict(attachment.capability_args))]
        return (shlex.join(words),)


def addresses_of(attachment: Attachment) -> list[str]:
    """Return an attachment's recorded IP addresses without prefix lengths; [] if it has no usable result."""
    result = result_of(attachment)
    return [ip.address.partition("/")[0] for ip in result.ips] if result is not None else []


def result_of(attachment: Attachment) -> Result | None:
    """Return an attachment's recorded result, or None if it has no usable one."""
    try:
        return attachment.result
    except CNIError:
        return None


def detach_command(container_id: str, ifname: str, network: str | None = None) -> str:
    """Return the command that detaches from the record, or with the file that ``network`` has today."""
    return shlex.join(["libcni", "del", *([network] if network else []), "-c", container_id, "-i", ifname])


def name_of(attachment: Attachment) -> str:
    """Return an attachment in words."""
    return f"container {attachment.container_id}, {attachment.network}, {attachment.ifname}"


def plugin_documents(net: NetworkConfigList | None) -> list[Mapping[str, Any]]:
    """Return the decoded plugin configurations of a network. Only the plugins know the types of most values."""
    return [jsontext.parse(plugin.text) for plugin in net.plugins] if net is not None else []
