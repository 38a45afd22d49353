"""The faults that a fake plugin can play; README.md has the table."""

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
        self.chosen = _chosen({**_sidecar(script), **_dict(call.config.get("fake"))}, call.verb)
        self.supported = self.chosen.get("supportedVersions", results.VERSIONS)
        self.state_dir = self.chosen.get("stateDir") or call.env.get("FAKE_CNI_STATE")

    def begin(self) -> None:
        """Play the faults that come before the verb."""
        if self.chosen.get("ignoreTerm"):
            system.ignore_term()
        if "grandchild" in self.chosen:
            self.grandchild = _grandchild(**self.chosen["grandchild"])
        if "touch" in self.chosen:
            system.appear(self.chosen["touch"], str(os.getpid()))
        system.write(2, self.chosen.get("stderr", "").encode())
        self.pause("sleep")
        if "waitFor" in self.chosen:
            system.wait_for(self.chosen["waitFor"])

    def pause(self, knob: str) -> None:
        """Sleep for the seconds of ``knob``, if it is set."""
        if knob in self.chosen:
            time.sleep(exact.number(self.chosen[knob]))

    def fail_if_set(self, knob: str) -> None:
        """Fail with the error document of ``knob``, if it is set."""
        if knob in self.chosen:
            raise Failure(**{"code": 999, "msg": "set to fail", **self.chosen[knob]})

    def put(self, document: dict | None) -> None:
        """Print the answer, or the text that replaces or surrounds it."""
        text = "" if document is None else exact.dumps(document) + "\n"
        text = self.chosen.get("stdout", text)
        text = self.chosen.get("before", "") + text + self.chosen.get("after", "")
        system.write(1, text.encode("utf-8", "surrogateescape"))

    def changed(self, result: dict) -> object:
        """Return the document to print for ``result``, which has the form of 1.x."""
        document = results.shaped(result, self.chosen.get("cniVersion", self.call.version))
        return exact.merged(self.chosen.get("result", document), self.chosen.get("merge", {}))

    def finish(self, status: int) -> None:
        """Log the call and end the process."""
        self.pause("linger")
        self._log()
        if "endless" in self.chosen:
            system.write_without_end({"stdout": 1, "stderr": 2}[self.chosen["endless"]])
        if "signal" in self.chosen:
            os.kill(os.getpid(), self.chosen["signal"])
        os._exit(self.chosen.get("exit", status))

    def _log(self) -> None:
        path = self.chosen.get("log") or self.call.env.get("FAKE_CNI_LOG")
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
    """Return the knobs for ``verb``; its own win. With ``while``, faults need that file."""
    chosen = {key: value for key, value in everything.items() if key not in VERBS}
    chosen.update(_dict(everything.get(verb)))
    if "while" not in chosen or os.path.exists(chosen["while"]):
        return chosen
    return {key: value for key, value in chosen.items() if key in HARMLESS}


def _sidecar(script: str) -> dict:
    """Return the content of ``<script>.json``; VERSION has no other knobs, because it gets no configuration."""
    try:
        with open(script + ".json", "rb") as file:
            return _dict(exact.loads(file.read()))
    except FileNotFoundError:
        return {}


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _grandchild(seconds: object, holds: list = ("stdout",), detach: object = False) -> int:
    return system.leave_grandchild(exact.number(seconds), holds, detach=bool(detach))
