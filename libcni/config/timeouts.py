"""Check the timeouts of callers and of command lines."""

from __future__ import annotations

from math import inf

# Seconds. poll(2) and threading.Lock raise OverflowError for times of several centuries.
_NO_LIMIT = 1e9


def check_timeout(value: float | None, name: str = "timeout") -> float | None:
    """Return a time limit in seconds as a float; None, infinity and more than 1e9 seconds mean no limit and give None.

    0 is refused everywhere: no plugin runs in 0 seconds, and in other libraries 0 means "do not wait" or "no limit".

    Args:
        value: the caller's limit.
        name: the argument's name, for errors.

    Raises:
        TypeError: ``value`` is neither a number nor None. A bool does not count as a number.
        ValueError: ``value`` is 0, negative or NaN.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {type(value).__name__}")
    if not value > 0:  # NaN too
        raise ValueError(f"{name} must be a number of seconds above 0, not {value}; None means no limit")
    return None if value > _NO_LIMIT else float(value)


def seconds(text: str, minimum: float = 0.0) -> float:
    """Read a finite number of seconds from a command line; raises argparse.ArgumentTypeError."""
    from argparse import ArgumentTypeError  # most programs that set timeouts read no command line

    try:
        value = float(text)
    except ValueError:
        value = -inf
    if not minimum <= value < inf:
        raise ArgumentTypeError(f"it must be a number of seconds, {minimum:g} or more, not {text!r}")
    return value
