"""VERSION and STATUS asked of canned plugins."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from helpers import RecordingRun

from libcni import NetworkConfigList, Outcome
from libcni.protocol.invocation import Invocation


def network(*types: str, version: str = "1.1.0", versions: list[str] | None = None) -> NetworkConfigList:
    document: dict[str, Any] = {"name": "n", "cniVersion": version, "plugins": [{"type": name} for name in types]}
    return NetworkConfigList.from_dict(document | ({"cniVersions": versions} if versions else {}))


Verb = Callable[..., Coroutine[Any, Any, Any]]


def drive(
    verb: Verb, asked: NetworkConfigList | str, answers: Mapping[str, Outcome | None], **options: Any
) -> tuple[Any, list[Invocation]]:
    """Run a verb; ``answers`` has what each plugin type answers, None for a missing one."""
    missing = [name for name, answer in answers.items() if answer is None]
    given = {(name, plugin): answer for plugin, answer in answers.items() if answer for name in ("VERSION", "STATUS")}
    node = RecordingRun(given, missing=missing, path=["/bin1"])
    return node.run(verb, asked, **options), node.calls


def fails(code: int, msg: str) -> Outcome:
    return Outcome(exit_status=1, stdout=f'{{"cniVersion":"1.0.0","code":{code},"msg":"{msg}"}}'.encode())
