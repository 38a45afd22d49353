"""Bytes from others, made to do harm: an answer or an error of ours, and no endless wait."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from libcni.config.jsontext import MAX_DEPTH
from reliability.hostile import SEEDS, TARGETS, mutations

pytestmark = pytest.mark.unmeasured
SEED = int(os.environ.get("LIBCNI_SEED", str(random.SystemRandom().randrange(1 << 31))))
CASES = int(os.environ.get("LIBCNI_FUZZ_CASES", "500"))
MEGABYTES = 2 << 20


def corners() -> Iterator[tuple[str, bytes]]:
    """Yield JSON's dark corners: as the whole document, and as the value of a key that nobody knows."""
    values = {
        "lone surrogate": b'"\\ud800"',
        "lone surrogate in a key": b'{"\\udc00": 1}',
        "surrogate encoded": b'"\xed\xa0\x80"',
        "NUL": b'"\\u0000"',
        "NaN": b"NaN",
        "Infinity": b"[-Infinity]",
        "1e400": b"1e400",
        "minus zero": b"-0",
        "5,000 digits": b"1" * 5000,
        "100,000 digits": b"9" * 100_000,
        "5,000 digits and a point": b"1" * 5000 + b".5",
        "duplicate keys": b'{"a": 1, "a": 2}',
        "100,000 arrays deep": b"[" * 100_000,
        "100,000 arrays deep, closed": b"[" * 100_000 + b"]" * 100_000,
        "100,000 objects deep": b'{"a":' * 100_000,
        "2 MB string": b'"' + b"x" * MEGABYTES + b'"',
        "2 MB of escapes": b'"' + b"\\n" * (MEGABYTES // 2) + b'"',
        "2 MB of spaces": b" " * MEGABYTES + b"1",
        "60,000 elements": b"[" + b"1," * 60_000 + b"1]",
        "20,000 members": b"{" + b",".join(b'"k%d":1' % number for number in range(20_000)) + b"}",
        "20,000 times one member": b"{" + b",".join([b'"k":1'] * 20_000) + b"}",
        "control character": b'"\x01"',
        "empty": b"",
    }
    yield from values.items()
    yield "BOM", b"\xef\xbb\xbf{}"
    for encoding in ("utf-16", "utf-32"):
        yield encoding, "{}".encode(encoding)
    yield "latin-1", '{"ä": 1}'.encode("latin-1")
    yield "two documents", b"{}{}"
    yield "NULs", b"\0" * 100


CORNERS = dict(corners())


def peak_megabytes() -> float:
    """Return the most memory that this process has had resident."""
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kilobytes) / 1024


def within(seconds: float, megabytes: float, target: Callable[[bytes], bool], data: bytes) -> None:
    """Run a target, and assert that it is done in bounded processor time and memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is resident now
    before = peak_megabytes()
    started = time.process_time()
    target(data)
    assert time.process_time() - started < seconds
    assert peak_megabytes() - before < megabytes


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", TARGETS)
def test_dark_corners(name: str, corner: str) -> None:
    value = CORNERS[corner]
    target = TARGETS[name]
    within(5, 150, target, value)
    for seed in SEEDS[name][:2]:
        if seed.startswith(b"{"):
            within(5, 150, target, b'{"unknown":' + value + b"," + seed[1:])
            head, _, tail = seed.partition(b":")
            within(5, 150, target, head + b":" + value + b"," + tail.partition(b",")[2])


@pytest.mark.parametrize("name", TARGETS)
def test_every_depth_of_nesting(name: str) -> None:
    """Near the library's limit and Python's: what one function can still read the next may not."""
    target = TARGETS[name]
    for depth in [1, 60, *range(MAX_DEPTH - 2, MAX_DEPTH + 2), 900, 3000]:
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            value = opening * depth + b"1" + closing * depth
            target(value)
            for seed in SEEDS[name][:1]:
                target(b'{"unknown":' + value + b"," + seed[1:])
                for key in ("name", "args", "ips", "code", "result", "libcni"):
                    target(seed[:-1] + f',"{key}":'.encode() + value + b"}")


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good(name: str) -> None:
    """Otherwise all that follows would test the first line of a parser only."""
    assert all(TARGETS[name](seed) for seed in SEEDS[name] if seed != b"text")


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_near_to_good_ones(name: str) -> None:
    good = 0
    for data in mutations(name, SEED, CASES):
        try:
            good += TARGETS[name](data)
        except BaseException as error:
            raise AssertionError(f"LIBCNI_SEED={SEED}: {data!r}") from error
    assert good > CASES / 1000, "too few inputs are accepted: the mutations change too much"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(data: bytes) -> None:
    for name, target in TARGETS.items():  # to make the bytes takes longer than to read them
        note(name)
        target(data)
