"""A plugin's stdin: what is refused, and with which error."""

from __future__ import annotations

import json
from io import BytesIO, StringIO

import pytest

from libcni.plugin import ErrorCode
from libcni.testing import call_plugin
from plugin.plugins import Recorder


@pytest.mark.parametrize(
    ("stdin", "details"),
    [
        (b"", "it is empty"),
        (b"garbage", "Expecting value: line 1 column 1 (char 0)"),
        (b"[]", "it must be an object, not list"),
        (b"{}{}", "Extra data: line 1 column 3 (char 2)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"cniVersion": 1}', "cniVersion must be a string"),
    ],
)
def test_stdin_that_is_no_json_object_cannot_be_decoded(stdin: bytes, details: str) -> None:
    recorder = Recorder()
    assert call_plugin(recorder.plugin, "ADD", stdin).document == {
        "cniVersion": "1.1.0",
        "code": ErrorCode.DECODING_FAILURE,
        "msg": "the network configuration on stdin cannot be read",
        "details": details,
    }
    assert recorder.requests == []


def test_stdin_that_is_nested_too_deeply_cannot_be_decoded() -> None:
    recorder = Recorder()
    document = call_plugin(recorder.plugin, "ADD", b"[" * 99_999).document
    assert document["code"] == ErrorCode.DECODING_FAILURE
    assert "while decoding a JSON array" in document["details"]  # the rest is Python's, which changed with 3.14
    assert recorder.requests == []


class Broken(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError(5, "Input/output error")


CLOSED = BytesIO()
CLOSED.close()


@pytest.mark.parametrize(
    ("env", "code", "msg"),
    [
        (
            {"CNI_CONTAINERID": "c", "CNI_NETNS": "/x", "CNI_IFNAME": "eth0"},
            ErrorCode.IO_FAILURE,
            "error reading from stdin: [Errno 5] Input/output error",
        ),
        (
            {"CNI_IFNAME": "eth0"},
            ErrorCode.INVALID_ENVIRONMENT_VARIABLES,
            "required env variables [CNI_CONTAINERID,CNI_NETNS] missing",
        ),
    ],
)
def test_stdin_that_cannot_be_read_is_an_io_failure_after_those_of_the_environment(
    env: dict[str, str], code: int, msg: str
) -> None:
    stdout = StringIO()
    assert Recorder().plugin.main({"CNI_COMMAND": "ADD", **env}, Broken(), stdout, StringIO()) == 1
    document = json.loads(stdout.getvalue())
    assert (document["code"], document["msg"]) == (code, msg)


@pytest.mark.parametrize("stdin", [Broken(), CLOSED])
def test_version_needs_no_stdin_that_can_be_read(stdin: BytesIO) -> None:
    stdout = StringIO()
    assert Recorder(["1.0.0"]).plugin.main({"CNI_COMMAND": "VERSION"}, stdin, stdout, StringIO()) == 0
    assert json.loads(stdout.getvalue()) == {"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}
