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


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options now, because ``add_network_list`` would refuse them in the middle of a set-up.

    Raises TypeError for an unknown option or a wrong type, and ValueError for an unknown word.
    """
    check_option_names(options, {*AttachOptions.__annotations__, "timeout"}, "set_up")
    for name in _FLAGS:
        if not isinstance(options.get(name, True), bool):
            raise TypeError(f"{name} must be True or False, not {options[name]!r}")
    for name, words in _WORDS.items():
        if options.get(name, words[0]) not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, not {options[name]!r}")
    if not isinstance(options.get("retry"), RetryPolicy | None):
        raise TypeError(f"retry must be a RetryPolicy or None, not {options['retry']!r}")


def check_no_text(name: str, given: object) -> None:
    """Refuse a string with TypeError: it is a sequence, for type checkers, too, and each character would be a name."""
    if isinstance(given, str):
        raise TypeError(f"{name} must be a sequence, not {given!r}")


def merge_policies(base: DelPolicy, given: DelPolicy | None) -> DelPolicy:
    """Return ``base`` with the options that ``given`` turns on."""
    if given is None:
        return base
    check_type("policy", given, DelPolicy)
    # Every option is off, or None, if it is false.
    return DelPolicy(**{one.name: getattr(given, one.name) or getattr(base, one.name) for one in fields(DelPolicy)})
