"""A recording IPAM plugin: it records each verb and runs the real one, and lets an ADD fail when a check wants that."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from libcni.errors import CNIError
from libcni.executor.find import find_plugin
from libcni.testing.examination import Examination
from libcni.testing.fakes import FakePlugin, FakePlugins

_COMMAND = """
mode=$(cat {mode} 2>/dev/null)
[ "$mode" != "refuse $CNI_COMMAND" ] || {{ cat {text}; exit 1; }}
# exec: the real plugin is this process, so its signals and exit status are unchanged.
[ "$CNI_COMMAND" = ADD ] || exec {real} < "$stdin"
{real} < "$stdin" > {answer}.$number
status=$?
case $mode in
hang) exec sleep 600 ;;
spoil) cp {text} {answer}.$number ;;
esac
cat {answer}.$number
mv {answer}.$number {answer}
exit $status
"""


class Recorder(FakePlugin):
    """A plugin that records the calls of an IPAM plugin and passes them on.

    Attributes:
        directory: the directory of the recorder and of its files.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.directory: Path = path.parent / ".recorder"

    @contextmanager
    def playing(self, mode: str, document: object = None) -> Iterator[None]:
        """Change how the IPAM plugin answers during the block.

        Args:
            mode: ``refuse VERB``: print ``document`` as an error, without the real plugin's verb. ``hang``: never end
                after the real ADD. ``spoil``: print ``document`` instead of the real ADD's result.
            document: the JSON to print.
        """
        self.forget()
        (self.directory / "text").write_text(json.dumps(document), encoding="utf-8")
        (self.directory / "mode").write_text(mode, encoding="utf-8")
        try:
            yield
        finally:
            (self.directory / "mode").unlink()

    @property
    def answer(self) -> dict[str, Any]:
        """The result that the last ADD printed; empty if it printed none."""
        try:
            document = json.loads((self.directory / "answer").read_bytes())
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}


@contextmanager
def recording_ipam(examination: Examination) -> Iterator[Recorder | None]:
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
        recorder = Recorder(Path(directory, str(name)))
        recorder.directory.mkdir()
        files = {key: shlex.quote(str(recorder.directory / key)) for key in ("mode", "text", "answer")}
        FakePlugins(directory).shell(str(name), _COMMAND.format(real=shlex.quote(real), **files), result=None)
        examination.path = f"{directory}{os.pathsep}{path}"
        yield recorder
