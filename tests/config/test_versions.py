"""Spec versions: their order, what each brought, and how one is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from libcni.config.versions import (
    ALL_VERSIONS,
    CURRENT_VERSION,
    SINCE,
    check_known,
    choose_version,
    greater_than,
    greater_than_or_equal_to,
    parse_version,
    supports,
    versions_starting_from,
)
from libcni.errors import VersionError


def test_the_versions_stand_in_their_order() -> None:
    assert list(ALL_VERSIONS) == sorted(ALL_VERSIONS, key=parse_version)
    assert ALL_VERSIONS == ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
    assert CURRENT_VERSION == "1.1.0"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1. 2", "at most three numbers"),  # the vectors have other texts
        ("1.0.0\n", "at most three numbers"),
        ("1" * 5000, "at most three numbers"),
        (1.0, "must be a string"),
        (None, "must be a string"),
    ],
)
def test_malformed(text: Any, part: str) -> None:
    with pytest.raises(VersionError) as caught:
        parse_version(text)
    assert part in str(caught.value)
    assert caught.value.version == text


def test_a_feature_stays_from_its_first_version_on() -> None:
    """The vectors show which version that is."""
    for feature, first in SINCE.items():
        having = [version for version in ALL_VERSIONS if supports(version, feature)]
        assert having == [*ALL_VERSIONS[ALL_VERSIONS.index(first) :]]


@pytest.mark.parametrize(
    ("version", "hint"), [("1.0", 'write "1.0.0"'), ("01.1.0", 'write "1.1.0"'), ("1.2.0", "known versions: 0.1.0,")]
)
def test_unknown_versions_come_with_a_hint(version: str, hint: str) -> None:
    with pytest.raises(VersionError, match="unknown spec version") as caught:
        check_known(version)
    assert caught.value.hint is not None
    assert str(caught.value.hint).startswith(hint)
    assert caught.value.version == version


@pytest.mark.parametrize(("version", "expected"), [(None, "0.1.0"), ("", "0.1.0"), ("1.0.0", "1.0.0")])
def test_an_empty_list_of_versions_is_as_none(version: str | None, expected: str) -> None:
    assert choose_version(version, []) == choose_version(version, None) == expected


@pytest.mark.parametrize("version", ["x" * 10_000, "9." * 5000, "1.2." + "y" * 10_000])
def test_a_long_version_is_shortened_in_the_error(version: str) -> None:
    for versions in (None, [version] * 100):
        with pytest.raises(VersionError) as caught:
            choose_version(version, versions)
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("version", "other", "greater", "equal"),
    [
        ("1.0.0", "0.4.0", True, False),
        ("0.4.0", "1.0.0", False, False),
        ("0.10.0", "0.9.9", True, False),
        ("1.0.0", "1.0.0", False, True),
        ("1.0", "1.0.0", False, True),
        ("", "0.1.0", False, True),
        ("0.3.1", "0.3.0", True, False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, other: str, *, greater: bool, equal: bool) -> None:
    assert greater_than(version, other) is greater
    assert greater_than_or_equal_to(version, other) is (greater or equal)


def test_a_version_that_is_none_cannot_be_compared() -> None:
    for compare in (greater_than, greater_than_or_equal_to):
        with pytest.raises(VersionError):
            compare("1.0.0", "1.x")
        with pytest.raises(VersionError):
            compare("1.2.3.4", "1.0.0")


def test_the_versions_from_one_on() -> None:
    assert versions_starting_from("0.4.0") == ("0.4.0", "1.0.0", "1.1.0")
    assert versions_starting_from("0.1.0") == ALL_VERSIONS
    assert versions_starting_from("0.5.0") == ()
