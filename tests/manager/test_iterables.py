"""Every iterable of a caller is read once; an iterator that was read before never means "none"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from libcni import ConfigError, InvalidIdentifierError
from libcni.engines.oci import collect, find_ended
from libcni.manager import Container, NetworkRequest
from manager.fakes import FakeNamespaces, ManagerNode, removed

Make = Callable[..., Any]

ONE_SHOT = {
    "generator": lambda items: (one for one in items),
    "map": lambda items: map(str, items),
    "filter": lambda items: filter(None, items),
    "iterator": iter,
}


@pytest.fixture(params=ONE_SHOT)
def once(request: pytest.FixtureRequest) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Return a function that makes an iterable which is empty the second time."""
    found: Callable[[Iterable[Any]], Iterable[Any]] = ONE_SHOT[request.param]
    return found


def test_gc_keeps_every_container_that_an_iterator_names(
    node: ManagerNode, make: Make, once: Callable[[Iterable[Any]], Iterable[Any]], tool: FakeNamespaces
) -> None:
    node.configure_each("a", "b")
    manager = make(namespaces=tool)
    for container in ("c1", "c2", "c3"):
        manager.set_up(Container(container, networks=["a", "b"]))
    summary = manager.gc(once(["c1", "c3"]))
    assert [(one.network, one.container_id) for one in summary.of("detached")] == [("b", "c2"), ("a", "c2")]
    assert removed(summary) == ["/run/netns/c2"]
    assert set(tool.there) == {"c1", "c3"}


@pytest.mark.parametrize(
    "live", [iter(()), (one for one in ""), map(str, []), lambda: iter(()), None, "c1", b"c1", lambda: None]
)
def test_gc_refuses_what_may_be_a_mistake_for_none(attached: ManagerNode, make: Make, live: Any) -> None:
    with pytest.raises(TypeError, match=r"\[\] for none"):
        make().gc(live)
    assert attached.calls() == []


@pytest.mark.parametrize("returned", [lambda it: it, lambda it: map(str, it)])
def test_gc_refuses_a_function_whose_iterator_was_read_before(
    attached: ManagerNode, make: Make, returned: Callable[[Any], Any]
) -> None:
    """The first network consumes it. On the second one nothing would be live."""
    shared = iter(["c1", "c2"])
    with pytest.raises(TypeError, match=r"give \[\] for none"):
        make().gc(lambda: returned(shared))
    assert attached.calls("DEL") == []


def test_gc_takes_a_function_that_returns_a_new_generator_each_time(attached: ManagerNode, make: Make) -> None:
    summary = make().gc(lambda: (one for one in ["c2"]))
    assert [(one.network, one.container_id) for one in summary.of("detached")] == [("b", "c1"), ("a", "c1")]


def test_a_container_keeps_networks_and_arguments_from_generators(node: ManagerNode) -> None:
    node.configure("a")
    request = NetworkRequest("a", args=(pair for pair in [("K", "V")]))
    container = Container("c1", "/ns", (network for network in [request]))
    plans = [node.manager().plan(container)[0].rt.args for _ in range(2)]
    assert plans == [(("K", "V"),)] * 2
    with pytest.raises(InvalidIdentifierError):
        NetworkRequest("a", args=["K=V"])  # type: ignore[list-item]
    with pytest.raises(InvalidIdentifierError):
        Container("c1", "/ns", args=["K=V"])  # type: ignore[list-item]


def test_the_runtimes_of_the_hook_may_be_a_generator(node: ManagerNode, tmp_path: Path) -> None:
    """They are asked several times in one sweep. Without any, every container would seem to have ended."""
    node.configure("a")
    cni = node.client(owner="oci-hook")
    node.manager(client={"owner": "oci-hook"}).set_up(Container("c1", "/ns"))
    (tmp_path / "runc" / "c1").mkdir(parents=True)
    manager = node.manager(client={"owner": "oci-hook"})
    summary, pins = collect(manager, (one for one in [f"{tmp_path}/runc"]))
    assert (summary.of("detached"), pins) == ((), [])
    for ask in (find_ended, lambda _, runtimes: collect(manager, runtimes)):
        with pytest.raises(ConfigError, match="the list of runtimes is empty"):
            ask(cni, iter(()))
        with pytest.raises(TypeError, match="runtimes must be an iterable of items, not 'runc'"):
            ask(cni, "runc")
    assert node.calls("DEL") == []
