"""A recording IPAM plugin: it writes down each verb, and then runs the real one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from libcni.errors import CNIError
from libcni.executor.find import find_plugin

if TYPE_CHECKING:
    from libcni.testing.examination import Examination


class IPAMRecorder:
    """The verbs that reached the IPAM plugin of a plugin that delegates."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def forget(self) -> None:
        """Forget the verbs so far."""
        self._log.write_text("", encoding="utf-8")

    def verbs(self) -> list[str]:
        """Return the verbs since ``forget``, oldest first."""
        return self._log.read_text(encoding="utf-8").split()


@contextmanager
def recording_ipam(examination: Examination) -> Iterator[IPAMRecorder | None]:
    """Put a recorder in front of the IPAM plugin that the configuration names; None if it names none that is there."""
    ipam = examination.config_base.get("ipam")
    name = ipam.get("type") if isinstance(ipam, dict) else None
    path = examination.options["path"]
    try:
        real = find_plugin(name, path.split(os.pathsep)) if name and not examination.ipam else ""
    except CNIError:
        real = ""
    if not real:
        yield None
        return
    with TemporaryDirectory(prefix="libcni-ipam-") as directory:
        log, wrapper = Path(directory, "verbs.log"), Path(directory, str(name))
        # The shell opens the log for appending, so lines of plugins that run at once do not mix.
        # exec: the real plugin is this process, so its signals and exit status are unchanged.
        command = f'echo "$CNI_COMMAND" >> {shlex.quote(str(log))}\nexec {shlex.quote(real)} "$@"\n'
        wrapper.write_text(f"#!/bin/sh\n{command}", encoding="utf-8")
        wrapper.chmod(0o755)
        log.touch()
        examination.options["path"] = f"{directory}{os.pathsep}{path}"
        yield IPAMRecorder(log)
