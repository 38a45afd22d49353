"""YAML from files that others wrote: bounded, and an error says where."""

from __future__ import annotations

import time

import pytest

from libcni.config.yamltext import read_yaml
from libcni.errors import ConfigError


def nested_aliases(levels: int, width: int) -> str:
    """Return a document of ``levels`` lines; the last one stands for ``width ** levels`` values."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (nested_aliases(9, 9), 5),
        (nested_aliases(40, 2), 11),
        ("a: &a\n  b: [*a]", 2),
        ("a: &a {k: &b [x]}\n" + "".join(f"m{number}: {{<<: *a}}\n" for number in range(4000)), 2502),
    ],
)
def test_aliases_that_expand_are_refused_at_once_with_their_place(text: str, line: int) -> None:
    started = time.process_time()
    with pytest.raises(ConfigError, match="this alias expands to too many values") as caught:
        read_yaml(text, "f.yaml")
    assert time.process_time() - started < 5
    assert (caught.value.file, (caught.value.location or "").split(",")[0]) == ("f.yaml", f"line {line}")


def test_ordinary_aliases_and_merges_are_read() -> None:
    text = "base: &base {mtu: 1400, dns: [a]}\neth0: {<<: *base, mtu: 9000}\nall: [*base, *base]"
    assert read_yaml(text, None)[0]["eth0"] == {"mtu": 9000, "dns": ["a"]}


def test_all_documents_of_a_stream_are_read() -> None:
    assert read_yaml("a: 1\n---\n---\n[2]", None) == [{"a": 1}, None, [2]]
    assert read_yaml("", None) == []


def test_values_are_plain() -> None:
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        read_yaml("!!python/object/apply:os.system [true]", None)
