"""The error that a plugin answers with, and the error document of spec 1.1.0, section 5."""

from __future__ import annotations

from libcni.errors import CNIError, ErrorCode, PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["VerbError", "error_document"]


class VerbError(CNIError):
    """Answer a verb with an error: raise it from a plugin's function.

    Attributes:
        code: a well-known code, or 100 and above for the plugin's own (spec 1.1.0, section 5, Error).
        msg (str): one short sentence.
        details (str): more about it, or "".
    """

    def __init__(self, msg: str, *, code: int = ErrorCode.INTERNAL, details: str = "") -> None:
        super().__init__(f"{msg}; {details}" if details else msg)
        self.code: int = int(code)
        self.msg = msg
        self.details = details


def error_document(error: BaseException, version: str) -> dict[str, Any]:
    """Return the error result of spec 1.1.0, section 5, for a configuration of ``version``.

    A delegated plugin's error is passed up with its own code; whatever else was not foreseen has code 999.
    """
    document: dict[str, Any] = {"cniVersion": version, "code": int(ErrorCode.INTERNAL), "msg": _text(error)}
    if isinstance(error, VerbError) or (isinstance(error, PluginError) and error.code is not None):
        document.update(code=error.code, msg=error.msg)
        if error.details:
            document["details"] = error.details
    return document


def is_foreseen(error: BaseException) -> bool:
    """Return whether ``error`` says all there is to say, so that a traceback would only be noise."""
    return isinstance(error, CNIError)


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the plugin's function called sys.exit({error.code!r})"
    return str(error) or type(error).__name__
