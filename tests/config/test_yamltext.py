"""YAML from files that others wrote: plain values, and an error says where."""

from __future__ import annotations

import pytest

from libcni.config.yamltext import read_yaml
from libcni.errors import ConfigError


def test_an_alias_is_refused_with_its_place() -> None:
    """Nested ones stand for any number of values."""
    with pytest.raises(ConfigError, match="aliases are not accepted") as caught:
        read_yaml("a: &a [x]\nb: [*a, *a]", "f.yaml")
    assert (caught.value.file, caught.value.location) == ("f.yaml", "line 2, column 5")


def test_all_documents_of_a_stream_are_read() -> None:
    assert read_yaml("a: 1\n---\n---\n[2]", None) == [{"a": 1}, None, [2]]
    assert read_yaml("", None) == []


def test_values_are_plain() -> None:
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        read_yaml("!!python/object/apply:os.system [true]", None)
