"""A vector's directory: configuration files, plugins that replay answers, records; and what the plugins wrote down."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes import make_fake_namespace

from conformance.exact import read
from conformance.vectors import MAIN_VERB, Step, Vector
from libcni.testing.fakes import read_environ

_REPLAY = (Path(__file__).parent / "replay.sh").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Call:
    """One call of a plugin, as the plugin saw it."""

    plugin: str
    verb: str
    path: str
    env: dict[str, str]
    stdin: bytes


def document_bytes(source: dict[str, Any]) -> bytes:
    """Return the document that a vector gives as data, text or base64."""
    if "document_base64" in source:
        return base64.b64decode(source["document_base64"])
    if "document_text" in source:
        return str(source["document_text"]).encode()
    return json.dumps(source["document"]).encode()


class Stage:
    """A directory made for one vector. ``vector`` is the vector with its paths filled in."""

    def __init__(self, vector: Vector, root: Path) -> None:
        self.root = root
        self.vector = vector.at(root)
        data = self.vector.data
        self.conf_dir = data.get("conf_dir", f"{root}/conf")
        self.path: list[str] = data.get("path", [f"{root}/bin"])
        self.cache_dir = f"{root}/cache"
        for name in ("conf", "log", "answers"):
            (root / name).mkdir(parents=True)
        self._write_files(data)
        self._write_plugins(data)
        self._write_records(data)
        for step in self.vector.steps:
            self._write_answers(step)

    def begin(self, step: Step) -> None:
        """Say which step the plugins are in from now on."""
        (self.root / "step").write_text(f"{step.index}\n", encoding="ascii")

    @property
    def busy_plugins(self) -> dict[str, float]:
        """The executables that are being written when a step begins, and for how many seconds more."""
        return {f"{self.root}/{name}": seconds for name, seconds in self.vector.data.get("busy", {}).items()}

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Hold the busy executables open for writing, each for its time."""
        timers = []
        for path, seconds in self.busy_plugins.items():
            timers.append(threading.Timer(seconds, os.close, [os.open(path, os.O_WRONLY)]))
            timers[-1].start()
        yield
        for timer in timers:
            timer.join()

    def removed_by(self, step: Step) -> list[str]:
        """Return the paths that a ``remove`` step takes away."""
        return [f"{self.root}/{name}" for name in step.data]

    def written_by(self, step: Step) -> dict[str, str]:
        """Return path and text of each file that a ``write`` step writes."""
        texts = {f"{self.root}/{name}": content for name, content in step.data.items()}
        return {path: text if isinstance(text, str) else json.dumps(text) for path, text in texts.items()}

    def calls(self, step: Step) -> list[Call]:
        """Return the calls of a step, in order, as the plugins wrote them down."""
        found: list[Call] = []
        for number in itertools.count():
            log = self.root / "log" / f"{step.index}.{number}"
            if not (path := log.with_name(f"{log.name}.path")).exists():
                return found
            env = read_environ(log.with_name(f"{log.name}.env"))
            stdin = log.with_name(f"{log.name}.stdin")
            executable = path.read_text(encoding="utf-8").strip()
            found.append(
                Call(
                    os.path.basename(executable),
                    env.get("CNI_COMMAND", ""),
                    executable,
                    env,
                    stdin.read_bytes() if stdin.exists() else b"",
                )
            )
        raise AssertionError("count() does not end")

    def records(self) -> list[tuple[str, bytes]]:
        """Return name and bytes of each file among the records."""
        results = Path(self.cache_dir) / "results"
        return [(path.name, path.read_bytes()) for path in sorted(results.glob("*"))] if results.exists() else []

    def _write_files(self, data: dict[str, Any]) -> None:
        for name, content in data.get("files", {}).items():
            _write(self.root / "conf" / name, content if isinstance(content, str) else json.dumps(content))
        for name, target in data.get("links", {}).items():
            (self.root / "conf" / name).symlink_to(target)
        for name in data.get("netns_files", []):
            make_fake_namespace(Path(name))

    def _write_plugins(self, data: dict[str, Any]) -> None:
        script = _REPLAY.replace("@ROOT@", shlex.quote(str(self.root)))
        default = [f"bin/{plugin}" for plugin in _types(self.vector) if plugin not in data.get("missing", [])]
        raw = data.get("raw_bin", {})
        for name in data.get("bin", [] if raw else default):
            _write(self.root / name, script, data.get("modes", {}).get(name, 0o755))
        for name, text in raw.items():
            _write(self.root / name, text, 0o755)
        for name, target in data.get("bin_links", {}).items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).symlink_to(target)

    def _write_records(self, data: dict[str, Any]) -> None:
        results = Path(self.cache_dir) / "results"
        for name, text in data.get("cache", {}).items():
            _write(results / name, text, 0o600)
        for record in data.get("records", []):
            name = f"{record['networkName']}-{record['containerId']}-{record['ifName']}"
            _write(results / name, go_record(record), 0o600)
        for name, record in data.get("cache_records", {}).items():
            _write(results / name, go_record(record), 0o600)

    def _write_answers(self, step: Step) -> None:
        if step.kind not in MAIN_VERB:
            return
        for plugin, count in step.plugins_answering.items():
            for verb in {"ADD", "DEL", "VERSION", MAIN_VERB[step.kind]}:
                for number in range(count):
                    self._write_answer(f"{step.index}.{plugin}.{verb}.{number}", step.answer(plugin, verb, number))

    def _write_answer(self, name: str, answer: dict[str, Any]) -> None:
        stdout, stderr = printed(answer), str(answer.get("stderr", "")).encode()
        said = {
            "status": answer.get("status", 0),
            "signal": answer.get("signal", ""),
            "sleep": answer.get("sleep", ""),
            "grandchild": answer.get("grandchild", ""),
            "read_stdin": int(answer.get("read_stdin", True)),
            "stdout": "yes" if stdout else "",
            "stderr": "yes" if stderr else "",
        }
        directory = self.root / "answers"
        (directory / name).write_text("".join(f"{key}='{value}'\n" for key, value in said.items()), encoding="ascii")
        for stream, text in (("stdout", stdout), ("stderr", stderr)):
            if text:
                (directory / f"{name}.{stream}").write_bytes(text)


def printed(answer: dict[str, Any]) -> bytes:
    """Return what an answer prints on stdout."""
    if "stdout_base64" in answer:
        return base64.b64decode(answer["stdout_base64"])
    if "stdout_text" in answer:
        return str(answer["stdout_text"]).encode(errors="surrogatepass")
    return json.dumps(answer["stdout"]).encode() if "stdout" in answer else b""


def go_record(record: dict[str, Any]) -> str:
    """Return the file that Go libcni would have written; ``config`` is given as a document."""
    config = record.get("config")
    encoded = None if config is None else base64.b64encode(json.dumps(config).encode()).decode()
    return json.dumps({"kind": "cniCacheV1", **record, "config": encoded}, separators=(",", ":"))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(mode)


def _types(vector: Vector) -> set[str]:
    """Return the plugin types that a vector's documents name, and that a file can be called."""
    data = vector.data
    documents: list[Any] = [data.get("document"), *data.get("files", {}).values()]
    documents += [record.get("config") for record in data.get("records", [])]
    texts = [data.get("document_text")]
    named: list[Any] = []
    for step in vector.steps:
        documents.append(step.body.get("document"))
        named.append(step.body.get("plugin"))
    for text in texts:
        try:
            documents.append(read(text or "null"))
        except (ValueError, RecursionError):
            continue
    named += [plugin.get("type") for document in documents for plugin in _plugins(document)]
    return {name for name in named if isinstance(name, str) and name not in {"", ".", ".."} and "/" not in name}


def _plugins(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        yield document
        plugins = document.get("plugins")
        yield from (plugin for plugin in plugins if isinstance(plugin, dict)) if isinstance(plugins, list) else ()
