"""Whatever a runtime sends: one document or none, and an exit status that says which."""

from __future__ import annotations

import json
from io import BytesIO, StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import PluginResult, VerbError
from plugin.plugins import VERBS, Recorder

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENV = st.fixed_dictionaries(
    {"CNI_COMMAND": st.sampled_from([*VERBS, "VERSION", "NOPE"])},
    optional={
        "CNI_CONTAINERID": st.text(max_size=5) | st.just("c1"),
        "CNI_NETNS": st.text(max_size=5) | st.just("/x"),
        "CNI_IFNAME": st.text(max_size=5) | st.just("eth0"),
        "CNI_PATH": st.just("/nowhere"),
        "CNI_ARGS": st.text(max_size=5),
    },
)
CONFIG = st.fixed_dictionaries(
    {"cniVersion": st.sampled_from(ALL_VERSIONS) | JSON, "name": st.just("net") | JSON},
    optional={"prevResult": JSON, "runtimeConfig": JSON, "cni.dev/valid-attachments": JSON},
)
STDIN = st.binary(max_size=20) | CONFIG.map(lambda document: json.dumps(document).encode())


def curious(request: Any) -> None:
    """Look at everything that a request has."""
    for name in ("result", "prev_result", "args"):
        getattr(request, name)
    for name in ("port_mappings", "bandwidth", "dns", "ip_ranges", "ips", "mac", "aliases", "device_id"):
        getattr(request.runtime_config, name)
    if request.verb == "GC":
        _ = request.valid_attachments


@given(ENV, STDIN)
def test_every_call_gets_one_answer(env: dict[str, str], stdin: bytes) -> None:
    recorder = Recorder(add=curious, delete=curious, check=curious, gc=curious, status=curious)
    stdout, stderr = StringIO(), StringIO()
    status = recorder.plugin.main(env, BytesIO(stdin), stdout, stderr)
    text = stdout.getvalue()
    if status == 0 and env["CNI_COMMAND"] not in {"ADD", "VERSION"}:
        assert text == ""
        return
    document = json.loads(text)
    assert isinstance(document, dict)
    assert isinstance(document["cniVersion"], str)
    if status:
        assert status == 1
        assert isinstance(document["code"], int)
        assert document["code"] != 999, stderr.getvalue()  # everything wrong with the input is foreseen
        assert document["msg"]


RESULT = st.dictionaries(st.sampled_from(["ips", "interfaces", "routes", "dns", "ip4", "ip6", "x"]), JSON)


@given(RESULT, st.sampled_from(ALL_VERSIONS))
def test_any_document_is_a_result_or_refused(document: dict[str, Any], version: str) -> None:
    try:
        result = PluginResult.from_document(document, version)
    except VerbError:
        return
    printed = json.loads(json.dumps(result.to_document()))
    again = PluginResult.from_document(printed, version).to_document()
    assert json.loads(json.dumps(again)) == printed
