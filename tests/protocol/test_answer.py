"""What a plugin's answer means: an error, a result, the versions that it supports."""

from __future__ import annotations

import json

import pytest

from libcni.errors import InvalidOutputError, PluginError
from libcni.protocol.answer import PluginInfo, plugin_error, read_add_result, read_version_info
from libcni.protocol.invocation import Invocation, Outcome

CALL = Invocation("ADD", "bridge", "/p/bridge", b"{}", {}, network="n", container_id="c1", ifname="eth0")


@pytest.mark.parametrize(
    ("document", "fields", "problem"),
    [
        ({"code": 7, "msg": "m", "details": "d"}, (7, "m", "d"), "m; d (code 7)"),
        ({"code": -11, "msg": "later"}, (-11, "later", ""), "later (code -11)"),
        ({"msg": None, "code": None}, (0, "", ""), "no message (code 0)"),
        ({"code": True, "msg": "m"}, (None, "", ""), "exit status 1, and its stdout is not an error document: "),
        ({"code": "7", "msg": "m"}, (None, "", ""), "exit status 1, and its stdout is not an error document: "),
        ({"code": 7, "msg": ["m"]}, (None, "", ""), "exit status 1, and its stdout is not an error document: "),
        (["code"], (None, "", ""), "exit status 1, and its stdout is not an error document: "),
    ],
)
def test_an_error_document(document: object, fields: tuple[int | None, str, str], problem: str) -> None:
    error = plugin_error(CALL, Outcome(exit_status=1, stdout=json.dumps(document).encode()))
    assert (error.code, error.msg, error.details) == fields
    assert error.problem.startswith(problem)
    assert (error.plugin, error.container_id, error.exit_status) == ("bridge", "c1", 1)


def test_an_error_without_a_document() -> None:
    assert plugin_error(CALL, Outcome(exit_status=3)).problem == "exit status 3, and its stdout is empty"
    ended = plugin_error(CALL, Outcome(exit_status=None, signal=9, stdout=b'{"code": 7, "msg": "m"}'))
    assert ended.problem.startswith("it was ended by signal 9 (SIGKILL), and had printed ")
    assert ended.code is None
    assert plugin_error(CALL, Outcome(exit_status=None, signal=250)).problem == "it was ended by signal 250"


def test_a_huge_message_is_shortened_in_the_text_and_kept_up_to_64_kib() -> None:
    document = {"code": 7, "msg": "m" * 15_000_000, "details": "d" * 15_000_000}
    error = plugin_error(CALL, Outcome(exit_status=1, stdout=json.dumps(document).encode()))
    assert len(str(error)) < 5000
    assert error.msg == "m" * 65536 + "… (14934464 more characters)"
    assert error.details.startswith("d" * 65536)
    assert error.stdout.startswith('{"code": 7')
    assert len(error.stdout) < 66_000


def test_the_text_of_a_plugins_error_is_printable() -> None:
    document = {"code": 7, "msg": "\x1b[31mred \ud800", "details": "\r"}
    error = plugin_error(CALL, Outcome(exit_status=1, stdout=json.dumps(document).encode()))
    assert "\\x1b[31mred \\ud800; \\r (code 7)" in str(error)
    assert error.msg == "\x1b[31mred \ud800"


def test_a_result_is_converted_to_the_configurations_version() -> None:
    printed = Outcome(stdout=b'{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/16"}]}')
    result = read_add_result(CALL, printed, "0.4.0", strict=False)
    assert (result.cni_version, result.ips[0].version) == ("0.4.0", "4")
    with pytest.raises(InvalidOutputError, match=r"it answered in version 1\.0\.0"):
        read_add_result(CALL, printed, "0.4.0", strict=True)


def test_an_error_document_with_exit_status_0_is_no_result() -> None:
    with pytest.raises(InvalidOutputError, match=r"it printed an error document and exit status 0: no \(code 7\)"):
        read_add_result(CALL, Outcome(stdout=b'{"code": 7, "msg": "no"}'), "1.0.0", strict=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}', PluginInfo("1.0.0", ("0.4.0", "1.0.0"))),
        ('{"cniVersion": "0.2.0"}', PluginInfo("0.2.0", ("0.1.0", "0.2.0"))),
        ("", "its version document is not JSON: it is empty"),
        ("[]", 'its version document has no "cniVersion"'),
        ('{"cniVersion": ""}', 'its version document has no "cniVersion"'),
        ('{"cniVersion": "1.0.0"}', 'its version document has no list of strings "supportedVersions"'),
        ('{"cniVersion": "1.0.0", "supportedVersions": [1]}', 'has no list of strings "supportedVersions"'),
    ],
)
def test_a_version_document(text: str, expected: PluginInfo | str) -> None:
    answer = Outcome(stdout=text.encode())
    if isinstance(expected, PluginInfo):
        assert read_version_info(CALL, answer) == expected
    else:
        with pytest.raises(InvalidOutputError) as caught:
            read_version_info(CALL, answer)
        assert expected in caught.value.problem
        assert isinstance(caught.value, PluginError)


@pytest.mark.parametrize("bomb", [b"[1,%b1]" % (b"1," * 20_000), b'{"code":1,"msg":"m","x":[%b1]}' % (b"1," * 20_000)])
def test_an_answer_with_too_many_elements_is_not_decoded(bomb: bytes) -> None:
    assert plugin_error(CALL, Outcome(exit_status=1, stdout=bomb)).code is None
    with pytest.raises(InvalidOutputError, match="it has more than 10,000 elements"):
        read_version_info(CALL, Outcome(stdout=bomb))
    with pytest.raises(InvalidOutputError, match="it has more than 10,000 elements"):
        read_add_result(CALL, Outcome(stdout=bomb), "1.0.0", strict=False)
