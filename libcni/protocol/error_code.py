"""The well-known error codes, in a module of their own because ``enum`` is slow to import."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ErrorCode"]


class ErrorCode(IntEnum):
    """The well-known codes of a plugin's error document (spec 1.1.0, section 5, Error).

    ``INVALID_NETNS`` and ``INTERNAL`` are not in the spec's table; Go's plugins print them.

    Examples:
        >>> ErrorCode(11).name
        'TRY_AGAIN_LATER'
        >>> ErrorCode.TRY_AGAIN_LATER == 11
        True
    """

    UNKNOWN = 0
    INCOMPATIBLE_CNI_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT_VARIABLES = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_NETWORK_CONFIG = 7
    INVALID_NETNS = 8
    TRY_AGAIN_LATER = 11
    PLUGIN_NOT_AVAILABLE = 50
    LIMITED_CONNECTIVITY = 51
    INTERNAL = 999
