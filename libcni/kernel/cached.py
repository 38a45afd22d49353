"""A cached property without a lock.

Python 3.11's ``functools.cached_property`` has one lock for all objects of a class. A process that is forked while
another thread computes a value would wait for that lock for ever.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: a plugin may import this module at every call
if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import cached_property as cached_property  # noqa: PLC0414 - an explicit re-export
    from typing import Any
else:

    class cached_property:  # noqa: N801 - it has the name of the original
        """A property that is computed once, like ``functools.cached_property`` of Python 3.12."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, _owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, _owner: type | None = None) -> Any:
            if instance is None:
                return self
            # From now on the instance's own attribute is found, and this method is not called.
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
