"""From the environment and stdin to a plugin's function, and from there to one document on stdout."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import ErrorCode, Plugin, PluginResult, Request, VerbError
from libcni.testing import call_plugin
from plugin.plugins import VERBS, Recorder, config, nothing

FIRST_WITH = {"ADD": "0.1.0", "DEL": "0.1.0", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_reaches_its_function(verb: str) -> None:
    called: list[str] = []
    plugin = Plugin("p")
    for register, own in zip((plugin.add, plugin.delete, plugin.check, plugin.gc, plugin.status), VERBS, strict=True):
        register(lambda request, own=own: called.append(own))
    assert call_plugin(plugin, verb, config(), path="/opt/cni/bin").status == 0
    assert called == [verb]


def test_a_second_function_for_a_verb_is_refused() -> None:
    plugin = Plugin("copied")
    assert plugin.add(nothing) is nothing
    with pytest.raises(ValueError, match="plugin copied has a function for ADD already"):
        plugin.add(nothing)
    plugin.check(nothing)


@pytest.mark.parametrize("verb", ["CHECK", "GC", "STATUS"])
def test_an_optional_verb_without_a_function_succeeds(verb: str) -> None:
    plugin = Plugin("p")
    plugin.add(nothing)
    plugin.delete(nothing)
    answer = call_plugin(plugin, verb, config(), path="/opt/cni/bin")
    assert (answer.status, answer.stdout) == (0, "")


@pytest.mark.parametrize("missing", ["ADD", "DEL"])
def test_add_and_del_need_a_function_and_any_call_says_so(missing: str) -> None:
    plugin = Plugin("p")
    (plugin.delete if missing == "ADD" else plugin.add)(nothing)
    answer = call_plugin(plugin, "VERSION", b'{"cniVersion": "1.1.0"}')
    assert answer.status == 1
    assert answer.document["msg"] == f"plugin p has no function for {missing}"


def test_no_command_prints_the_about_text_on_stderr() -> None:
    for command in (None, ""):
        answer = call_plugin(Plugin("p", about="does p", versions=["0.4.0", "1.0.0"]), "", env={"CNI_COMMAND": command})
        assert answer.status == 0
        assert answer.stdout == ""
        assert answer.stderr == "does p\nCNI protocol versions supported: 0.4.0, 1.0.0\n"


def test_no_versions_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="at least one version"):
        Plugin("p", versions=[])


@pytest.mark.parametrize("asked", ["0.1.0", "1.0.0", "9.9.9"])
def test_version_says_the_version_it_was_asked_in(asked: str) -> None:
    answer = call_plugin(Recorder(["0.4.0", "1.0.0"]).plugin, "VERSION", {"cniVersion": asked})
    assert answer.document == {"cniVersion": asked, "supportedVersions": ["0.4.0", "1.0.0"]}


@pytest.mark.parametrize("stdin", [b"", b"  \n", b"{}", b'{"cniVersion": ""}'])
def test_version_needs_no_stdin(stdin: bytes) -> None:
    answer = call_plugin(Recorder(["0.4.0", "1.0.0"]).plugin, "VERSION", stdin)
    assert answer.document == {"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}


def test_version_refuses_garbage() -> None:
    assert call_plugin(Recorder().plugin, "VERSION", b"garbage").code == ErrorCode.DECODING_FAILURE


@pytest.mark.parametrize(("verb", "version"), [(v, x) for v in VERBS for x in ALL_VERSIONS])
def test_a_verb_is_refused_in_versions_that_do_not_have_it(verb: str, version: str) -> None:
    answer = call_plugin(Recorder().plugin, verb, config(version), path="/opt/cni/bin")
    if ALL_VERSIONS.index(version) >= ALL_VERSIONS.index(FIRST_WITH[verb]):
        assert answer.status == 0
    else:
        assert answer.document == {
            "cniVersion": version, "code": 1, "msg": f"config version does not allow {verb}",
            "details": f'{verb} exists since version {FIRST_WITH[verb]}; the configuration has "{version}", '
            f"the plugin supports {', '.join(ALL_VERSIONS)}",
        }  # fmt: skip


@pytest.mark.parametrize(("verb", "newest"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")])
def test_a_plugin_too_old_for_a_verb_says_so(verb: str, newest: str) -> None:
    answer = call_plugin(Recorder([newest]).plugin, verb, config("1.1.0"), path="/opt/cni/bin")
    assert answer.code == ErrorCode.INCOMPATIBLE_CNI_VERSION
    assert answer.document["msg"] == f"plugin version does not allow {verb}"
    assert f"the plugin supports {newest}" in answer.document["details"]


@pytest.mark.parametrize("verb", ["ADD", "DEL"])
@pytest.mark.parametrize("version", ["9.0.0", "0.3.1", "1.0", "bogus"])
def test_a_version_that_the_plugin_does_not_have_is_incompatible(verb: str, version: str) -> None:
    answer = call_plugin(Recorder(["0.4.0", "1.0.0"]).plugin, verb, config(version))
    assert answer.document == {
        "cniVersion": version,
        "code": 1,
        "msg": "incompatible CNI versions",
        "details": f'config is "{version}", plugin supports ["0.4.0" "1.0.0"]',
    }


@pytest.mark.parametrize("verb", ["CHECK", "GC", "STATUS"])
def test_a_version_that_is_none_cannot_be_decoded(verb: str) -> None:
    answer = call_plugin(Recorder().plugin, verb, config("bogus"), path="/opt/cni/bin")
    assert answer.code == ErrorCode.DECODING_FAILURE


@pytest.mark.parametrize("version", [None, ""])
def test_no_version_means_0_1_0(version: str | None) -> None:
    recorder = Recorder()
    answer = call_plugin(recorder.plugin, "ADD", config(version))
    assert answer.document["cniVersion"] == "0.1.0"
    assert recorder.requests[0].version == "0.1.0"
    assert call_plugin(Recorder(["1.0.0"]).plugin, "ADD", config(version)).document["cniVersion"] == "0.1.0"


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_function_raises_on_purpose_is_the_answer(verb: str) -> None:
    def fail(request: Request) -> None:
        raise VerbError("no free address", code=ErrorCode.TRY_AGAIN_LATER, details="10.1.0.0/16 is full")

    recorder = Recorder(add=fail, delete=fail, check=fail, gc=fail, status=fail)
    answer = call_plugin(recorder.plugin, verb, config(), path="/opt/cni/bin")
    error = {"code": 11, "msg": "no free address", "details": "10.1.0.0/16 is full"}
    assert answer.document == {"cniVersion": "1.1.0", **error}
    assert (answer.status, answer.stderr) == (1, "")


@pytest.mark.parametrize(
    ("error", "msg"),
    [
        (ZeroDivisionError("division by zero"), "division by zero"),
        (KeyError(), "KeyError"),
        (KeyError("ipam"), 'missing key "ipam"'),
        (SystemExit(0), "0"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_anything_else_that_is_raised_has_code_999_and_its_traceback_on_stderr(error: BaseException, msg: str) -> None:
    def fail(request: Request) -> None:
        raise error

    answer = call_plugin(Recorder(add=fail).plugin, "ADD", config("0.4.0"))
    assert answer.status == 1
    assert answer.document == {"cniVersion": "0.4.0", "code": 999, "msg": msg}
    assert "Traceback" in answer.stderr
    assert type(error).__name__ in answer.stderr


@pytest.mark.parametrize("value", [{1, 2}, float("inf"), float("nan")])
def test_a_result_that_is_no_json_is_an_error_and_not_half_a_document(value: object) -> None:
    assert call_plugin(Recorder(add=lambda request: {"vendor": value}).plugin, "ADD", config()).code == 999


def test_a_function_may_return_a_document_or_a_result_or_fill_the_requests() -> None:
    def result(request: Request) -> PluginResult:
        made = PluginResult()
        made.add_ip("10.0.0.2/24")
        return made

    document = {"ips": [{"address": "10.0.0.2/24"}]}
    for add in (result, lambda request: document, lambda request: request.result.add_ip("10.0.0.2/24")):
        answer = call_plugin(Recorder(add=add).plugin, "ADD", config("0.3.1"))
        assert answer.document == {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.0.0.2/24"}]}


def test_an_error_document_that_add_returns_is_an_error() -> None:
    error = {"code": 11, "msg": "full", "details": "all"}
    answer = call_plugin(Recorder(add=lambda request: error).plugin, "ADD", config())
    assert (answer.status, answer.code) == (1, 6)
    assert answer.document["msg"] == "an error document is no result: full"


def test_what_other_verbs_return_is_not_printed() -> None:
    answer = call_plugin(Recorder(delete=lambda request: {"ips": []}).plugin, "DEL", config())
    assert (answer.status, answer.stdout) == (0, "")


def test_calls_in_several_threads_keep_their_prints_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon of a thick plugin answers several calls at once."""
    before, say = (sys.stdout, sys.stderr), print
    together, first_ended = threading.Barrier(3), threading.Event()

    def add(request: Request) -> None:
        say(f"begin {request.container_id}")
        together.wait(30)
        if request.container_id == "c0":
            return
        first_ended.wait(30)
        say(f"end {request.container_id}", file=sys.stderr)
        call_plugin(Recorder(add=lambda inner: say("inner")).plugin, "ADD", config())
        say("after an inner call")

    plugin = Recorder(add=add).plugin
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(call_plugin, plugin, "ADD", config(), container_id=f"c{n}") for n in range(2)]
        together.wait(30)
        assert answers[0].result().stderr == "begin c0\n"
        say("from the daemon")
        first_ended.set()
        assert answers[1].result().stderr == "begin c1\nend c1\nafter an inner call\n"
    assert all(json.loads(answer.result().stdout) == {"cniVersion": "1.1.0"} for answer in answers)
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == ("from the daemon\n", "")
