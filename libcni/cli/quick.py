"""Read the words of a command without typer, which takes longer to import than most commands take to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from libcni.cli.options import Argument, Parameter, parameters_of


def read_words(function: Callable[..., object], words: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of a command's parameters.

    Return None if typer has to answer: for help, for an error, and for the rarer forms ``--option=value`` and ``-qc``.
    """
    parameters = parameters_of(function)
    flags = {flag: (one, value) for one in parameters for flag, value in _flags(one)}
    texts: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    rest = [one for one in parameters if isinstance(one.declared, Argument)]
    waiting = iter(words)
    for word in waiting:
        if word == "-" or not word.startswith("-"):
            if not rest:
                return None
            texts.setdefault(rest[0].name, []).append(word)
            if not _is_list(rest[0]):
                del rest[0]
            continue
        # Anything unusual goes to typer: a wrong guess would run the command with other values than typer reads.
        if word not in flags:
            return None
        one, value = flags[word]
        if value is not None:
            given[one.name] = value
            continue
        text = next(waiting, "--")
        # An option without its value: the next word is another option, or there is none.
        if text.startswith("-") and text != "-":
            return None
        texts.setdefault(one.name, []).append(text)
    try:
        return {one.name: given.get(one.name, _value(one, texts.get(one.name))) for one in parameters}
    except ValueError:
        return None


def _flags(one: Parameter) -> list[tuple[str, bool | None]]:
    """Return the flags of an option, each with the value that it stands for; None: the value is the next word."""
    if isinstance(one.declared, Argument):
        return []
    is_switch = one.kind is bool
    if one.declared.flags:
        return [(flag, True if is_switch else None) for flag in one.declared.flags]
    name = one.name.replace("_", "-")
    return [(f"--{name}", True), (f"--no-{name}", False)] if is_switch else [(f"--{name}", None)]


def _is_list(one: Parameter) -> bool:
    return get_origin(_kind(one)) is list


def _kind(one: Parameter) -> Any:
    """Return the type of a parameter without None."""
    kinds = [kind for kind in get_args(one.kind) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(one.kind) else one.kind


def _value(one: Parameter, texts: list[str] | None) -> Any:
    """Return the value of a parameter; raises ValueError if typer would refuse it."""
    variable = one.declared.keywords.get("envvar", "")
    if texts is None and variable and os.environ.get(variable):
        texts = [os.environ[variable]]
    if texts is None:
        if one.default is ...:
            raise ValueError("it must be given")
        return one.default
    kind = _kind(one)
    if _is_list(one):
        return texts
    if get_origin(kind) is Literal:
        if texts[-1] not in get_args(kind):
            raise ValueError("not one of the choices")
        return texts[-1]
    value = kind(texts[-1])
    # A NaN is neither above nor below the minimum. Python reads the digits of all scripts, typer does not.
    if kind is not str and not (texts[-1].isascii() and value >= one.declared.keywords.get("min", value)):
        raise ValueError("below the minimum, or not a number")
    return value
