"""The vector files: read, and their tokens filled in. testdata/README.md says what may stand in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TESTDATA = Path(__file__).parents[2] / "testdata"

MAIN_VERB = {
    "add": "ADD",
    "add_one": "ADD",
    "check": "CHECK",
    "check_one": "CHECK",
    "del": "DEL",
    "del_one": "DEL",
    "gc": "GC",
    "status": "STATUS",
    "version": "VERSION",
    "validate": "VERSION",
}
"""Steps that run plugins, and the CNI_COMMAND that a plain answer or call in them is meant for."""

_KEYS = {
    "answers", "bin", "bin_links", "busy", "cache", "cache_records", "conf_dir", "document", "document_base64",
    "document_text", "environ", "file", "files", "links", "missing", "modes", "name", "netns_files", "network", "note",
    "options", "path", "raw_bin", "records", "rt", "rule", "spec", "steps",
}  # fmt: skip
_LONG = {"$X300000": "x" * 300_000, "$DEEP": '{"a":' * 100_000}
_SOURCES = ("document", "document_text", "document_base64", "network", "file")
_DEFAULT_RT = {"container_id": "c1", "netns": "/run/netns/blue", "ifname": "eth0"}


@dataclass(frozen=True)
class Step:
    """One thing to do, what is answered to it, and what is expected of it."""

    index: int
    kind: str
    body: Mapping[str, Any]
    vector: Vector
    data: Any = None

    @property
    def rt(self) -> dict[str, Any]:
        """The runtime configuration: the defaults, the vector's, the step's."""
        return {**_DEFAULT_RT, **self.vector.data.get("rt", {}), **self.body.get("rt", {})}

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of the verb."""
        return {**self.vector.data.get("options", {}), **self.body.get("options", {})}

    @property
    def source(self) -> dict[str, Any]:
        """Where the configuration comes from: one of document, document_text, document_base64, network, file."""
        for data in (self.body, self.vector.data):
            found = {key: data[key] for key in _SOURCES if key in data}
            if found:
                return found
        return {}

    def answer(self, plugin: str, verb: str, count: int) -> dict[str, Any]:
        """Return what a plugin answers to its call number ``count`` (from 0) of ``verb`` in this step."""
        default = {"stdout": {"cniVersion": "1.0.0"}} if verb == "ADD" else {}
        for data in (self.body, self.vector.data):
            found = self._answer_in(data.get("answers", {}).get(plugin), verb, count)
            if found is not None:
                return found
        return default

    def _answer_in(self, given: Any, verb: str, count: int) -> dict[str, Any] | None:
        if isinstance(given, list):
            given = given[min(count, len(given) - 1)]
        if given is None:
            return None
        if given.keys() & {"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"}:
            found: dict[str, Any] | None = given.get(verb)
            return found
        return given if verb == MAIN_VERB.get(self.kind) else None

    @property
    def plugins_answering(self) -> dict[str, int]:
        """The plugins with answers of their own, and how many each has."""
        merged = {**self.vector.data.get("answers", {}), **self.body.get("answers", {})}
        return {plugin: len(given) if isinstance(given, list) else 1 for plugin, given in merged.items()}


class Vector:
    """One vector: ``data`` is what stands in the file, with its tokens filled in for ``root``."""

    def __init__(self, file: str, data: dict[str, Any]) -> None:
        self.file = file
        self.data = data
        unknown = data.keys() - _KEYS
        if unknown:
            raise ValueError(f"{file}: {data.get('name')}: unknown keys {sorted(unknown)}")
        self.name: str = data["name"]

    def __repr__(self) -> str:
        return self.name

    @property
    def steps(self) -> list[Step]:
        """The steps in order."""
        found: list[Step] = []
        for index, step in enumerate(self.data["steps"]):
            for kind, body in step.items():
                fields = body if isinstance(body, dict) else {}
                found.append(Step(100 * index + len(found), kind, fields, self, body))
        return found

    def at(self, root: Path) -> Vector:
        """Return the vector with its paths filled in."""
        tokens = {"$ROOT": root, "$BIN": root / "bin", "$CONF": root / "conf", "$CACHE": root / "cache"}
        return Vector(self.file, _filled(self.data, {key: str(path) for key, path in tokens.items()}))


def _filled(value: Any, tokens: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {_filled(key, tokens): _filled(part, tokens) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, tokens) for part in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    if value in _LONG:
        return _LONG[value]
    for token, text in {**tokens, "$D5000": "9" * 5000}.items():
        value = value.replace(token, text)
    return value


def load_vectors() -> list[Vector]:
    """Return all vectors of testdata/spec and testdata/conformance; names are unique."""
    vectors: list[Vector] = []
    for path in sorted([*(TESTDATA / "spec").glob("*.yaml"), *(TESTDATA / "conformance").glob("*.yaml")]):
        text = path.read_text(encoding="utf-8")
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        vectors += [Vector(path.name, data) for data in document["vectors"]]
    names = [vector.name for vector in vectors]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"names that stand twice: {sorted(twice)}")
    return vectors
