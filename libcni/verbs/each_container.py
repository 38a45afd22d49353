"""Run a verb for several attachments: containers in parallel, those of a container in order; go on after errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from libcni.errors import CNIError, CNIErrorGroup
from libcni.options import check_type
from libcni.store.attachments import Attachment
from libcni.verbs.detach_chain import is_repeatable
from libcni.verbs.settings import SideBySide

if TYPE_CHECKING:
    from libcni.verbs.del_report import DelReport


class _OfContainer(Protocol):
    @property
    def container_id(self) -> str: ...


TargetT = TypeVar("TargetT")
OfContainerT = TypeVar("OfContainerT", bound=_OfContainer)
AnswerT = TypeVar("AnswerT")


async def each_container(
    targets: Sequence[OfContainerT],
    work: Callable[[Sequence[OfContainerT]], Awaitable[Sequence[AnswerT]]],
    side_by_side: SideBySide,
) -> list[AnswerT]:
    """Run ``work`` with the targets of each container, and return the outcomes in the order of all targets.

    Args:
        targets: attachments or records.
        work: returns an outcome for each of the targets that it receives.
        side_by_side: runs coroutines.
    """
    containers: dict[str, list[int]] = {}
    for index, target in enumerate(targets):
        containers.setdefault(target.container_id, []).append(index)

    async def run(indexes: list[int]) -> list[tuple[int, AnswerT]]:
        return list(zip(indexes, await work([targets[index] for index in indexes]), strict=True))

    ended = await side_by_side([partial(run, indexes) for indexes in containers.values()])
    outcomes = dict(outcome for container in ended for outcome in container)
    return [outcomes[index] for index in range(len(targets))]


def all_or_raise(problem: str, outcomes: Sequence[AnswerT | CNIError]) -> list[AnswerT]:
    """Return the outcomes; if there are errors, raise them as a CNIErrorGroup whose ``report`` has all outcomes."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, CNIError)]
    CNIErrorGroup.raise_any(f"{{}} of {len(outcomes)} attachments could not be {problem}", errors, outcomes)
    return [outcome for outcome in outcomes if not isinstance(outcome, CNIError)]


async def outcome_of(verb: Awaitable[AnswerT]) -> AnswerT | CNIError:
    """Return the value of a verb, or its error."""
    try:
        return await verb
    except CNIError as error:
        return error


async def detach_each(
    targets: Sequence[TargetT], detach: Callable[[TargetT], Awaitable[AnswerT]]
) -> list[AnswerT | CNIError]:
    """Detach a container's targets in order. After all of them, repeat once each DEL in which a plugin has failed.

    Some plugins fail a first time after they have removed everything. And bridge has one masquerade chain for all
    interfaces of a container on a network. At the DEL of the first interface, bridge fails to remove the chain, because
    the rule of the second interface refers to the chain.

    Args:
        targets: the attachments to detach.
        detach: runs the DEL of a target.

    Returns:
        The outcomes in the order of the targets.
    """
    outcomes = [await outcome_of(detach(target)) for target in targets]
    for index, first in enumerate(outcomes):
        if isinstance(first, CNIError) and is_repeatable(first):
            second = outcomes[index] = await outcome_of(detach(targets[index]))
            if isinstance(second, CNIError) and str(second) != str(first):
                second.add_note(f"at the first attempt: {first}")
    return outcomes


def checked_attachments(attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """Return attachments as a tuple; raise TypeError if there is another object, such as a name, among them."""
    targets = tuple(attachments)
    for attachment in targets:
        check_type("attachments", attachment, Attachment)
    return targets


async def del_attachments(
    attachments: Iterable[Attachment],
    del_attachment: Callable[[Attachment], Awaitable[DelReport]],
    side_by_side: SideBySide,
) -> list[DelReport]:
    """Detach recorded attachments; see ``CNIConfig.del_attachments``. ``del_attachment`` is the client's method.

    Raises:
        CNIErrorGroup: all errors; its ``report`` has the outcomes.
    """

    async def detach_container(targets: Sequence[Attachment]) -> list[DelReport | CNIError]:
        return await detach_each(targets, del_attachment)

    outcomes = await each_container(checked_attachments(attachments), detach_container, side_by_side)
    return all_or_raise("detached", outcomes)
