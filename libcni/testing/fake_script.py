"""The source of every fake plugin: it records the call, then plays a scenario. It needs the standard library only."""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False  # typing takes 3 ms of the 20 that a fake plugin takes
if TYPE_CHECKING:
    from typing import Any

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), f".{os.path.basename(__file__)}")
CALLS = os.path.join(HOME, "calls")
VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]


def record(verb: str, stdin: bytes) -> int:
    """Record a call, and return how many calls of the same verb came before it."""
    before = sum(name.endswith(f"-{verb}.json") for name in os.listdir(CALLS))
    name = f"{time.time_ns()}-{os.getpid()}-{verb}.json"
    text = json.dumps({"verb": verb, "env": dict(os.environ), "stdin": stdin.decode("latin-1"), "argv": sys.argv})
    with open(os.path.join(HOME, name), "w", encoding="utf-8") as file:
        file.write(text)
    # Renamed when it is complete: a test may read the calls while plugins run.
    os.rename(os.path.join(HOME, name), os.path.join(CALLS, name))
    # One line in one write: plugins that run at the same time append to the same file.
    with open(os.path.join(os.path.dirname(HOME), ".calls"), "a", encoding="utf-8") as log:
        log.write(f"{verb} {os.path.basename(__file__)} {name}\n")
    return before


def scenario() -> dict[str, Any]:
    """Return the whole scenario."""
    with open(os.path.join(HOME, "scenario.json"), encoding="utf-8") as file:
        return dict(json.load(file))


def step_for(verb: str, number: int) -> dict[str, Any]:
    """Return the step for this call; of a list each call takes the next step, and all later calls the last."""
    steps = scenario().get(verb, {})
    return dict(steps[min(number, len(steps) - 1)] if isinstance(steps, list) else steps)


def supported() -> list[str]:
    """Return the versions that the scenario's VERSION lists."""
    step = scenario().get("VERSION", {})
    step = step[-1] if isinstance(step, list) else step
    return list(step.get("versions", VERSIONS))


def refusal(verb: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error for a configuration of a version that the plugin does not support, or None."""
    version, versions = config.get("cniVersion") or VERSIONS[0], supported()
    if verb == "VERSION" or versions == VERSIONS or version in versions:
        return None
    shown = " ".join(f'"{known}"' for known in versions)
    details = f'config is "{version}", plugin supports [{shown}]'
    return {"error": {"code": 1, "msg": "incompatible CNI versions", "details": details}}


def shaped(result: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a result of 1.x in the form of ``version``; one that says its own version stays as it is."""
    if "cniVersion" in result or version not in VERSIONS or VERSIONS.index(version) >= VERSIONS.index("1.0.0"):
        return result
    ips = [{"version": family(ip.get("address")), **ip} for ip in result.get("ips", [])]
    if VERSIONS.index(version) >= VERSIONS.index("0.3.0"):
        return {**result, "ips": ips} if ips else result
    flat = {key: value for key, value in result.items() if key not in {"ips", "interfaces", "routes"}}
    for ip in ips:
        routes = [route for route in result.get("routes", []) if family(route.get("dst")) == ip["version"]]
        kept = {key: value for key, value in ip.items() if key not in {"version", "address", "interface"}}
        part = {"ip": ip.get("address"), **kept, **({"routes": routes} if routes else {})}
        flat.setdefault(f"ip{ip['version']}", part)
    return flat


def family(address: object) -> str:
    """Return "4" or "6"."""
    return "6" if ":" in str(address) else "4"


def answer(verb: str, step: dict[str, Any], config: dict[str, Any]) -> str:
    """Return the text for stdout."""
    version = config.get("cniVersion") or VERSIONS[0]
    if "stdout" in step:
        return str(step["stdout"])
    if "error" in step:
        return json.dumps({"cniVersion": version, **step["error"]})
    if verb == "VERSION":
        return json.dumps({"cniVersion": version, "supportedVersions": step.get("versions", VERSIONS)})
    if verb != "ADD":
        return ""
    result = shaped(step["result"], version) if "result" in step else config.get("prevResult") or {}
    return json.dumps({"cniVersion": version, **result})


def begin(step: dict[str, Any]) -> None:
    """Play the part of a step that comes before the answer."""
    if step.get("ignoreTerm"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if step.get("linger"):
        # The child keeps stdout open: a runtime must not wait for that.
        import subprocess

        command = ["sleep", str(step["linger"])]
        subprocess.Popen(command, start_new_session=bool(step.get("detach")))  # noqa: S603 - seconds only
    if "touch" in step:
        with open(step["touch"], "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    time.sleep(step.get("sleep", 0))
    while "waitFor" in step and not os.path.exists(step["waitFor"]):
        time.sleep(0.005)


def play(verb: str, step: dict[str, Any], config: dict[str, Any]) -> int:
    """Carry out one step and return the exit status."""
    begin(step)
    sys.stderr.write(step.get("stderr", ""))
    sys.stdout.write(answer(verb, step, config))
    # Before the signal: SIGKILL leaves no time to write the answer.
    sys.stdout.flush()
    while "endless" in step:
        os.write({"stdout": 1, "stderr": 2}[step["endless"]], b"x" * 65536)
    if "signal" in step:
        os.kill(os.getpid(), step["signal"])
    return int(step.get("exit", 1 if "error" in step else 0))


def play_stateful(stdin: bytes) -> None:
    """Run a plugin of plugins-fake, with its state and its knobs in this plugin's own directory; it does not return."""
    from io import BytesIO, TextIOWrapper

    with open(os.path.join(HOME, "stateful.json"), encoding="utf-8") as file:
        chosen = json.load(file)
    sys.path.insert(0, chosen["home"])
    from fakecni import plugins, protocol  # type: ignore[import-not-found]

    sys.stdin = TextIOWrapper(BytesIO(stdin))
    sys.argv[0] = os.path.join(HOME, os.path.basename(__file__))  # its knobs are in this file, with .json
    protocol.main(getattr(plugins, chosen["class"]))


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
    if os.path.exists(os.path.join(HOME, "stateful.json")):
        play_stateful(stdin)
    body = os.path.join(HOME, "body.py")
    if os.path.exists(body):
        with open(body, encoding="utf-8") as file:
            code = compile(file.read(), body, "exec")
        exec(code, {"verb": verb, "stdin": stdin, "config": parsed(stdin), "env": os.environ})  # noqa: S102
        return 0
    config = parsed(stdin)
    return play(verb, refusal(verb, config) or step_for(verb, number), config)


if __name__ == "__main__":
    sys.exit(main())
