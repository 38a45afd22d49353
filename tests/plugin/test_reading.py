"""A plugin's stdin: what is refused, and with which error."""

from __future__ import annotations

import json
from io import BytesIO, StringIO

import pytest

from libcni.plugin import ErrorCode
from libcni.testing import call_plugin
from plugin.plugins import VERBS, Recorder, config


@pytest.mark.parametrize(
    "stdin", [b"", b"garbage", b"[]", b"null", b'"x"', b"{}{}", b"\xff", b'{"a": NaN}', b"[" * 99_999]
)
def test_stdin_that_is_no_json_object_cannot_be_decoded(stdin: bytes) -> None:
    recorder = Recorder()
    answer = call_plugin(recorder.plugin, "ADD", stdin)
    assert answer.code == ErrorCode.DECODING_FAILURE
    assert answer.document["cniVersion"] == "1.1.0"
    assert recorder.requests == []


def test_a_version_of_another_type_cannot_be_decoded() -> None:
    answer = call_plugin(Recorder().plugin, "ADD", json.dumps({"cniVersion": 1, "name": "net"}).encode())
    assert answer.code == ErrorCode.DECODING_FAILURE


@pytest.mark.parametrize(
    ("stdin", "details"),
    [
        (b"[]", "it must be an object, not list"),
        (b'{"cniVersion": 1}', "cniVersion must be a string"),
        (b'{"a": NaN}', "NaN is not JSON"),
    ],
)
def test_what_is_wrong_with_stdin_is_said(stdin: bytes, details: str) -> None:
    document = call_plugin(Recorder().plugin, "ADD", stdin).document
    assert document["msg"] == "the network configuration on stdin cannot be read"
    assert document["details"] == details


def test_a_network_without_a_name_is_told_so() -> None:
    assert call_plugin(Recorder().plugin, "ADD", {"cniVersion": "1.0.0"}).document == {
        "cniVersion": "1.0.0",
        "code": 7,
        "msg": "missing network name",
    }


@pytest.mark.parametrize("name", [None, "", "../x", "-x", ["x"], 7])
@pytest.mark.parametrize("verb", VERBS)
def test_a_network_needs_a_valid_name(verb: str, name: object) -> None:
    answer = call_plugin(Recorder().plugin, verb, {**config(), "name": name}, path="/opt/cni/bin")
    assert answer.code == ErrorCode.INVALID_NETWORK_CONFIG


def test_stdin_that_cannot_be_read_is_an_io_failure() -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    stdout = StringIO()
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "/x", "CNI_IFNAME": "eth0"}
    assert Recorder().plugin.main(env, Broken(), stdout, StringIO()) == 1
    document = json.loads(stdout.getvalue())
    assert document["code"] == ErrorCode.IO_FAILURE
    assert document["msg"] == "error reading from stdin: [Errno 5] Input/output error"
