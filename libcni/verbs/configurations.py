"""Choose the configuration and the arguments that a verb uses for an attachment.

| record                     | in this order                | if they fail                         |
|----------------------------|------------------------------|--------------------------------------|
| none                       | given                        |                                      |
| of a completed ADD         | recorded, given, file        |                                      |
| of an ADD not completed    | recorded, given, file        | given or file, with given arguments  |
| of Go libcni               | given, file, recorded        | the same, if the ADD is not complete |
| any, with ``use_given``    | given, recorded, file        |                                      |
| all, for the plugins' GC   | given, file, recorded by any |                                      |

``recorded``: the configuration of the ADD. ``given``: the caller's. ``file``: the network's present file in
``conf_dir``. Go records no drop-in plugins, so its recorded configurations may be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from libcni._dataclass import dataclass
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import Hint, NetworkNotFoundError, RecordError
from libcni.store.attachments import recorded_conf, recorded_network
from libcni.store.model import Record

Source = Literal["recorded", "given", "file"]
Load = Callable[[str], NetworkConfigList | None]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration to try, with its arguments.

    Attributes:
        net: the configuration.
        rt: the parameters of the attachment.
        is_correction: whether this is for a second try: plugins refused the configuration of an ADD that has not
            completed, and an operator may have corrected the mistake.
    """

    net: NetworkConfigList
    rt: RuntimeConf
    is_correction: bool = False


def configurations(
    record: Record | None, given: NetworkConfigList | None, rt: RuntimeConf, load: Load, *, use_given: bool
) -> Iterator[Configuration]:
    """Yield the configurations that a DEL tries, in order.

    Args:
        record: the attachment's record, or None.
        given: the caller's configuration, or None.
        rt: the caller's parameters. Recorded values replace those that are None.
        load: returns the present configuration of a network's file, or None; not called if nothing needs it.
        use_given: whether the caller's values replace the recorded ones.

    Raises:
        RecordError: there is no usable configuration.
    """
    if record is None:
        assert given is not None
        yield Configuration(given, rt)
        return
    first = network_to_use(record, given, load, use_given=use_given)
    yield Configuration(first, recorded_conf(record, rt, use_given=use_given))
    if not record.is_complete and not use_given:
        yield Configuration(_usable(given or load(record.network)) or first, rt, is_correction=True)


def network_to_use(
    record: Record,
    given: NetworkConfigList | None = None,
    load: Load = lambda _: None,
    *,
    use_given: bool = False,
) -> NetworkConfigList:
    """Return the first usable configuration for a recorded attachment; the arguments are those of ``configurations``.

    Raises:
        RecordError: there is no usable configuration.
    """
    if given is not None and _is_recorded(record, given):
        return given  # the usual case: do not parse the recorded texts
    sources: dict[Source, Callable[[], NetworkConfigList | None]] = {
        "recorded": lambda: recorded_network(record),
        "given": lambda: _usable(given),
        "file": lambda: _usable(load(record.network)),
    }
    for source in _order(record, use_given=use_given):
        if (net := sources[source]()) is not None:
            return net
    text = "give the network's configuration and {argument}, or remove the record"
    raise RecordError(
        f"{record.path}: the record holds no usable configuration",
        path=record.path,
        missing="configuration",
        hint=Hint.about(record, text, "forget", argument="use_given"),
    )


def network_for_gc(
    network: str, present: NetworkConfigList | None, recorded: NetworkConfigList | None
) -> NetworkConfigList:
    """Return the configuration for the GC of a network's plugins.

    Args:
        network: its name.
        present: the caller's configuration, or that of the network's file.
        recorded: a usable configuration of one of its attachments.

    Raises:
        NetworkNotFoundError: there is none.
    """
    if net := present or recorded:
        return net
    problem = f'network "{network}" has no configuration, and no record holds a usable configuration'
    raise NetworkNotFoundError(problem, network=network, hint=Hint("see the configured networks", "networks"))


def _order(record: Record, *, use_given: bool) -> tuple[Source, Source, Source]:
    if use_given:
        return "given", "recorded", "file"
    return ("given", "file", "recorded") if record.lacks_drop_ins else ("recorded", "given", "file")


def _usable(net: NetworkConfigList | None) -> NetworkConfigList | None:
    """Return a configuration if it has plugins: without plugins, DEL would detach nothing and remove the record."""
    return net if net is not None and net.plugins else None


def _is_recorded(record: Record, net: NetworkConfigList) -> bool:
    """Return whether a record's ADD used this very configuration."""
    return (
        (record.network, record.version, record.config) == (net.name, net.cni_version, net.raw)
        and bool(net.plugins)
        and record.plugins == tuple([plugin.text for plugin in net.plugins])
    )
