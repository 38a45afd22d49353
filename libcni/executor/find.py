"""Find a plugin's executable. Plugins that delegate import this too, so it must import nothing slow."""

from __future__ import annotations

import os
import stat

from libcni.config.distribution_directories import other_plugin_dirs
from libcni.config.identifiers import check_plugin_type
from libcni.errors import Hint, PluginNotFoundError

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
            if os.path.islink(candidate):
                rejected.append(f"{candidate} is a link to {os.readlink(candidate)}, which leads nowhere")
            continue
        if not stat.S_ISREG(status.st_mode):
            rejected.append(f"{candidate} is not a regular file")
        elif not os.access(candidate, os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            problem, hint = _why_not_executable(candidate, status.st_mode)
            rejected.append(f"{candidate} {problem}")
        else:
            return candidate
    if hint is None and path and (others := other_plugin_dirs(tuple(path), plugin)):
        hint = Hint(f"{plugin} is in {others}: add this directory to {{argument}}", argument="path", value=None)
    elif hint is None and (similar := _closest(plugin, path)):
        text = f"did you mean {similar}? If not, install {plugin}, or pass its directory with {{argument}}"
        hint = Hint(text, argument="path", value=None)
    raise PluginNotFoundError(plugin, tuple(path), tuple(rejected), hint=hint)


def _why_not_executable(path: str, mode: int) -> tuple[str, Hint]:
    if not mode & 0o111:
        from shlex import join  # plugins start without it

        return "is not executable", Hint(f"make the file executable: {join(('chmod', '+x', path))}")
    # The kernel refuses it to root only for this reason.
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        return "is on a file system that is mounted noexec", Hint(f"mount it with exec: see findmnt -T {path}")
    return "may not be executed by this user", Hint("run this program as root, or correct the file's owner and mode")


def _closest(plugin: str, path: Sequence[str]) -> str:
    """Return the file name in the directories that is most similar to a plugin's type, or ""."""
    from difflib import get_close_matches  # plugins start without it

    names: list[str] = []
    for directory in path:
        try:
            names += os.listdir(directory)
        except (OSError, ValueError):
            continue
    return next(iter(get_close_matches(plugin, names, 1, 0.8)), "")
