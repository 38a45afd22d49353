"""The error that a plugin answers with, and its error document (spec 1.1.0, section 5, Error)."""

from __future__ import annotations

from libcni.errors import CNIError, PluginError, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["VerbError"]

# The numbers of libcni.ErrorCode; importing the enumeration would cost each start of a plugin 3 ms.
INCOMPATIBLE_CNI_VERSION = 1
INVALID_ENVIRONMENT_VARIABLES = 4
IO_FAILURE = 5
DECODING_FAILURE = 6
INVALID_NETWORK_CONFIG = 7
INVALID_NETNS = 8
INTERNAL = 999

_TAIL = 1000


class VerbError(CNIError):
    """The error that a plugin's function raises to fail the verb.

    Attributes:
        code (int): a well-known code, or 100 and above for the plugin's own (spec 1.1.0, section 5, Error).
        msg (str): one short sentence.
        details (str): more about the error, or "".

    Raises:
        ValueError: ``code`` is zero or negative; the runtime would not see an error.

    Examples:
        >>> error = VerbError("no free address", code=11, details="10.1.0.0/16 is full")
        >>> error.code, str(error)
        (11, 'no free address; 10.1.0.0/16 is full')
    """

    def __init__(self, msg: str, *, code: int = INTERNAL, details: str = "") -> None:
        if int(code) <= 0:
            raise ValueError(f"the code of an error must be positive, not {code}: 100 and above are the plugin's own")
        super().__init__(f"{msg}; {details}" if details else msg)
        self.code: int = int(code)
        self.msg = msg
        self.details = details


def error_document(error: BaseException, version: str) -> dict[str, Any]:
    """Return the error document for ``error`` in the spec version ``version`` (spec 1.1.0, section 5, Error).

    The error of a delegate keeps its code and message. Its details name the delegate and have the end of its output.
    Any other exception gets code 999.
    """
    document: dict[str, Any] = {"cniVersion": version, "code": INTERNAL, "msg": _text(error)}
    details = ""
    if isinstance(error, VerbError):
        document.update(code=error.code, msg=error.msg)
        details = error.details
    elif isinstance(error, PluginError):
        if error.code is not None:
            # The text of spec 0.4.0 prints a dash before each code, which some plugins read as a minus sign.
            document.update(code=abs(error.code) or INTERNAL, msg=error.msg)
        details = _delegate_details(error)
    if details:
        document["details"] = details
    return document


def _text(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args:
        return f'missing key "{error.args[0]}"'
    return str(error) or type(error).__name__


def _delegate_details(error: PluginError) -> str:
    # The text of a delegate, such as "unknown CNI_COMMAND", would seem to be about this plugin.
    reported = f"reported by {error.plugin}" if error.code is not None else ""
    stderr = shorten(error.stderr.strip(), _TAIL, end=True)
    return "; ".join(filter(None, [error.details, reported, stderr and f"stderr of {error.plugin}: {stderr}"]))
