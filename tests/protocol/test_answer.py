"""What a plugin's answer means: an error, a result, the versions that it supports."""

from __future__ import annotations

import json

import pytest

from libcni.errors import InvalidOutputError
from libcni.protocol.answer import plugin_error, read_add_result, read_version_info
from libcni.protocol.invocation import Invocation, Outcome

CALL = Invocation("ADD", "bridge", "/p/bridge", b"{}", {}, network="n", container_id="c1", ifname="eth0")


def test_an_error_without_a_document() -> None:
    assert plugin_error(CALL, Outcome(exit_status=3)).problem == "it failed with exit status 3, and its stdout is empty"
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


@pytest.mark.parametrize("bomb", [b"[1,%b1]" % (b"1," * 20_000), b'{"code":1,"msg":"m","x":[%b1]}' % (b"1," * 20_000)])
def test_an_answer_with_too_many_elements_is_not_decoded(bomb: bytes) -> None:
    assert plugin_error(CALL, Outcome(exit_status=1, stdout=bomb)).code is None
    with pytest.raises(InvalidOutputError, match="it has more than 10,000 elements"):
        read_version_info(CALL, Outcome(stdout=bomb))
    with pytest.raises(InvalidOutputError, match="it has more than 10,000 elements"):
        read_add_result(CALL, Outcome(stdout=bomb), "1.0.0")
