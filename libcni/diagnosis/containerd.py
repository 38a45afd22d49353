"""Compare the directories that containerd's configuration names with those that were checked."""

from __future__ import annotations

import glob
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import plugin_names
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, problem_of
from libcni.errors import some
from libcni.kernel.regular_file import UnusableFileError, read_with_status

_DEFAULT = "/etc/containerd/config.toml"
_LONGEST = 1 << 20
_MOST_IMPORTS = 20
_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
"""The plugin with the directories of CNI, of the versions 3, 2 and 1 of the configuration's format."""


class _Directories(NamedTuple):
    """The directories in a configuration of containerd; "" and () if it does not name them."""

    conf_dir: str = ""
    bin_dirs: tuple[str, ...] = ()


def check_containerd(node: NodeState) -> Observations:
    """Find a containerd that uses other directories of plugins or networks than the checked ones."""
    if not any(attachment.made_by_go and attachment.pod for attachment in node.attachments):
        return
    for path in _configurations():
        try:
            named = _directories(path)
        except (OSError, UnusableFileError, ValueError) as error:
            reason = str(error) if not isinstance(error, OSError) else problem_of(error)
            yield NotChecked("plugins", f"containerd's directories in {path}", reason)
            continue
        if named.conf_dir and os.path.realpath(named.conf_dir) != os.path.realpath(node.cni.conf_dir):
            if not _files_in(named.conf_dir):
                yield NodeFinding(
                    "configuration", "error", "no-configuration", f"containerd's directory {named.conf_dir}",
                    f"there is no configuration of a network; {path} names this directory (conf_dir), and "
                    f"{node.cni.conf_dir} was checked", "no new pod starts: cni plugin not initialized",
                    f"correct conf_dir in {path} and restart containerd, or put the files there",
                )  # fmt: skip
            yield NotChecked(
                "configuration", named.conf_dir,
                f"containerd reads its networks there ({path}), but {node.cni.conf_dir} was checked (--conf-dir)",
            )  # fmt: skip
        elif named.bin_dirs:
            yield from _missing(node, path, named.bin_dirs)


def _files_in(directory: str) -> list[str]:
    """Return the names of the files that containerd reads as configurations of networks; [] without the directory."""
    with suppress(OSError):
        return [name for name in os.listdir(directory) if name.endswith((".conf", ".conflist", ".json"))]
    return []


def _missing(node: NodeState, path: str, directories: tuple[str, ...]) -> Observations:
    loopbacks = [net for attachment in node.attachments if node.is_loopback(attachment)
                 if (net := node.recorded(attachment)) is not None][:1]  # fmt: skip
    missing = [
        name for name in plugin_names(*node.networks, *loopbacks)
        if not any(os.path.isfile(os.path.join(directory, name)) for directory in directories)
        # If it is nowhere, the check of the plugins says so.
        and any(os.path.isfile(os.path.join(directory, name)) for directory in node.cni.path)
    ]  # fmt: skip
    yield Checked("plugins", f"the plugins in containerd's directory {some(list(directories))}")
    if missing:
        yield NodeFinding(
            "plugins", "error", "no-plugins", f"containerd's directory {some(list(directories))}",
            f"it does not have {some(missing)}; {path} names this directory (bin_dir), but {some(list(node.cni.path))} "
            "was checked",
            "no new pod starts: failed to find plugin",
            f"correct bin_dir in {path} and restart containerd, or install the plugins there",
        )  # fmt: skip


def _configurations() -> list[str]:
    """Return the configurations of the containerds that run in this mount namespace, or else the usual one."""
    found: dict[str, None] = {}
    own = os.stat("/proc/self/ns/mnt").st_ino
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it may end meanwhile, or belong to another user
            with open(f"/proc/{process}/comm", "rb") as file:
                name = file.read(32)
            if name == b"containerd\n" and os.stat(f"/proc/{process}/ns/mnt").st_ino == own:
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    found[_named(file.read(_LONGEST).decode(errors="surrogateescape").split("\0"))] = None
    return [path for path in found or {_DEFAULT: None} if os.path.exists(path)]


def _named(words: list[str]) -> str:
    """Return the configuration that the command line of containerd names."""
    for number, word in enumerate(words):
        option, is_joined, value = word.partition("=")
        if option in {"-c", "--config", "-config"}:
            return os.path.abspath(value if is_joined else (words[number + 1 :] or [""])[0])
    return _DEFAULT


def _directories(path: str, depth: int = 0) -> _Directories:
    """Return the directories in a configuration and its imports, of which later ones win.

    Raises:
        OSError: it cannot be read.
        UnusableFileError: it is not a regular file, is too large, or another user may change it.
        ValueError: it is not TOML.
    """
    status, data = read_with_status(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), _LONGEST)
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise UnusableFileError(f"{path}: another user than root may change it")
    document = tomllib.loads(data.decode())
    if not {str(name) for name in _listed(document.get("disabled_plugins"))}.isdisjoint(_PLUGINS):
        return _Directories()
    found = _of_document(document)
    for pattern in _listed(document.get("imports")) if depth == 0 else ():
        for name in sorted(glob.glob(os.path.join(os.path.dirname(path), str(pattern))))[:_MOST_IMPORTS]:
            imported = _directories(name, depth + 1)
            found = _Directories(imported.conf_dir or found.conf_dir, imported.bin_dirs or found.bin_dirs)
    return found


def _of_document(document: Mapping[str, Any]) -> _Directories:
    plugins = _mapping(document.get("plugins"))
    for name in _PLUGINS:
        if cni := _mapping(_mapping(plugins.get(name)).get("cni")):
            several = [str(one) for one in _listed(cni.get("bin_dirs"))]
            single = [str(cni["bin_dir"])] if cni.get("bin_dir") else []
            return _Directories(str(cni.get("conf_dir") or ""), tuple(several or single))
    return _Directories()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> Iterator[object]:
    yield from value if isinstance(value, list) else ()
