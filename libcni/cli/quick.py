"""Answer ``libcni attachments`` without typer.

People and scripts type it all day. typer imports pydantic, and both together take longer than the listing itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

__all__ = ["list_quickly"]

_VALUES = {
    "-c": "container", "--container": "container", "-n": "network", "--network": "network", "-i": "ifname",
    "--ifname": "ifname", "-s": "state", "--state": "state",
}  # fmt: skip
_SWITCHES = {"-q": "quiet", "--quiet": "quiet", "--no-trunc": "no_trunc"}
_COMMON = {"--cache-dir": "cache_dir", "-o": "output", "--output": "output"}
_STATES = {"pending", "ready", "detaching", "gone", "stale-boot", "corrupt", "legacy"}


def list_quickly(argv: Sequence[str]) -> bool:
    """List the attachments and return True; return False if typer has to answer: an error, help, a rare option."""
    options: dict[str, Any] = {}
    common = {"cache_dir": os.environ.get("LIBCNI_CACHE_DIR") or "", "output": "text"}
    words = iter(argv)
    for word in words:
        if word in _SWITCHES:
            options[_SWITCHES[word]] = True
            continue
        value = next(words, "")
        if word in _VALUES and value:
            options[_VALUES[word]] = value
        elif word in _COMMON and value:
            common[_COMMON[word]] = value
        else:
            return False
    if common["output"] not in {"text", "json"} or options.get("state", "ready") not in _STATES:
        return False
    from libcni import CNIError
    from libcni.cli.listing import list_attachments
    from libcni.cli.session import DEFAULTS, Output, Session

    output = cast("Output", common["output"])
    session = Session(
        DEFAULTS["conf_dir"], "", common["cache_dir"] or DEFAULTS["cache_dir"], "", 60.0, output, verbose=False
    )
    try:
        list_attachments(session, **options)
    except (CNIError, BrokenPipeError):
        return False  # The usual path meets the same error, and reports it.
    return True
