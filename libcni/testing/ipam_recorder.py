"""A recording IPAM plugin: it records each verb, and then runs the real one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from libcni.errors import CNIError
from libcni.executor.find import find_plugin
from libcni.testing.examination import Examination
from libcni.testing.fakes import FakePlugin, FakePlugins


@contextmanager
def recording_ipam(examination: Examination) -> Iterator[FakePlugin | None]:
    """Put a recorder in front of the configuration's IPAM plugin; yield None if there is no such plugin."""
    ipam = examination.config_base.get("ipam")
    name = ipam.get("type") if isinstance(ipam, dict) else None
    path = examination.path
    try:
        real = find_plugin(name, path.split(os.pathsep)) if name and not examination.ipam else ""
    except CNIError:
        real = ""
    if not real:
        yield None
        return
    with TemporaryDirectory(prefix="libcni-ipam-") as directory:
        # exec: the real plugin is this process, so its signals and exit status are unchanged.
        command = f'exec {shlex.quote(real)} "$@" < "$stdin"'
        recorder = FakePlugins(directory).shell(str(name), command, result=None)
        examination.path = f"{directory}{os.pathsep}{path}"
        yield recorder
