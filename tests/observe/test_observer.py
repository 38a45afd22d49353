"""An observer is told of every verb and every call, in pairs, and its environment reaches all plugins alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from libcni import AsyncCNIConfig, CNIConfig, CNIError, Invocation, PluginTimeoutError, RuntimeConf
from libcni.testing import RecordingExecutor, wait_until
from observe.canned import NET, RT, Notes, client, environments, failure_of, refusal

ADD = [
    ("begin", "ADD", "dbnet", "c1", "eth0"),
    ("before", "bridge", "ADD"),
    ("after", "bridge", "ADD", 0, None),
    ("before", "tuning", "ADD"),
    ("after", "tuning", "ADD", 0, None),
    ("end", "ADD", None),
]


@pytest.mark.parametrize("max_verbs", [1, 8], ids=["for the client's turn", "for the container's lock"])
def test_a_wait_for_another_verb_is_told_apart(tmp_path: Path, max_verbs: int) -> None:
    began, notes = threading.Event(), Notes()

    def slow(invocation: Invocation) -> None:
        if invocation.ifname == "eth0":
            began.set()
            wait_until(lambda: len(notes.operations) == 2)
            time.sleep(1)

    executor = RecordingExecutor({("bridge", "ADD"): slow})
    cni = CNIConfig("/bin", tmp_path, executor=executor, observer=notes, durable=False, max_verbs=max_verbs)
    first = threading.Thread(target=cni.add_network_list, args=(NET, RT))
    first.start()
    assert began.wait(10)
    cni.add_network_list(NET, RuntimeConf("c1", "/run/netns/blue", "eth1"))
    first.join()
    ahead, behind = (notes.waited[operation] for operation in notes.operations)
    # On a busy machine some of the second is over before the wait begins.
    assert ahead < 0.9
    assert 0.3 < behind < 60


class Broken(Notes):
    """Raise in every method, after the base class has written the call down."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {"begin", "after_wait", "before_call", "after_call", "end"}:
            return found

        def fail(*args: Any) -> None:
            found(*args)
            raise KeyError(name)

        return fail


@pytest.mark.parametrize("refused", [False, True])
def test_what_an_observer_raises_is_logged_and_the_verb_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    answers = {("tuning", "ADD"): refusal()} if refused else {}
    sound, broken = Notes(), Broken()
    for notes in (sound, broken):
        cni = client(tmp_path / type(notes).__name__, RecordingExecutor(answers), notes)
        if refused:
            failure_of(cni)
        else:
            cni.add_network_list(NET, RT)
            cni.del_network_list(NET, RT)
    assert broken.seen == sound.seen
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} == {
        f"{name!r}" for name in ("begin", "after_wait", "before_call", "after_call", "end")
    }


def test_each_start_has_its_end(tmp_path: Path) -> None:
    notes = Notes()
    client(tmp_path, RecordingExecutor(), notes).add_network_list(NET, RT)
    assert notes.seen == ADD


def test_asyncio_calls_the_same_methods(tmp_path: Path) -> None:
    notes = Notes()
    cni = AsyncCNIConfig(["/opt/cni/bin"], tmp_path, executor=RecordingExecutor().on_asyncio, observer=notes)
    asyncio.run(cni.add_network_list(NET, RT))
    assert notes.seen == ADD


def test_a_rolled_back_add_shows_its_del_calls_and_ends_with_the_callers_error(tmp_path: Path) -> None:
    notes = Notes()
    error = failure_of(client(tmp_path, RecordingExecutor({("tuning", "ADD"): refusal()}), notes))
    assert notes.seen[4:] == [
        ("after", "tuning", "ADD", 1, None),
        ("before", "tuning", "DEL"),
        ("after", "tuning", "DEL", 0, None),
        ("before", "bridge", "DEL"),
        ("after", "bridge", "DEL", 0, None),
        ("end", "ADD", type(error).__name__),
    ]


def test_a_call_that_could_not_run_to_its_end_has_its_error(tmp_path: Path) -> None:
    notes = Notes()
    failure_of(client(tmp_path, RecordingExecutor({("bridge", "ADD"): PluginTimeoutError("too slow")}), notes))
    assert ("after", "bridge", "ADD", None, "PluginTimeoutError") in notes.seen


class Broke(BaseException):
    """An exception that a signal handler raises."""


ENDS = {
    "CNIError": refusal(7),
    "timeout": PluginTimeoutError("slow"),
    "bug": KeyError("x"),
    "Ctrl-C": KeyboardInterrupt(),
}


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
@pytest.mark.parametrize("ends", [*ENDS.values(), Broke(), asyncio.CancelledError()], ids=[*ENDS, "signal", "cancel"])
@pytest.mark.parametrize("is_asyncio", [False, True])
def test_a_call_has_its_end_however_it_ends_and_before_the_calls_of_the_rollback(
    tmp_path: Path, ends: Any, on_cancel: Any, is_asyncio: bool
) -> None:
    notes, executor = Notes(), RecordingExecutor({("tuning", "ADD"): ends})
    cni: Any = client(tmp_path, executor, notes)
    if is_asyncio:
        cni = AsyncCNIConfig(["/bin"], tmp_path, executor=executor.on_asyncio, observer=notes, durable=False)
    add = partial(cni.add_network_list, NET, RT, on_cancel=on_cancel)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - all kinds
        asyncio.run(add()) if is_asyncio else add()
    calls = [note for note in notes.seen if note[0] in {"before", "after"}]
    assert [note[0] for note in calls] == ["before", "after"] * (len(calls) // 2)
    assert [before[1:3] for before in calls[::2]] == [after[1:3] for after in calls[1::2]]
    kept = not isinstance(caught.value, CNIError) and on_cancel == "keep"
    assert len(calls) == (4 if kept else 8), "the roll-back calls two plugins"
    assert notes.seen[-1] == ("end", "ADD", type(caught.value).__name__)


def test_a_verb_that_is_refused_before_any_call_has_its_end(tmp_path: Path) -> None:
    notes = Notes()
    with pytest.raises(CNIError):
        client(tmp_path, RecordingExecutor(), notes).add_network_list(NET, RuntimeConf("c 1", None, "eth0"))
    assert notes.seen == [("begin", "ADD", "dbnet", "c 1", "eth0"), ("end", "ADD", "InvalidIdentifierError")]


@pytest.mark.parametrize("verb", ["CHECK", "DEL", "GC", "STATUS", "VERSION"])
def test_every_verb_is_observed(tmp_path: Path, verb: str) -> None:
    executor = RecordingExecutor()
    client(tmp_path, executor, None).add_network_list(NET, RT)
    notes = Notes()
    cni = client(tmp_path, executor, notes)
    run: dict[str, Callable[[], object]] = {
        "CHECK": lambda: cni.check_network_list(NET, RT),
        "DEL": lambda: cni.del_network_list(NET, RT),
        "GC": lambda: cni.gc_network_list(NET, []),
        "STATUS": lambda: cni.status_network_list(NET),
        "VERSION": lambda: cni.validate_network_list(NET),
    }
    run[verb]()
    about = ("c1", "eth0") if verb in {"CHECK", "DEL"} else ("", "")
    assert notes.seen[0] == ("begin", verb, "dbnet", *about)
    assert notes.seen[-1] == ("end", verb, None)


def test_the_errors_of_gc_and_status_are_the_end_of_their_verb(tmp_path: Path) -> None:
    notes = Notes()
    refusals = {("bridge", "GC"): refusal(), ("bridge", "STATUS"): refusal(50)}
    cni = client(tmp_path, RecordingExecutor(refusals), notes)
    with pytest.raises(CNIError):
        cni.gc_network_list(NET, [])
    assert notes.seen[-1] == ("end", "GC", "CNIErrorGroup")
    with pytest.raises(CNIError):
        cni.status_network_list(NET)
    assert notes.seen[-1] == ("end", "STATUS", "PluginError")


def test_the_observers_environment_reaches_every_plugin_over_the_inherited_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", "inherited")
    monkeypatch.setenv("TRACESTATE", "inherited")
    executor = RecordingExecutor({("tuning", "ADD"): refusal()})
    failure_of(client(tmp_path, executor, Notes({"TRACEPARENT": "ours", "TRACESTATE": None})))
    envs = environments(executor)
    assert len(envs) == 4, "ADD, ADD, and the DELs of the roll-back"
    assert [env["TRACEPARENT"] for env in envs] == ["ours"] * 4
    assert not any("TRACESTATE" in env for env in envs)
