"""The tree of errors, their texts and fields, and that they pickle with all of them."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace

import pytest

from libcni import ErrorCode, errors
from libcni.errors import (
    AttachmentExistsError,
    CNIError,
    CNIErrorGroup,
    ConfigError,
    Hint,
    InterfaceExistsError,
    InvalidIdentifierError,
    InvalidOutputError,
    LockTimeoutError,
    NamespaceMismatchError,
    NetworkNotFoundError,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
    VersionError,
    name_client,
    printable,
    short_repr,
    shorten,
)
from libcni.protocol.invocation import Invocation, Outcome

CALL = Invocation("ADD", "bridge", "/p/bridge", b"{}", {}, "n", "c1", "eth0")
EXAMPLES: list[CNIError] = [
    CNIError("text", hint="do this"),
    ConfigError("it is empty", file="/f", location="line 1", hint="write something"),
    NetworkNotFoundError("none", network="n", known=("a", "b"), file="/d"),
    InvalidIdentifierError("container ID", "a b", "no spaces"),
    VersionError("unknown", version="9.9.9", hint="h"),
    PluginNotFoundError("bridge", ("/a", "/b"), ("/a/bridge is not executable",), hint="chmod"),
    PluginError("broken", CALL, Outcome(1, b"o", b"e", seconds=0.5), code=7, msg="m", details="d", was_run=False),
    PluginTimeoutError("too slow", CALL, Outcome(None, signal=9)),
    InvalidOutputError("no result", CALL),
    AttachmentExistsError("there", container_id="c1", ifname="eth0", network="n"),
    InterfaceExistsError("there", container_id="c1", ifname="eth0", network="n", netns="/run/netns/a"),
    NamespaceMismatchError(
        "two", container_id="c1", ifname="eth0", network="n", netns="/b", recorded_netns="/a", hint="h"
    ),
    NotAttachedError("not there", container_id="c1", ifname="eth0", network="n", state="pending", hint="h"),
    LockTimeoutError("held", what="container c1", path="/l", seconds=2.0),
    RecordError("unreadable", path="/r", errno=5, missing="attachment", hint="h"),
]


def test_there_is_an_example_of_every_class() -> None:
    public = {value for name in errors.__all__ if isinstance(value := getattr(errors, name), type)}
    assert {type(error) for error in EXAMPLES} == public - {CNIErrorGroup, Hint}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_pickle_with_all_fields(error: CNIError) -> None:
    original, error = error, deepcopy(error)  # the examples are those of other tests, too
    error.add_note("seen")
    error.rollback_errors = (CNIError("inner"),)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == original.args
    own = {"rollback_errors": (), "_hint": None}
    assert {**copy.__dict__, **own} == {**error.__dict__, **own}
    assert str(copy.rollback_errors[0]) == "inner"


def test_a_group_pickles_with_its_members() -> None:
    group = CNIErrorGroup("two", EXAMPLES[1:3])
    copy = pickle.loads(pickle.dumps(group))
    assert isinstance(copy, CNIErrorGroup)
    assert str(copy) == str(group) == f"two\n  {EXAMPLES[1]}\n  {EXAMPLES[2]}"
    assert [type(one) for one in copy.exceptions] == [ConfigError, NetworkNotFoundError]


def test_a_group_splits_into_groups_of_its_own_kind() -> None:
    group = CNIErrorGroup("two", [VersionError("v"), RecordError("r")])
    matched, rest = group.split(VersionError)
    assert isinstance(matched, CNIErrorGroup)
    assert isinstance(rest, CNIErrorGroup)
    assert [str(one) for one in rest.exceptions] == ["r"]


def test_texts_say_what_is_known() -> None:
    texts = [str(error) for error in EXAMPLES]
    assert texts[0] == "text (do this)"
    assert texts[1] == "/f: line 1: it is empty (write something)"
    assert texts[3] == "invalid container ID 'a b': no spaces"
    assert texts[5] == 'plugin "bridge" not found in /a, /b (rejected: /a/bridge is not executable) (chmod)'
    assert texts[6].startswith('plugin "bridge" failed (ADD; network n, container c1, interface eth0): broken')
    assert "stderr: 'e'" in texts[6]
    assert str(ConfigError("it is empty")) == "it is empty"
    assert (
        str(PluginNotFoundError("x"))
        == 'plugin "x": no plugin directories given (CNI_PATH is empty) (pass a plugin directory with path)'
    )
    assert str(PluginError("p", Invocation("VERSION", "x", "", b"", {}))) == 'plugin "x" failed (VERSION): p'


def test_a_plugin_error_has_the_fields_of_its_call_and_of_its_end() -> None:
    error = PluginError("p", CALL, Outcome(None, b"x" * 70_000, b"\xff", signal=9, seconds=2.0), msg="m" * 70_000)
    assert (error.plugin, error.path, error.verb) == ("bridge", "/p/bridge", "ADD")
    assert (error.network, error.container_id, error.ifname) == ("n", "c1", "eth0")
    assert (error.exit_status, error.signal, error.seconds, error.stderr) == (None, 9, 2.0, "\\xff")
    assert error.stdout == "x" * 65_536 + "… (4464 more bytes)"
    assert len(error.msg) < 66_000
    assert len(pickle.dumps(error)) < 200_000


def test_a_plugin_error_shows_the_end_of_stderr() -> None:
    text = str(PluginError("p", None, Outcome(1, stderr=b"start" + b"x" * 10_000 + b"the end")))
    assert "the end" in text
    assert "start" not in text
    assert len(text) < 700


@pytest.mark.parametrize(
    ("code", "known", "retryable"),
    [
        (None, None, False),
        (3, ErrorCode.UNKNOWN_CONTAINER, False),
        (-3, ErrorCode.UNKNOWN_CONTAINER, False),
        (11, ErrorCode.TRY_AGAIN_LATER, True),
        (7, ErrorCode.INVALID_NETWORK_CONFIG, False),
        (999, ErrorCode.INTERNAL, False),
        (100, None, False),
    ],
)
def test_codes(code: int | None, known: ErrorCode | None, retryable: bool) -> None:
    error = PluginError("p", code=code)
    assert (error.well_known, error.retryable) == (known, retryable)
    assert error.code == code


@pytest.mark.parametrize(
    ("text", "end", "shown"),
    [
        ("abc", False, "abc"),
        ("abcdef", False, "abc… (3 more characters)"),
        ("abcdef", True, "… (3 more characters) def"),
    ],
)
def test_shorten(text: str, end: bool, shown: str) -> None:
    assert shorten(text, 3, end=end) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ünïcode 網路", "plain ünïcode 網路"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\ud800b", "a\\ud800b"),
        ("a\rb\x00\x9b", "a\\rb\\x00\\x9b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("two\n\tlines", "two\n\tlines"),
    ],
)
def test_foreign_text_is_made_printable(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@pytest.mark.parametrize("raw", ["\x1b[2J", "\ud800", "\r", "\u202e"])
def test_no_error_text_contains_a_raw_escape(raw: str) -> None:
    call = replace(CALL, plugin=raw, network=raw)
    found: list[CNIError] = [
        CNIError(raw, hint=raw),
        ConfigError(raw, file=raw, location=raw),
        PluginError(raw, call, Outcome(1, b"", raw.encode(errors="surrogatepass")), msg=raw),
        PluginNotFoundError(raw, (raw,), (raw,)),
        AttachmentExistsError(raw),
        CNIErrorGroup(raw, [CNIError(raw)]),
    ]
    for error in found:
        assert raw not in str(error)
        str(error).encode()
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert found[2].__dict__["msg"] == raw


def test_a_value_without_a_repr_is_shown_by_its_type() -> None:
    assert short_repr("a" * 100, 5) == "'aaaa… (97 more characters)"
    assert short_repr(10**5000) == "<int too large to show>"
    assert "<int too large to show>" in str(InvalidIdentifierError("container ID", 10**5000, "it must be a string"))


def test_the_text_is_apart_from_the_hint() -> None:
    error = VersionError("unknown", hint="do this")
    assert (error.text, str(error.hint), str(error)) == ("unknown", "do this", "unknown (do this)")
    error.hint = Hint("do that", "doctor")
    assert str(error) == "unknown (do that: libcni doctor)"
    error.suggest(Hint("see it", "attachments"))
    assert str(error) == "unknown (see it: libcni attachments)"
    error.hint = Hint("correct the file")
    error.suggest(Hint("see it", "attachments"))
    assert str(error) == "unknown (correct the file)", "a hint without a command names the cause"
    group = CNIErrorGroup("two\x1b", [error])
    assert group.text == "two\\x1b"


DEL = Hint("{argument}, or detach it", "del", container_id="c1", ifname="eth0", network="n", argument="use_given")


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (DEL, "use_given=True, or detach it: libcni del c1 -i eth0 -n n"),
        (Hint("use {argument}", argument="on_existing", value="replace"), 'use on_existing="replace"'),
        (Hint("a higher {argument}", argument="timeout", value=None), "a higher timeout"),
        (Hint('write {"type": "x"}'), 'write {"type": "x"}'),
        (Hint("see it", "doctor", options=("--check",)), "see it: libcni doctor --check"),
    ],
)
def test_a_hint_in_the_words_of_a_program(hint: Hint, text: str) -> None:
    assert str(hint) == text


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("del", "--conf-dir /n --path /p --cache-dir '/c d'"),
        ("attachments", "--cache-dir '/c d'"),
        ("networks", "--conf-dir /n --path /p"),
        ("repair", "--conf-dir /n --path /p --cache-dir '/c d' --owner podman"),
    ],
)
def test_the_command_of_a_hint_acts_on_the_records_of_the_client(command: str, options: str) -> None:
    error = CNIError("x", hint=Hint("do it", command))
    assert str(error) == f"x (do it: libcni {command})"
    error.client = {"conf_dir": "/n", "path": "/p", "cache_dir": "/c d", "owner": "podman"}
    assert str(error) == f"x (do it: libcni {command} {options})"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_errors_of_a_client_name_it() -> None:
    inner, rolled_back, of_another = CNIError("a"), CNIError("b"), CNIError("c")
    of_another.client = {"cache_dir": "/other"}
    inner.rollback_errors = (rolled_back,)
    group = CNIErrorGroup("x", [inner, of_another])
    client = {"cache_dir": "/c"}
    name_client(group, client)
    assert group.client is inner.client is rolled_back.client is client
    assert of_another.client == {"cache_dir": "/other"}


def test_a_text_of_any_length_is_bounded() -> None:
    error = VersionError("x" * 1_000_000, hint="do this")
    assert len(str(error)) < 66_000
    assert str(error).endswith("… (934464 more characters) (do this)")


def test_each_error_says_whether_the_same_call_may_succeed_later() -> None:
    busy, again, wrong = LockTimeoutError("held"), PluginError("p", code=11), CNIError("wrong")
    assert [error.retryable for error in (busy, again, wrong)] == [True, True, False]
    assert all(not kind("x").retryable for kind in (ConfigError, RecordError, NotAttachedError, PluginTimeoutError))
    assert not PluginTimeoutError("holding the xtables lock", code=11).retryable
    assert CNIErrorGroup("all", [busy, CNIErrorGroup("inner", [again])]).retryable
    assert not CNIErrorGroup("some", [busy, wrong]).retryable
