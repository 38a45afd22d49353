"""How large a document may be: bytes, elements, nesting, digits; and that a bomb costs little time and memory."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import libcni
from libcni.config import jsontext
from libcni.config.directory import read_config_directory
from libcni.config.jsontext import MAX_ELEMENTS, check_size
from libcni.config.network import MAX_CONFIG_ELEMENTS, NetworkConfigList, parse_plugin, parse_recorded
from libcni.kernel import system
from libcni.protocol.result import MAX_RESULT_BYTES, read_result
from libcni.store import record_format
from libcni.testing import RecordingExecutor

SIZE = 16 << 20
NET = '{{"name":"n","cniVersion":"1.0.0","plugins":[{{"type":"a","x":{}}}]}}'


def filled(start: str, repeated: str, end: str, size: int = MAX_RESULT_BYTES) -> str:
    return start + repeated * ((size - len(start) - len(end)) // len(repeated)) + end


BOMBS = {  # filled in the test: together they have 128 MB, in each worker
    "numbers": ('{"dns":{"nameservers":[', "1,", "1]}}"),
    "objects": ('{"interfaces":[', "{},", "{}]}"),
    "lists": ('{"x":[', "[],", "[]]}"),
    "strings": ('{"x":[', '"a",', '""]}'),
    "brackets in strings": ('{"x":[', '"[",', '""]}'),
    "members": ("{", '"":0,', '"":0}'),
    "unclosed lists": ('{"x":', "[", ""),
    "strings without commas": ('{"x":["' + "," * MAX_CONFIG_ELEMENTS + '"', '"["', "]}"),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("kind", ["result", "configuration"])
def test_a_bomb_is_refused_in_little_memory(kind: str, bomb: tuple[str, str, str]) -> None:
    data = filled(*bomb, MAX_RESULT_BYTES if kind == "result" else SIZE // 4).encode()
    tracemalloc.start()
    try:
        with pytest.raises(
            ValueError, match=r"it has more than 10\d?,000 elements in its lists and objects|Expecting|too deeply"
        ):
            _read(kind, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(data)


def _read(kind: str, data: bytes) -> object:
    if kind == "result":
        return read_result(data, "1.0.0")
    return libcni.NetworkConfigList.from_bytes(data)


def test_the_count_ends_where_the_text_is_no_json() -> None:
    """Otherwise megabytes of closing brackets would take seconds."""
    for text in ("]" * 9 + "[" * 9, '"' + "[" * 9, '{}}"x"' + "[" * 9):
        assert check_size(text, 3) == text


def test_as_many_elements_as_are_allowed() -> None:
    fits = '{"cniVersion":"1.0.0","x":[' + "1," * (MAX_ELEMENTS - 3) + "1]}"
    assert read_result(fits, "1.0.0").text == fits
    with pytest.raises(ValueError, match="it has more than 10,000 elements"):
        read_result(fits.replace("1]", "1,1]"), "1.0.0")


def test_a_record_with_more_elements_can_still_be_read() -> None:
    many = "[" + "1," * MAX_CONFIG_ELEMENTS + "1]"
    assert parse_recorded(NET.format(many)).plugins[0].type == "a"
    assert parse_plugin(f'{{"type":"a","x":{many}}}').type == "a"
    result = read_result(f'{{"cniVersion":"1.0.0","x":{many}}}', "1.0.0", lenient=True)
    assert result.as_version("1.1.0").cni_version == "1.1.0"
    with pytest.raises(libcni.ConfigError, match="it has more than 100,000 elements"):
        NetworkConfigList.from_bytes(NET.format(many))


def test_the_first_problem_ends_the_check() -> None:
    interfaces = [{"name": index} for index in range(3000)]
    with pytest.raises(libcni.InvalidOutputError) as caught:
        libcni.Result.from_bytes(json.dumps({"cniVersion": "1.0.0", "interfaces": interfaces}))
    assert caught.value.problem.startswith("interfaces[0].name: it must be a string, not 0, in ")


DIGITS = "9" * 5000


def test_5000_digits_are_refused() -> None:
    with pytest.raises(libcni.ConfigError, match="it has an integer with too many digits"):
        libcni.NetworkConfigList.from_bytes(NET.format(DIGITS))
    with pytest.raises(libcni.InvalidOutputError, match="it has an integer with too many digits"):
        libcni.Result.from_bytes(f'{{"cniVersion":"1.0.0","x":{DIGITS}}}')


def test_a_file_that_cannot_be_used_never_hides_a_good_network(tmp_path: Path) -> None:
    (tmp_path / "z.conflist").write_text(NET.format(1))
    (tmp_path / "a-kmsg.conflist").symlink_to("/proc/kmsg")
    (tmp_path / "b-zero.conflist").symlink_to("/dev/zero")
    (tmp_path / "c-directory.conf").symlink_to("/etc")
    os.mkfifo(tmp_path / "d-fifo.conf")
    with (tmp_path / "e-sparse.conflist").open("wb") as sparse:
        sparse.truncate(SIZE + 1)
    (tmp_path / "f-dangling.json").symlink_to("/does/not/exist")
    (tmp_path / "g-loop.json").symlink_to("g-loop.json")
    (tmp_path / "h-digits.conflist").write_text(f'{{"name":{DIGITS}}}')
    (tmp_path / "i-empty.conf").symlink_to("/proc/sys/kernel/core_pattern")
    found = read_config_directory(tmp_path)
    assert [net.name for net in found.networks] == ["n"]
    names = [os.path.basename(problem.file or "") for problem in found.problems]
    assert [name[0] for name in sorted(names)] == list("abcdefghi")
    for problem in found.problems:
        if os.path.basename(problem.file or "")[0] in "bcd":
            assert problem.problem == "cannot be read: it is not a regular file"
    (dangling,) = (problem for problem in found.problems if "f-dangling" in (problem.file or ""))
    assert dangling.problem == "cannot be read: it is a symbolic link to /does/not/exist, which does not exist"
    sparse_problem = next(one for one in found.problems if "e-sparse" in (one.file or ""))
    assert sparse_problem.problem == "cannot be read: it has 16,777,217 bytes, and at most 16,777,216 are accepted"


def test_a_file_that_grows_while_it_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.conflist").write_text(" ")
    parts: list[int] = []

    def endless(_descriptor: int, size: int) -> bytes:
        parts.append(size)
        return b" " * size

    monkeypatch.setattr(system, "read", endless)
    with pytest.raises(libcni.ConfigError, match="it has more than 16,777,216 bytes"):
        libcni.NetworkConfigList.from_file(tmp_path / "a.conflist")
    assert sum(parts) < 2 * SIZE


GO_ACCEPTED = [
    ('{"type":"a","args":["x"]}', "a"),
    ('{"Type":"a"}', "a"),
    ('{"TYPE":"b","type":"a"}', "a"),
    ('{"type":"a","capabilities":{"mac":null}}', "a"),
    ('{"type":"a","args":5,"ipam":{"type":"host-local"}}', "a"),
    ('{"type":"a","ipam":null,"dns":{"domain":null}}', "a"),
]


@pytest.mark.parametrize(("text", "plugin"), GO_ACCEPTED)
def test_what_go_attached_can_be_detached(text: str, plugin: str) -> None:
    data = NET.format(0).replace('{"type":"a","x":0}', text)
    (found,) = parse_recorded(data).plugins
    assert (found.type, found.text) == (plugin, text)
    assert parse_plugin(text) == found


def test_go_finds_keys_in_any_case() -> None:
    found = parse_plugin('{"Type":"a","Capabilities":{"mac":true},"IPAM":{"type":"host-local"},"NAME":"n"}')
    assert (found.type, found.capabilities, found.ipam_type, found.name) == ("a", ("mac",), "host-local", "n")
    single = parse_recorded('{"Type":"a","Name":"n","cniVersion":"1.0.0"}')
    assert (single.name, single.plugins[0].type) == ("n", "a")


def test_go_replaces_bytes_that_are_not_utf_8() -> None:
    data = NET.format('"@"').encode().replace(b"@", b"\xff")
    assert parse_recorded(data).plugins[0].text == '{"type":"a","x":"\ufffd"}'
    with pytest.raises(libcni.ConfigError, match="not UTF-8"):
        NetworkConfigList.from_bytes(data)


@pytest.mark.parametrize("text", ['{"x":1}', '{"type":5}', '{"type":"../x"}', '{"type":null}'])
def test_without_a_usable_type_nothing_can_be_run(text: str) -> None:
    with pytest.raises(libcni.ConfigError, match="type"):
        parse_plugin(text)


def test_a_bomb_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(jsontext, "_scan_once", refuse)
    with pytest.raises(libcni.InvalidOutputError, match="elements"):
        libcni.Result.from_bytes(filled(*BOMBS["numbers"]))


RT = libcni.RuntimeConf("c1", "/run/netns/x", "eth0", capability_args={"tier": "@"}, network_args={"cni": "@"})
TAKES_MAC = '{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a","capabilities":{"tier":true}}]}'


@pytest.fixture
def executor() -> RecordingExecutor:
    answer = libcni.Outcome(stdout=b'{"cniVersion":"1.0.0"}')
    return RecordingExecutor({("*", verb): answer for verb in ("ADD", "CHECK", "DEL")})


@pytest.fixture
def cni(executor: RecordingExecutor, tmp_path: Path) -> libcni.CNIConfig:
    return libcni.CNIConfig(["/bin"], tmp_path, executor=executor, durable=False)


def test_a_record_by_go_that_is_refused_at_load_is_detached(
    cni: libcni.CNIConfig, executor: RecordingExecutor, tmp_path: Path
) -> None:
    cni.add_network_list(libcni.NetworkConfigList.from_bytes(TAKES_MAC), RT)
    (record,) = (tmp_path / "results").iterdir()
    found = json.loads(record.read_text())
    config = NET.format('"@"').replace('"type":"a"', '"Type":"a","args":["y"]').encode().replace(b"@", b"\xff")
    found["config"] = base64.b64encode(config).decode()
    found = {key: value for key, value in found.items() if not key.startswith("libcni")}
    record.write_text(json.dumps(found))
    (attachment,) = cni.get_cached_attachments()
    assert cni.del_attachment(attachment).record == "found"
    sent = executor.calls[-1].invocation
    assert (sent.verb, sent.plugin) == ("DEL", "a")
    assert sent.stdin.startswith('{"cniVersion":"1.0.0","name":"n","Type":"a","args":["y"],"x":"\ufffd"'.encode())


@pytest.mark.parametrize("name", ["capability_args", "network_args", "args"])
def test_arguments_whose_record_could_not_be_read_back_are_refused(
    cni: libcni.CNIConfig, executor: RecordingExecutor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(record_format, "MAX_RECORD_BYTES", record_format._ROOM_BYTES + (1 << 20))
    rt = libcni.RuntimeConf("c1", "/run/netns/x", "eth0", **{name: {"tier": "x" * (1 << 20)}})
    with pytest.raises(libcni.ConfigError, match="the record of this ADD could not be read back: it would have more"):
        cni.add_network_list(libcni.NetworkConfigList.from_bytes(TAKES_MAC), rt)
    assert executor.calls == []
    assert cni.get_cached_attachments() == []


@pytest.mark.slow
def test_the_largest_that_is_accepted_is_read_back(cni: libcni.CNIConfig, executor: RecordingExecutor) -> None:
    """A configuration and a result as large as ADD accepts, and large arguments."""
    plugin = '{"type":"a","capabilities":{"tier":true},"x":[' + "1," * (MAX_CONFIG_ELEMENTS - 20) + "1]}"
    net = libcni.NetworkConfigList.from_bytes(f'{{"name":"n","cniVersion":"1.0.0","plugins":[{plugin}]}}')
    result = f'{{"cniVersion":"1.0.0","x":"{"é" * (MAX_RESULT_BYTES // 2 - 20)}"}}'
    executor.answers = {("a", "ADD"): libcni.Outcome(stdout=result.encode())}
    rt = libcni.RuntimeConf("c1", "/run/netns/x", "eth0", capability_args={"tier": [1] * 200_000 + ["x" * (57 << 20)]})
    cni.add_network_list(net, rt)
    assert [one.state for one in cni.get_cached_attachments()] == ["ready"]
