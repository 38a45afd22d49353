"""Find a plugin's executable. Plugins that delegate use this too, so the module is light to import."""

from __future__ import annotations

import os
import stat

from libcni.config.identifiers import check_plugin_type
from libcni.errors import PluginNotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["find_plugin"]


def find_plugin(plugin: str, path: Sequence[str]) -> str:
    """Return the path of the first executable regular file called ``plugin`` in the directories ``path``.

    A file of that name that cannot be executed is skipped; the error names it.

    Raises:
        InvalidIdentifierError: ``plugin`` is a path or empty.
        PluginNotFoundError: no directory has such a file.
    """
    check_plugin_type(plugin)
    rejected: list[str] = []
    for directory in path:
        candidate = os.path.join(directory, plugin)
        try:
            status = os.stat(candidate)
        except (OSError, ValueError):
            continue
        problem = _problem(candidate, status.st_mode)
        if problem is None:
            return candidate
        rejected.append(f"{candidate} is {problem}")
    hint = "make it executable: chmod +x" if rejected else "is the plugin installed there?"
    raise PluginNotFoundError(plugin, tuple(path), tuple(rejected), hint=hint if path else None)


def _problem(candidate: str, mode: int) -> str | None:
    if not stat.S_ISREG(mode):
        return "not a regular file"
    effective = os.access in os.supports_effective_ids
    return None if os.access(candidate, os.X_OK, effective_ids=effective) else "not executable"
