"""JSON compared by what it says and by how its numbers are written: 1.0 is not 1, 9007199254740993 is itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Number:
    """A number as the text that it was."""

    text: str

    def __repr__(self) -> str:
        return self.text


def read(text: str | bytes) -> Any:
    """Decode JSON with numbers as text; raises ValueError."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def exact(document: Any) -> Any:
    """Return decoded JSON as ``read`` would have given it."""
    return read(json.dumps(document))


def has(whole: Any, part: Any) -> bool:
    """Return whether ``part`` is in ``whole``: each key of an object, each element of a list in its place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and has(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(has, whole, part))
    return bool(whole == part)


def show(document: Any) -> str:
    """Return a short text of a document that has numbers as text."""
    if isinstance(document, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{show(value)}" for key, value in document.items()) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(show, document)) + "]"
    return document.text if isinstance(document, Number) else json.dumps(document, ensure_ascii=False)


def plain(document: Any) -> Any:
    """Return a document whose numbers are text as an ordinary one."""
    if isinstance(document, dict):
        return {key: plain(value) for key, value in document.items()}
    if isinstance(document, list):
        return [plain(value) for value in document]
    return json.loads(document.text) if isinstance(document, Number) else document
