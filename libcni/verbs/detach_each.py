"""Detach several attachments, and repeat a DEL that may succeed after the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from libcni.errors import CNIError, CNIErrorGroup, PluginError, PluginTimeoutError
from libcni.store.attachments import Attachment

if TYPE_CHECKING:
    from libcni.verbs.delete import DelReport

TargetT = TypeVar("TargetT")
AnswerT = TypeVar("AnswerT")


class SideBySide(Protocol):
    """A function that runs coroutines at the same time, in threads or as tasks, and returns their values in order."""

    async def __call__(self, works: Sequence[Callable[[], Coroutine[Any, Any, AnswerT]]], /) -> list[AnswerT]:
        """Run the coroutines."""
        ...


_ATTEMPTS = 2


async def detach_each(
    targets: Iterable[TargetT], detach: Callable[[TargetT], Awaitable[AnswerT]], group: Callable[[TargetT], Hashable]
) -> AsyncGenerator[tuple[TargetT, AnswerT | CNIError], None]:
    """Detach targets in order, and go on after errors. Repeat each DEL that is worth it once, after all others.

    Args:
        targets: the attachments to detach.
        detach: runs the DEL of a target.
        group: returns the container and the network of a target, or the one that differs between the targets.

    Yields:
        Each target with its outcome: first the answers, as they come, then the errors of those that stay attached.
    """
    every = list(targets)
    errors: list[CNIError | None] = [None] * len(every)
    to_detach: Sequence[int] = range(len(every))
    for _ in range(_ATTEMPTS):
        for index in to_detach:
            try:
                answer = await detach(every[index])
            except CNIError as error:
                errors[index] = with_first_error(error, errors[index])
            else:
                errors[index] = None
                yield every[index], answer
        to_detach = worth_repeating([(group(target), error) for target, error in zip(every, errors, strict=True)])
    for target, failed in zip(every, errors, strict=True):
        if failed is not None:
            yield target, failed


def worth_repeating(outcomes: Sequence[tuple[Hashable, CNIError | None]]) -> list[int]:
    """Return the indexes of the failed DELs after which another interface of the container left the same network.

    The plugin bridge has one masquerade chain for all interfaces of a container on a network. It fails to remove the
    chain with the first of them, because the rule of the second one refers to it.

    Args:
        outcomes: the container and the network of each DEL, and its error or None, in the order of the calls.
    """
    found = []
    left = set()
    for index, (group, error) in reversed(list(enumerate(outcomes))):
        if error is None:
            left.add(group)
        elif group in left and is_repeatable(error):
            found.append(index)
    return found[::-1]


def is_repeatable(error: CNIError) -> bool:
    """Return whether an error is a plugin's answer. A plugin that hung would only take the same time again."""
    if isinstance(error, CNIErrorGroup):  # with DelPolicy(keep_going=True)
        return all(isinstance(one, CNIError) and is_repeatable(one) for one in error.exceptions)
    return isinstance(error, PluginError) and not isinstance(error, PluginTimeoutError)


def with_first_error(error: CNIError, first: CNIError | None) -> CNIError:
    """Return the error of a second attempt with that of the first one as notes, as far as it says something else."""
    if first is not None:
        known = {str(error), *getattr(error, "__notes__", ())}
        for text in (str(first), *getattr(first, "__notes__", ())):
            if text not in known:
                error.add_note(f"at the first attempt: {text}")
    return error


async def del_attachments(
    attachments: Iterable[Attachment],
    del_attachment: Callable[[Attachment], Awaitable[DelReport]],
    side_by_side: SideBySide,
) -> list[DelReport]:
    """Detach recorded attachments; see ``CNIConfig.del_attachments``. ``del_attachment`` is the client's method.

    Raises:
        CNIErrorGroup: all errors; its ``report`` has the outcomes.
    """
    outcomes = await detach_side_by_side(
        tuple(attachments), del_attachment, lambda one: (one.container_id, one.network), side_by_side
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, CNIError)]
    CNIErrorGroup.raise_any(f"{{}} of {len(outcomes)} attachments were not detached", errors, outcomes)
    return [outcome for outcome in outcomes if not isinstance(outcome, CNIError)]


async def detach_side_by_side(
    targets: Sequence[TargetT],
    detach: Callable[[TargetT], Awaitable[AnswerT]],
    group: Callable[[TargetT], tuple[str, str]],
    side_by_side: SideBySide,
) -> list[AnswerT | CNIError]:
    """Detach the targets of a container as ``detach_each`` does, and those of different containers side by side.

    Args:
        targets: the attachments to detach.
        detach: runs the DEL of a target.
        group: returns the container and the network of a target.
        side_by_side: runs coroutines.

    Returns:
        The outcomes in the order of the targets.
    """
    containers: dict[str, list[int]] = {}
    for index, target in enumerate(targets):
        containers.setdefault(group(target)[0], []).append(index)

    async def detach_container(indexes: list[int]) -> list[tuple[int, AnswerT | CNIError]]:
        each = detach_each(indexes, lambda one: detach(targets[one]), lambda one: group(targets[one]))
        return [outcome async for outcome in each]

    ended = await side_by_side([partial(detach_container, indexes) for indexes in containers.values()])
    outcomes = dict(outcome for container in ended for outcome in container)
    return [outcomes[index] for index in range(len(targets))]
