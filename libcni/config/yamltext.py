"""Read YAML: plain values without aliases."""

from __future__ import annotations

from typing import Any

import yaml

from libcni.errors import ConfigError


class _Loader(yaml.SafeLoader):  # the full loader lets a document create any Python object
    """A loader that refuses aliases: nested aliases can stand for any number of values."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # the stubs have no type
            raise yaml.composer.ComposerError(None, None, "aliases are not accepted: write the value again", mark)
        return super().compose_node(parent, index)


def read_yaml(data: bytes | str, file: str | None) -> list[Any]:
    """Return the documents of a YAML stream, decoded; JSON is YAML as well.

    Raises:
        ConfigError: the text is not YAML, or has an alias.
    """
    try:
        return list(yaml.load_all(data, _Loader))
    # ValueError: a date such as 2001-13-01, or an integer with thousands of digits.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else None
        problem = getattr(error, "problem", None) or str(error).split("\n", maxsplit=1)[0]
        raise ConfigError(f"it is neither JSON nor YAML: {problem}", file=file, location=where) from error
