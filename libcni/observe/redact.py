"""Redact configurations for logs: the values of capability arguments may be secret."""

from __future__ import annotations

from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError

_INSTEAD = '"[redacted]"'


def redacted(stdin: bytes) -> str:
    """Return an execution configuration with each value in ``runtimeConfig`` replaced; the names stay.

    A configuration that is not a JSON object is replaced as a whole.
    """
    try:
        parts = []
        for member in jsontext.members(jsontext.decode_utf8(stdin)):
            text = member.text
            if member.key == "runtimeConfig":
                text = jsontext.join_object([(inner.key_text, _INSTEAD) for inner in jsontext.members(text)])
            parts.append((member.key_text, text))
    except JSONTextError:
        # The text cannot be searched for secrets, so no part of it may reach the log.
        return _INSTEAD
    return jsontext.join_object(parts)
