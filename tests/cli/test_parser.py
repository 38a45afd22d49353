"""The words of a command, and errors about them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.node import CommandNode
from libcni.cli.commands import COMMANDS
from libcni.cli.parser import parser_of

ADD = {"network": "net", "netns": "/ns"}


def read(line: str) -> dict[str, Any]:
    name, *words = line.split()
    return vars(parser_of(next(one for one in COMMANDS if one.name == name)).parse_intermixed_args(words))


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("add net /ns", {**ADD, "ifname": "eth0", "container": None, "rollback": True, "timeout": 60.0}),
        ("add net /ns -c c1 --args A=1;B=", {"container": "c1", "args": "A=1;B="}),
        ("add net /ns --on-existing=replace", {"on_existing": "replace"}),
        ("add --no-rollback net /ns", {**ADD, "rollback": False}),
        ("add net /ns --timeout 1.5 -v", {"timeout": 1.5, "verbose": True}),
        ("add net /ns -i eth1 -i eth2", {"ifname": "eth2"}),
        ("del net --keep-going /ns", {**ADD, "keep_going": True}),
        ("gc net --valid a:eth0 --valid b", {"network": "net", "valid": ["a:eth0", "b"]}),
        ("attachments -q web", {"quiet": True, "container": "web"}),
        ("del web -n net", {"network": "web", "only": "net", "netns": None}),
        ("networks", {"validate": None}),
        ("networks --validate", {"validate": []}),
        ("networks --validate - net", {"validate": ["-", "net"]}),
        ("explain net --verb add --verb del", {"verb": ["ADD", "DEL"]}),
        ("reload a b:eth0 --dry-run", {"containers": ["a", "b:eth0"], "dry_run": True}),
    ],
)
def test_words_become_values(line: str, values: dict[str, Any]) -> None:
    given = read(line)
    assert {name: given[name] for name in values} == values


def test_a_variable_is_a_default_and_an_empty_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CNI_IFNAME", "net1")
    monkeypatch.setenv("CNI_PATH", "")
    monkeypatch.setenv("LIBCNI_OWNER", "pod")
    given = read("add net /ns --owner mine")
    assert (given["ifname"], given["path"], given["owner"]) == ("net1", "/opt/cni/bin:/usr/lib/cni", "mine")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("add net", "the following arguments are required: NETNS"),
        ("add net /ns more", "unrecognized arguments: more"),
        ("add net /ns --cont c1", "unrecognized arguments: --cont c1"),
        ("add net /ns -c", "argument --container/-c: expected one argument"),
        ("add net /ns --on-existing never", "invalid choice: 'never' (choose from 'refuse', 'replace', 'allow')"),
        ("add net /ns --timeout=-1", "argument --timeout: it must be a number of seconds, 0 or more, not '-1'"),
        ("add net /ns --timeout nan", "argument --timeout: it must be a number of seconds, 0 or more, not 'nan'"),
        ("explain net --verb del --verb chek", "invalid choice: 'CHEK'"),
        ("attachments --state nosuch", "invalid choice: 'nosuch'"),
        ("nosuch", "there is no command nosuch; see: libcni --help"),
        ("attachmnts", "there is no command attachmnts; did you mean: libcni attachments"),
        ("ps", "did you mean: libcni attachments"),
        ("inspect web", "did you mean: libcni show"),
        ("version", "did you mean: libcni --version"),
        ("plugin build x.py", "there is no command plugin; did you mean: python -m libcni.plugin --help"),
        ("testing", "there is no command testing; did you mean: python -m libcni.testing --help"),
        ("gc net --vlaid=a", "unrecognized arguments: --vlaid=a; did you mean --valid?"),
        ("show a --json", "did you mean -o json?"),
        ("attachments --fix", "did you mean libcni repair?"),
        ("add net /ns --port 80", "did you mean --capabilities?"),
        ("attachments -c a", "did you mean CONTAINER without an option?"),
        ("show a eth0", "unrecognized arguments: eth0; did you mean --ifname eth0?"),
        ("networks dbnet", "did you mean --validate dbnet?"),
        ("explain net ADD", "ADD is a verb, not a NETNS; did you mean --verb add?"),
    ],
)
def test_an_error_is_one_line_that_names_the_words(node: CommandNode, line: str, problem: str) -> None:
    ran = node.run(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1
