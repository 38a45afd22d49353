"""The source of every fake plugin: write down the call, then play a scenario. Standard library only; runs anywhere."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), f".{os.path.basename(__file__)}")
CALLS = os.path.join(HOME, "calls")
VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]


def record(verb: str, stdin: bytes) -> int:
    """Write down a call and return how many of the same verb came before it."""
    before = sum(name.endswith(f"-{verb}.json") for name in os.listdir(CALLS))
    name = f"{time.time_ns()}-{os.getpid()}-{verb}.json"
    text = json.dumps({"verb": verb, "env": dict(os.environ), "stdin": stdin.decode("latin-1"), "argv": sys.argv})
    with open(os.path.join(HOME, name), "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(os.path.join(HOME, name), os.path.join(CALLS, name))
    # one line in one write: plugins that run at the same time append to the same file
    with open(os.path.join(os.path.dirname(HOME), ".calls"), "a", encoding="utf-8") as log:
        log.write(f"{verb} {os.path.basename(__file__)} {name}\n")
    return before


def step_for(verb: str, number: int) -> dict[str, Any]:
    """Return the scenario's step for this call: of a list, one after the other and the last for ever."""
    with open(os.path.join(HOME, "scenario.json"), encoding="utf-8") as file:
        steps = json.load(file).get(verb, {})
    return dict(steps[min(number, len(steps) - 1)] if isinstance(steps, list) else steps)


def answer(verb: str, step: dict[str, Any], config: dict[str, Any]) -> str:
    """Return what goes to stdout."""
    version = config.get("cniVersion") or VERSIONS[0]
    if "stdout" in step:
        return str(step["stdout"])
    if "error" in step:
        return json.dumps({"cniVersion": version, **step["error"]})
    if verb == "VERSION":
        return json.dumps({"cniVersion": version, "supportedVersions": step.get("versions", VERSIONS)})
    if verb != "ADD":
        return ""
    return json.dumps({"cniVersion": version, **step.get("result", config.get("prevResult") or {})})


def play(verb: str, step: dict[str, Any], config: dict[str, Any]) -> int:
    """Carry out one step and return the exit status."""
    if step.get("linger"):
        # Its stdout stays open in the child: a runtime must not wait for that.
        import subprocess

        subprocess.Popen(["sleep", str(step["linger"])])  # noqa: S603, S607 - seconds only
    time.sleep(step.get("sleep", 0))
    sys.stderr.write(step.get("stderr", ""))
    sys.stdout.write(answer(verb, step, config))
    sys.stdout.flush()
    if "signal" in step:
        os.kill(os.getpid(), step["signal"])
    return int(step.get("exit", 1 if "error" in step else 0))


def parsed(stdin: bytes) -> dict[str, Any]:
    """Return the configuration on stdin, or {}."""
    try:
        config = json.loads(stdin)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def main() -> int:
    """Play the part of a plugin."""
    verb = os.environ.get("CNI_COMMAND", "")
    stdin = sys.stdin.buffer.read()
    number = record(verb, stdin)
    body = os.path.join(HOME, "body.py")
    if os.path.exists(body):
        with open(body, encoding="utf-8") as file:
            code = compile(file.read(), body, "exec")
        exec(code, {"verb": verb, "stdin": stdin, "config": parsed(stdin), "env": os.environ})  # noqa: S102
        return 0
    return play(verb, step_for(verb, number), parsed(stdin))


if __name__ == "__main__":
    sys.exit(main())
