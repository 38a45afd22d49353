"""Read YAML: plain values only, and no aliases that expand to many values."""

from __future__ import annotations

from typing import Any

import yaml

from libcni.errors import ConfigError

_MAX_COPIED = 10_000
"""The number of values that the aliases of a stream may expand to together."""


class _Loader(yaml.SafeLoader):  # the full loader would let a document make any Python object
    """Refuses aliases that expand to many values: each level of nested aliases multiplies the document's size."""

    def __init__(self, stream: bytes | str) -> None:
        super().__init__(stream)
        self._nodes = 0  # nodes so far; an alias counts as many as it stands for
        self._copied = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, and count the nodes in it."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # the stubs have no type
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._nodes
        self._nodes += 1
        node = super().compose_node(parent, index)
        if node is not None and not is_alias:
            self._sizes[node] = self._nodes - before
        elif node is not None:
            size = self._sizes.get(node)  # None inside the node itself
            self._copied += size or 0
            self._nodes += size or 0
            if size is None or self._copied > _MAX_COPIED:
                raise yaml.composer.ComposerError(None, None, "this alias expands to too many values", mark)
        return node


def read_yaml(data: bytes | str, file: str | None) -> list[Any]:
    """Return the documents of a YAML stream, decoded; JSON is YAML as well.

    Raises:
        ConfigError: the text is not YAML, or its aliases expand to more than 10,000 values together.
    """
    try:
        return list(yaml.load_all(data, _Loader))
    # ValueError: a date such as 2001-13-01, or an integer with thousands of digits.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else None
        problem = getattr(error, "problem", None) or str(error).split("\n", maxsplit=1)[0]
        raise ConfigError(f"it is neither JSON nor YAML: {problem}", file=file, location=where) from error
