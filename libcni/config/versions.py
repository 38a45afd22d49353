"""Spec versions: the known versions, their order, the choice for a configuration, and a table of their features."""

from __future__ import annotations

from libcni.errors import VersionError, short_repr, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ALL_VERSIONS", "CURRENT_VERSION", "greater_than", "greater_than_or_equal_to", "parse_version",
    "versions_starting_from",
]  # fmt: skip

ALL_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""All versions of the specification that this library speaks, oldest first."""

CURRENT_VERSION = ALL_VERSIONS[-1]
"""The newest version of the specification that this library speaks."""

DEFAULT_VERSION = ALL_VERSIONS[0]
"""The version of a document without ``cniVersion``."""

SINCE = {
    "CHECK": "0.4.0",
    "prevResult on DEL": "0.4.0",
    "GC": "1.1.0",
    "STATUS": "1.1.0",
}
"""The first version that has each verb or rule. Verbs ask only this table about differences between versions."""

RESULT_FORMS = {"0.1.0": 0, "0.2.0": 0, "0.3.0": 1, "0.3.1": 1, "0.4.0": 1, "1.0.0": 2, "1.1.0": 2}
"""The form of each version's results. Results of one form have the same keys; a higher number is a newer form."""

# A version that is added to ALL_VERSIONS without a form fails here, at the import, and not at a container's ADD.
assert RESULT_FORMS.keys() == set(ALL_VERSIONS)

_MAX_PARTS = 3
_MAX_DIGITS = 9


def parse_version(text: str) -> tuple[int, int, int]:
    """Return ``text`` as (major, minor, micro); "" means 0.1.0, missing parts mean 0. Raises VersionError."""
    if not isinstance(text, str):
        raise VersionError(f"invalid version {short_repr(text, 80)}: it must be a string", version=text)
    parts = (text or DEFAULT_VERSION).split(".")
    if len(parts) > _MAX_PARTS or not all(map(_is_number, parts)):
        rule = "it must be at most three numbers, such as 1.1.0"
        raise VersionError(f'invalid version "{shorten(text, 80)}": {rule}', version=text)
    major, minor, micro = (*map(int, parts), 0, 0)[:3]
    return major, minor, micro


def _is_number(part: str) -> bool:
    # No regular expression: importing re would take longer than a plugin's run.
    # Go uses strconv.Atoi (pkg/version/plugin.go), which accepts a sign.
    digits = part[1:] if part[:1] in {"+", "-"} else part
    return digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS


def greater_than(version: str, other: str) -> bool:
    """Return whether the spec version ``version`` is newer than ``other``; "" means 0.1.0. Raises VersionError."""
    return parse_version(version) > parse_version(other)


def greater_than_or_equal_to(version: str, other: str) -> bool:
    """Return whether the spec version ``version`` is ``other`` or newer; "" means 0.1.0. Raises VersionError."""
    return parse_version(version) >= parse_version(other)


def versions_starting_from(version: str) -> tuple[str, ...]:
    """Return ``version`` and all newer versions of ``ALL_VERSIONS``; () if it is not one of them."""
    return ALL_VERSIONS[ALL_VERSIONS.index(version) :] if version in ALL_VERSIONS else ()


def supports(version: str, feature: str) -> bool:
    """Return whether the spec version ``version`` has ``feature``, a verb or rule in ``SINCE``."""
    return parse_version(version) >= parse_version(SINCE[feature])


def check_known(version: str) -> str:
    """Return ``version`` if it is one of ``ALL_VERSIONS``, with "" as 0.1.0; else raise VersionError."""
    if version == "":
        return DEFAULT_VERSION
    if version not in ALL_VERSIONS:
        parsed = parse_version(version)
        # A plugin compares texts: for it "1.0" is not "1.0.0". So "1.0" is refused here, not corrected.
        similar = [known for known in ALL_VERSIONS if parse_version(known) == parsed]
        hint = f'write "{similar[0]}"' if similar else f"known versions: {', '.join(ALL_VERSIONS)}"
        raise VersionError(f'unknown spec version "{shorten(version, 80)}"', version=version, hint=hint)
    return version


def choose_version(version: str | None, versions: Iterable[str] | None = None) -> str:
    """Return the spec version to use for a configuration (spec 1.1.0, section 1, ``cniVersions``).

    Args:
        version: ``cniVersion``, or None if the document has none.
        versions: ``cniVersions``; None and an empty list mean the same. The highest known version of both is chosen;
            unknown versions are ignored.

    Raises:
        VersionError: a version is malformed, or this library knows none of them.
    """
    versions = tuple(versions or ())
    if not versions:
        return check_known(version or "")
    candidates = [*versions, *([version] if version else [])]
    # A document for newer runtimes may list versions that this library does not know. Ignore them.
    known = [text for text in sorted(candidates, key=parse_version) if text in ALL_VERSIONS]
    if not known:
        raise VersionError(
            f"none of the spec versions {shorten(', '.join(candidates), 300)} is known",
            version=version,
            hint=f"known versions: {', '.join(ALL_VERSIONS)}",
        )
    return known[-1]
