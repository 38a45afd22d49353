"""Observers of verbs and plugin calls: the base class, and one for logging. The names are resolved on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.observe.logs import LoggingObserver
    from libcni.observe.observer import Observer, Operation

_MODULES = {"logs": "LoggingObserver", "observer": "Observer Operation"}

__all__ = ["LoggingObserver", "Observer", "Operation"]

if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
