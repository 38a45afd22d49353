"""What was seen of a step, whoever executed it, and how it differs from what the vector expects."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.exact import exact, has, plain, read, show
from conformance.stage import Call, Stage
from conformance.vectors import MAIN_VERB, Step
from libcni.store.record_format import decode

NOTHING = "(nothing)"


@dataclass(frozen=True)
class Failure:
    """An error, by whomever. ``classes`` is None where its kind has no counterpart here."""

    text: str
    classes: tuple[str, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a step left behind: ``value`` has the keys of the step's expectations; JSON in it is ``exact``."""

    calls: list[Call] = field(default_factory=list)
    value: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    records: list[tuple[str, bytes]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Difference:
    """One thing that is not as expected. ``place`` is such as ``2 add: calls[0].stdin.x``."""

    place: str
    expected: str
    seen: str

    def __str__(self) -> str:
        return f"{self.place}: expected {self.expected}, seen {self.seen}"


def differences(stage: Stage, step: Step, seen: Seen) -> list[Difference]:
    """Return how what was seen of a step differs from what the vector expects."""
    where = f"{_number(step)} {step.kind}"
    found = [
        *_in_error(step, seen),
        *_in_value(step, seen),
        *_in_calls(stage, step, seen),
        *_in_record(step, seen),
        *_gone(step, seen),
        *_too_long(step, seen),
    ]
    return [Difference(f"{where}: {one.place}", one.expected, one.seen) for one in found]


def _number(step: Step) -> int:
    return [other.index for other in step.vector.steps].index(step.index) + 1


def _in_error(step: Step, seen: Seen) -> Iterator[Difference]:
    expected = step.body.get("error")
    if expected is None:
        if seen.failure is not None:
            yield Difference("error", "none", _told(seen.failure))
    elif seen.failure is None:
        yield Difference("error", _wanted(expected), "none")
    else:
        yield from _error_differences("error", expected, seen.failure)


def _told(failure: Failure) -> str:
    kind = f"{failure.classes[0]}: " if failure.classes else ""
    return f"{kind}{failure.text}"


def _wanted(expected: Any) -> str:
    wanted = expected.get("class", "an error") if isinstance(expected, dict) else expected
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _error_differences(place: str, expected: Any, failure: Failure) -> Iterator[Difference]:
    if not isinstance(expected, dict):
        expected = {"class": expected}
    classes = expected.get("class", [])
    classes = [classes] if isinstance(classes, str) else classes
    if classes and failure.classes is not None and not set(classes) & set(failure.classes):
        yield Difference(f"{place}.class", " or ".join(classes), _told(failure))
    for key, value in expected.items():
        if key == "contains":
            yield from _missing_fragments(place, value, failure)
        elif key == "errors":
            yield from _part_differences(place, value, failure)
        elif key != "class" and (failure.classes is not None or key in failure.fields):
            got = failure.fields.get(key, NOTHING)
            same = str(value) in str(got) if key == "stderr" else got == value
            if not same:
                yield Difference(f"{place}.{key}", repr(value), repr(got))


def _missing_fragments(place: str, fragments: Any, failure: Failure) -> Iterator[Difference]:
    if failure.classes is None:
        return  # another library has words of its own
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        if str(fragment) not in failure.text:
            yield Difference(f"{place}.text", f"...{fragment}...", failure.text)


def _part_differences(place: str, expected: list[Any], failure: Failure) -> Iterator[Difference]:
    if len(expected) != len(failure.parts):
        yield Difference(f"{place}.errors", str(len(expected)), "; ".join(map(_told, failure.parts)) or "none")
        return
    for index, (wanted, got) in enumerate(zip(expected, failure.parts, strict=True)):
        yield from _error_differences(f"{place}.errors[{index}]", wanted, got)


def _in_value(step: Step, seen: Seen) -> Iterator[Difference]:
    if seen.failure is not None:
        return
    for key, expected in step.body.items():
        if _NAMED_OTHERWISE.get(key, key) in seen.value:
            yield from _value_differences(key, expected, seen.value[_NAMED_OTHERWISE.get(key, key)])


_NAMED_OTHERWISE = {"result_text": "result", "result_has": "result", "document_text": "document"}


def _value_differences(key: str, expected: Any, got: Any) -> Iterator[Difference]:
    name = _NAMED_OTHERWISE.get(key, key)
    if key in {"problems", "warnings"}:
        text = "\n".join(got)
        lacking = [part for part in expected if str(part) not in text]
        if lacking:
            yield Difference(key, f"...{lacking[0]}...", text or "none")
    elif key in {"loaded", "attachments"}:
        yield from compare(key, expected, got, whole=False)
    elif key == "result_has":
        if not has(got, exact(expected)):
            yield Difference(name, show(exact(expected)), show(got))
    else:
        yield from compare(name, read(expected) if key.endswith("_text") else exact(expected), got)


def compare(place: str, expected: Any, got: Any, *, whole: bool = True) -> Iterator[Difference]:
    """Yield where two documents differ, key by key; only at expected keys unless ``whole``."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if whole and key not in expected)]:
            yield from compare(f"{place}.{key}", expected.get(key, NOTHING), got.get(key, NOTHING), whole=whole)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (wanted, one) in enumerate(zip(expected, got, strict=True)):
            yield from compare(f"{place}[{index}]", wanted, one, whole=whole)
    elif expected != got:
        yield Difference(place, _short(expected), _short(got))


def _short(document: Any) -> str:
    text = document if document is NOTHING else show(document)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _in_calls(stage: Stage, step: Step, seen: Seen) -> Iterator[Difference]:
    expected = step.body.get("calls")
    if expected is None:
        return
    calls = [_call(step, call) for call in expected]
    wanted = [f"{call['plugin']} {call['verb']}" for call in calls]
    got = [f"{call.plugin} {call.verb}" for call in seen.calls]
    if wanted != got:
        yield Difference("calls", ", ".join(wanted) or "none", ", ".join(got) or "none")
        return
    for index, (call, made) in enumerate(zip(calls, seen.calls, strict=True)):
        place = f"calls[{index}]"
        yield from _in_environment(f"{place}.env", _environment(stage, step, call), made)
        if "path" in call and call["path"] != made.path:
            yield Difference(f"{place}.path", call["path"], made.path)
        yield from _in_stdin(f"{place}.stdin", call, made)


def _call(step: Step, call: Any) -> dict[str, Any]:
    if isinstance(call, str):
        plugin, verb = call.split()
        return {"plugin": plugin, "verb": verb}
    return {"verb": MAIN_VERB[step.kind], **call}


def _environment(stage: Stage, step: Step, call: dict[str, Any]) -> dict[str, str | None]:
    """Return the variables that a call must have: those that follow from the runtime configuration, and its own."""
    expected: dict[str, str | None] = {"CNI_COMMAND": call["verb"]}
    if call["verb"] in {"ADD", "CHECK", "DEL"} and step.kind != "gc":
        rt = step.rt
        expected |= {
            "CNI_CONTAINERID": rt["container_id"],
            "CNI_IFNAME": rt["ifname"],
            "CNI_PATH": ":".join(stage.path),
        }
        if "args" not in rt or rt["args"] is not None:
            expected["CNI_ARGS"] = ";".join(f"{key}={value}" for key, value in rt.get("args", []))
        if call["verb"] == MAIN_VERB[step.kind]:
            expected["CNI_NETNS"] = rt["netns"]
    return {**expected, **call.get("env", {})}


def _in_environment(place: str, expected: dict[str, str | None], made: Call) -> Iterator[Difference]:
    for name, value in expected.items():
        got = made.env.get(name)
        if got != value:
            yield Difference(f"{place}.{name}", "unset" if value is None else value, "unset" if got is None else got)


def _in_stdin(place: str, call: dict[str, Any], made: Call) -> Iterator[Difference]:
    if not call.keys() & {"stdin", "stdin_text", "stdin_has"}:
        return
    try:
        got = read(made.stdin)
    except ValueError as error:
        yield Difference(place, "JSON", f"{error}: {made.stdin[:200]!r}")
        return
    if "stdin_has" in call and not has(got, exact(call["stdin_has"])):
        yield Difference(place, show(exact(call["stdin_has"])), show(got))
    if "stdin_text" in call:
        yield from compare(place, read(call["stdin_text"]), got)
    elif "stdin" in call:
        yield from compare(place, exact(call["stdin"]), got)
    order = call.get("stdin_order", [])
    if order and [key for key in got if key in order] != order:
        yield Difference(f"{place} (order)", ", ".join(order), ", ".join(key for key in got if key in order))


def _in_record(step: Step, seen: Seen) -> Iterator[Difference]:
    if "record" not in step.body:
        return
    expected = step.body["record"]
    record = _record_of(step, seen)
    if expected is None or record is None:
        if expected is not None or record is not None:
            yield Difference("record", "none" if expected is None else "a record", "none" if record is None else "one")
        return
    for key, value in expected.items():
        yield from _in_record_key(key, value, record)


def _in_record_key(key: str, value: Any, record: dict[str, Any]) -> Iterator[Difference]:
    place = f"record.{key}"
    if key in {"config", "config_text"}:
        raw = base64.b64decode(record.get("config") or "")
        if key == "config":
            yield from compare(place, exact(value), read(raw or b"null"))
        elif raw.decode() != value:
            yield Difference(place, repr(value), repr(raw.decode()))
    elif key == "state":
        state = decode(json.dumps(plain(record)).encode(), "").state
        if "libcni" in record and state != value:
            yield Difference(place, value, state)
    else:
        yield from compare(place, NOTHING if value is None else exact(value), record.get(key, NOTHING))


def _record_of(step: Step, seen: Seen) -> dict[str, Any] | None:
    """Return the record of the step's attachment; what stands in the file counts, not the file's name."""
    wanted = (step.rt["container_id"], step.rt["ifname"], _network_of(step))
    for _, data in seen.records:
        try:
            record = read(data)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        found = (record.get("containerId"), record.get("ifName"), record.get("networkName"))
        if found[:2] == wanted[:2] and wanted[2] in {None, found[2]}:
            whole: dict[str, Any] = record
            return whole
    return None


def _network_of(step: Step) -> str | None:
    source = step.source
    if "network" in source:
        return str(source["network"])
    try:
        document = source.get("document") or read(source.get("document_text", "null"))
    except (ValueError, RecursionError):
        return None
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else None


def _gone(step: Step, seen: Seen) -> Iterator[Difference]:
    names = {name for name, _ in seen.records}
    for name in step.body.get("gone", []):
        if name in names:
            yield Difference(f"record file {name}", "gone", "there")


def _too_long(step: Step, seen: Seen) -> Iterator[Difference]:
    limit = step.body.get("within")
    if limit is not None and seen.seconds > limit:
        yield Difference("time", f"within {limit} s", "longer")
