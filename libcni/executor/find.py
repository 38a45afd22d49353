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
    hint = None
    for directory in path:
        candidate = os.path.join(directory, plugin)
        try:
            status = os.stat(candidate)
        except (OSError, ValueError):
            continue
        if not stat.S_ISREG(status.st_mode):
            rejected.append(f"{candidate} is not a regular file")
        elif not os.access(candidate, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            rejected.append(f"{candidate} is not executable")
            hint = f"make it executable: chmod +x {candidate}"
        else:
            return candidate
    raise PluginNotFoundError(plugin, tuple(path), tuple(rejected), hint=hint)
