"""One call of a plugin: read, act and answer, with the faults that the steps ask for."""

from __future__ import annotations

import json
import os
import sys
import time

from fakecni import results
from fakecni.call import Call, Failure
from fakecni.language import KINDS, VERBS, problem_of
from fakecni.log import record
from fakecni.plugins import ACTIONS, PLUGINS


def main(plugin: str, file: str, counts: str, *, keeps_log: bool = False) -> None:
    """Serve one call and exit.

    ``plugin``: the path of the executable. ``file``: its steps; it need not exist. ``counts``: the directory in which
    lists of steps are counted. ``keeps_log``: whether to write the call to the log in the state directory.
    """
    call = Call(dict(os.environ), sys.stdin.buffer.read())
    name, own, step = os.path.basename(plugin), call.config.get("fake", {}), {}
    steps = _steps(file)
    state = {**steps, **(own if isinstance(own, dict) else {})}.get("stateDir") or call.env.get("FAKE_CNI_STATE")
    if keeps_log and isinstance(state, str):
        record(state, name, call.verb, call.stdin)
    try:
        problem = problem_of(own) or problem_of(steps)
        if problem or any(isinstance(own.get(verb), list) for verb in VERBS):
            raise Failure(7, problem or "a list of steps can only be in the plugin's file")
        steps.update(own)
        step = _step(steps, call.verb, os.path.join(counts, f"{name}.{call.verb}.count"))
        _write(2, step.get("stderr", "").encode())
        time.sleep(step.get("sleep", 0))
        kind = steps.get("kind") or (name[5:] if name.startswith("fake-") and name[5:] in KINDS else "fake")
        document, status = _answer(call, step, steps.get("versions"), PLUGINS[kind](call, state)), 0
    except Failure as failure:
        document, status = failure.document(call.version), 1
    text = "" if document is None else json.dumps(document) + "\n"
    _write(1, step.get("stdout", text).encode("utf-8", "surrogateescape"))
    if "signal" in step:
        os.kill(os.getpid(), step["signal"])
    os._exit(step.get("exit", status))


def _steps(file: str) -> dict:
    try:
        with open(file, "rb") as opened:
            return json.loads(opened.read())
    except FileNotFoundError:
        return {}


def _step(steps: dict, verb: str, count: str) -> dict:
    """Return the step for this call: the keys for all verbs, and over them those of the verb."""
    own = steps.get(verb, {})
    if isinstance(own, list):
        # One byte for each call. The position after a write tells simultaneous calls apart.
        descriptor = os.open(count, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, b".")
        own = own[min(os.lseek(descriptor, 0, os.SEEK_CUR), len(own)) - 1]
    return {**{key: value for key, value in steps.items() if key not in VERBS}, **own}


def _answer(call: Call, step: dict, versions: list | None, plugin: object) -> object:
    """Do what the verb asks; return the document to print, or None."""
    supported = versions or results.VERSIONS
    _fail_if_set(step, "error")
    call.refuse_bad_environment()
    if call.verb == "VERSION":
        return {"cniVersion": call.version or results.VERSIONS[-1], "supportedVersions": supported}
    call.refuse_bad_config(supported)
    result = ACTIONS[call.verb](plugin)
    _fail_if_set(step, "errorAfter")
    if call.verb != "ADD":
        return None
    result = step.get("result", result)
    return result if "cniVersion" in result else results.shaped(result, call.version)


def _fail_if_set(step: dict, key: str) -> None:
    if key in step:
        raise Failure(**{"code": 999, "msg": "set to fail", **step[key]})


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
