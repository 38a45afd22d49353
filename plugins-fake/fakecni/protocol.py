"""One call of a plugin: read, act, answer and log, with the faults between these steps."""

from __future__ import annotations

import os
import sys

from fakecni import results
from fakecni.call import Call, Failure
from fakecni.knobs import Knobs
from fakecni.plugins import ACTIONS, Plugin


def main(plugin: type[Plugin]) -> None:
    """Serve one call and exit."""
    call = Call(dict(os.environ), sys.stdin.buffer.read())
    knobs = Knobs(call, sys.argv[0])
    knobs.begin()
    try:
        document, status = _answer(call, knobs, plugin), 0
    except Failure as failure:
        document, status = failure.document(call.version), 1
    knobs.pause("sleepAfter")
    knobs.put(document)
    knobs.finish(status)


def _answer(call: Call, knobs: Knobs, plugin: type[Plugin]) -> object:
    """Do what the verb asks; return the document to print, or None."""
    call.refuse_bad_environment()
    if call.verb == "VERSION":
        knobs.fail_if_set("error")
        return {"cniVersion": call.version or results.VERSIONS[-1], "supportedVersions": knobs.supported}
    call.refuse_bad_config(knobs.supported)
    knobs.fail_if_set("error")
    result = ACTIONS[call.verb](plugin(call, knobs.state_dir))
    knobs.fail_if_set("errorAfter")
    return None if result is None else knobs.changed(result)
