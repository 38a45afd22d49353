"""The options of ``set_up``, and their checks, which run before anything is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from libcni.verbs.reports import (
    AttachOptions,
    DelPolicy,
    OnCancel,
    OnExisting,
    check_option_names,
    check_type,
    check_word,
)

_T = TypeVar("_T")

_FLAGS = ("rollback", "strict", "negotiate_version", "allow_own_netns")


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options now, because ``add_network_list`` would refuse them in the middle of a set-up.

    Raises TypeError for an unknown option or a wrong type, and ValueError for an unknown word.
    """
    check_option_names(options, {*AttachOptions.__annotations__, "timeout"}, "set_up")
    for name in _FLAGS:
        check_type(name, options.get(name, True), bool)
    check_word("on_existing", options.get("on_existing", "refuse"), OnExisting)
    check_word("on_cancel", options.get("on_cancel", "keep"), OnCancel)


def read_once(name: str, given: Iterable[_T]) -> tuple[_T, ...]:
    """Return the elements of an argument. Read every iterable with this once: a generator is empty the second time.

    Raises TypeError for a string: it is an iterable, for type checkers, too, and each character would be an element.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a sequence, not {given!r}")
    return tuple(given)


def merge_policies(base: DelPolicy, given: DelPolicy | None) -> DelPolicy:
    """Return ``base`` with the options that ``given`` turns on."""
    if given is None:
        return base
    check_type("policy", given, DelPolicy)
    # Every option is off by default.
    return DelPolicy(**{one.name: getattr(given, one.name) or getattr(base, one.name) for one in fields(DelPolicy)})
