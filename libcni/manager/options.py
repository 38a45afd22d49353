"""The options of ``set_up``, and their checks, which run before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from libcni.verbs.reports import (
    AttachOptions,
    DelPolicy,
    OnCancel,
    OnExisting,
    RetryPolicy,
    check_option_names,
    check_type,
)

_WORDS = {"on_existing": get_args(OnExisting), "on_cancel": get_args(OnCancel)}
_FLAGS = ("rollback", "strict", "negotiate_version", "allow_own_netns")


class SetUpOptions(AttachOptions, total=False):
    """The options of ``add_network_list`` that a set-up applies to each network.

    Attributes:
        rollback: run DEL of a network's whole chain if its ADD fails.
        on_existing: what to do if the container already has the interface: ``refuse``, ``replace`` or ``allow``.
        strict: refuse capability arguments that no plugin declares, and results in another version than the network's.
        negotiate_version: use the highest version that all plugins of a network support.
        retry: how often to call a plugin again that answers "try again later"; None: never.
        on_cancel: what a cancelled or interrupted set-up does with its attachments: ``keep`` or ``rollback``.
        allow_own_netns: whether the namespace may be the program's own.
    """


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options now, because ``add_network_list`` would refuse them in the middle of a set-up.

    Raises TypeError for an unknown option or a wrong type, and ValueError for an unknown word.
    """
    check_option_names(options, {*SetUpOptions.__annotations__, "timeout"}, "set_up")
    for name in _FLAGS:
        if not isinstance(options.get(name, True), bool):
            raise TypeError(f"{name} must be True or False, not {options[name]!r}")
    for name, words in _WORDS.items():
        if options.get(name, words[0]) not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, not {options[name]!r}")
    if not isinstance(options.get("retry"), RetryPolicy | None):
        raise TypeError(f"retry must be a RetryPolicy or None, not {options['retry']!r}")


def merge_policies(base: DelPolicy, given: DelPolicy | None) -> DelPolicy:
    """Return ``base`` with the options that ``given`` turns on."""
    if given is None:
        return base
    check_type("policy", given, DelPolicy)
    # Every option is off, or None, if it is false.
    return DelPolicy(**{one.name: getattr(given, one.name) or getattr(base, one.name) for one in fields(DelPolicy)})
