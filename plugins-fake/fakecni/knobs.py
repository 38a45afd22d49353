"""All the ways to misbehave. README.md has the table."""

from __future__ import annotations

import os
import time

from fakecni import exact, results, system
from fakecni.call import VERBS, Call, Failure

HARMLESS = ("log", "stateDir", "supportedVersions")


class Knobs:
    """The knobs that apply to one call."""

    def __init__(self, call: Call, script: str) -> None:
        self.call, self.script = call, script
        self.start = system.now()
        self.grandchild = None
        self.told = _chosen({**_sidecar(script), **_dict(call.config.get("fake"))}, call.verb)
        self.supported = self.told.get("supportedVersions", results.VERSIONS)
        self.state_dir = self.told.get("stateDir") or call.env.get("FAKE_CNI_STATE")

    def begin(self) -> None:
        """Do what is to happen before the verb."""
        if self.told.get("ignoreTerm"):
            system.ignore_term()
        if "grandchild" in self.told:
            self.grandchild = _grandchild(**self.told["grandchild"])
        if "touch" in self.told:
            system.appear(self.told["touch"], str(os.getpid()))
        system.write(2, self.told.get("stderr", "").encode())
        self.pause("sleep")
        if "waitFor" in self.told:
            system.wait_for(self.told["waitFor"])

    def pause(self, knob: str) -> None:
        """Sleep for as many seconds as ``knob`` says."""
        if knob in self.told:
            time.sleep(exact.number(self.told[knob]))

    def fail_if_told(self, knob: str) -> None:
        """Fail with the error document that ``knob`` holds."""
        if knob in self.told:
            raise Failure(**{"code": 999, "msg": "told to fail", **self.told[knob]})

    def put(self, document: dict | None) -> None:
        """Print the answer, or what the knobs want instead of it and around it."""
        text = "" if document is None else exact.dumps(document) + "\n"
        text = self.told.get("stdout", text)
        text = self.told.get("before", "") + text + self.told.get("after", "")
        system.write(1, text.encode("utf-8", "surrogateescape"))

    def changed(self, result: dict) -> object:
        """Return the document to print for ``result``, which has the shape of 1.x."""
        document = results.shaped(result, self.told.get("cniVersion", self.call.version))
        return exact.merged(self.told.get("result", document), self.told.get("merge", {}))

    def finish(self, status: int) -> None:
        """Log the call and end the process."""
        self.pause("linger")
        self._log()
        if "endless" in self.told:
            system.write_without_end({"stdout": 1, "stderr": 2}[self.told["endless"]])
        if "signal" in self.told:
            os.kill(os.getpid(), self.told["signal"])
        os._exit(self.told.get("exit", status))

    def _log(self) -> None:
        path = self.told.get("log") or self.call.env.get("FAKE_CNI_LOG")
        if path:
            system.append(path, (exact.dumps(self._entry()) + "\n").encode())

    def _entry(self) -> dict:
        return {
            "plugin": os.path.basename(self.script),
            "verb": self.call.verb,
            "pid": os.getpid(),
            "pgid": os.getpgrp(),
            "grandchild": self.grandchild,
            "start": self.start,
            "end": system.now(),
            "cwd": os.getcwd(),
            "fds": system.descriptors(),
            "env": self.call.env,
            "stdin": self.call.stdin.decode("utf-8", "surrogateescape"),
        }


def _chosen(everything: dict, verb: str) -> dict:
    """Return the knobs for ``verb``: its own before the general ones, the harmful ones only ``while`` told."""
    told = {key: value for key, value in everything.items() if key not in VERBS}
    told.update(_dict(everything.get(verb)))
    if "while" not in told or os.path.exists(told["while"]):
        return told
    return {key: value for key, value in told.items() if key in HARMLESS}


def _sidecar(script: str) -> dict:
    """Return what stands in ``<script>.json``: the only knobs for VERSION, which gets no configuration."""
    try:
        with open(script + ".json", "rb") as file:
            return _dict(exact.loads(file.read()))
    except FileNotFoundError:
        return {}


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _grandchild(seconds: object, holds: list = ("stdout",), detach: object = False) -> int:
    return system.leave_grandchild(exact.number(seconds), holds, detach=bool(detach))
