"""The container's state on stdin: what is read, and what is refused with a reason."""

from __future__ import annotations

import json

import pytest

from libcni.engines.oci.container_state import read_state
from libcni.errors import CNIError

STATE = {
    "ociVersion": "1.0.2",
    "id": "web",
    "status": "creating",
    "pid": 4711,
    "bundle": "/containers/web",
    "annotations": {"libcni.networks": "front"},
}


def test_all_that_the_hook_needs_is_read() -> None:
    state = read_state(json.dumps(STATE).encode())
    assert (state.container_id, state.status, state.pid, state.bundle) == ("web", "creating", 4711, "/containers/web")
    assert state.annotations == {"libcni.networks": "front"}


def test_a_stopped_container_has_no_pid_and_may_have_no_annotations() -> None:
    state = read_state(b'{"id": "web", "status": "stopped", "annotations": null}')
    assert (state.pid, state.bundle, dict(state.annotations)) == (0, "", {})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an OCI runtime runs this command as a hook"),
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[]", "[] is not a JSON object"),
        (b'{"status": "creating"}', "id: it is missing"),
        (b'{"id": "web"}', "status: it is missing"),
        (b'{"id": 5, "status": "creating"}', "id: 5 is not a string"),
        (b'{"id": "../x", "status": "creating"}', "invalid container ID"),
        (b'{"id": "web", "status": "creating", "pid": "1"}', "pid: '1' is not an integer"),
        (b'{"id": "web", "status": "creating", "pid": true}', "pid: True is not an integer"),
        (b'{"id": "web", "status": "creating", "pid": -1}', "pid: the number -1 is not between 0 and 2,147,483,647"),
        (b'{"id": "web", "status": "creating", "annotations": []}', "annotations: [] is not an object"),
        (b'{"id": "web", "status": "creating", "annotations": {"a": 1}}', "annotations['a']: 1 is not a"),
    ],
)
def test_nonsense_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(CNIError) as caught:
        read_state(data)
    assert said in str(caught.value)
