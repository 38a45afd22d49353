"""The language of steps: the keys that a fake plugin understands, and the types of their values."""

from __future__ import annotations

VERBS = ("ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION")
KINDS = ("fake", "bridge", "ipam", "portmap", "tuning")
SETTINGS = {"kind": str, "stateDir": str, "versions": list}
STEP = {
    "stderr": str,
    "sleep": (int, float),
    "error": dict,
    "errorAfter": dict,
    "result": dict,
    "stdout": str,
    "signal": int,
    "exit": int,
}
ERROR = {"code": int, "msg": str, "details": str}


def problem_of(steps: object) -> str:
    """Return what is wrong with the steps of a plugin, or ""."""
    if not isinstance(steps, dict):
        return f"the steps are an object with verbs as keys, not {steps!r}"
    shared = {key: value for key, value in steps.items() if key not in VERBS}
    problem = _wrong(shared, {**SETTINGS, **STEP}, "")
    if not problem and shared.get("kind", "fake") not in KINDS:
        problem = f"kind: {shared['kind']!r} is none of {', '.join(KINDS)}"
    for verb in VERBS:
        given = steps.get(verb, {})
        for step in given if isinstance(given, list) else [given]:
            problem = problem or _wrong(step, STEP, f"{verb}: ")
    return problem or ("" if all(steps.get(verb) != [] for verb in VERBS) else "a list of steps is empty")


def _wrong(step: object, keys: dict, where: str) -> str:
    if not isinstance(step, dict):
        return f"{where}a step is an object, not {step!r}"
    for key, value in step.items():
        if key not in keys:
            return f"{where}{key!r} is no key of a step"
        # In Python true is a number, in a step it is not. YAML reads an unquoted "no" as false.
        if not isinstance(value, keys[key]) or isinstance(value, bool):
            return f"{where}{key} cannot be {value!r}"
        if key in ("error", "errorAfter"):
            known = {name: value[name] for name in ERROR if name in value}
            problem = _wrong(known, ERROR, f"{where}{key}.")
            if problem:
                return problem
    return ""
