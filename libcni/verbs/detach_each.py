"""Detach several attachments, and repeat a DEL that may succeed after the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from libcni.errors import CNIError, CNIErrorGroup, PluginError, PluginTimeoutError
from libcni.options import check_type
from libcni.store.attachments import Attachment
from libcni.verbs.settings import SideBySide

if TYPE_CHECKING:
    from libcni.verbs.delete import DelReport

TargetT = TypeVar("TargetT")
AnswerT = TypeVar("AnswerT")


async def detach_each(
    targets: Iterable[TargetT], detach: Callable[[TargetT], Awaitable[AnswerT]], group: Callable[[TargetT], Hashable]
) -> AsyncGenerator[tuple[TargetT, AnswerT | CNIError], None]:
    """Detach targets in order, and go on after errors. Repeat a failed DEL once if another DEL of its group succeeded.

    The plugin bridge has one masquerade chain for all interfaces of a container on a network. At the DEL of
    the first interface it fails to remove the chain, because the rule of the second interface refers to the chain.

    Args:
        targets: the attachments to detach.
        detach: runs the DEL of a target.
        group: returns a key that is equal for targets with the same container and network.

    Yields:
        Each target with its outcome: first the targets whose DEL succeeded, then the others, after a repeated DEL.
    """
    failed: list[tuple[TargetT, CNIError]] = []
    departed = set()
    for target in targets:
        try:
            answer = await detach(target)
        except CNIError as error:
            failed.append((target, error))
        else:
            departed.add(group(target))
            yield target, answer
    for target, first in failed:
        if group(target) not in departed or not _is_repeatable(first):
            yield target, first
            continue
        try:
            answer = await detach(target)
        except CNIError as second:
            if str(second) != str(first):
                second.add_note(f"at the first attempt: {first}")
            yield target, second
        else:
            yield target, answer


def _is_repeatable(error: CNIError) -> bool:
    """Return whether an error is a plugin's answer. A plugin that hung would probably hang again."""
    if isinstance(error, CNIErrorGroup):  # with DelPolicy(keep_going=True)
        return all(isinstance(member, CNIError) and _is_repeatable(member) for member in error.exceptions)
    return isinstance(error, PluginError) and not isinstance(error, PluginTimeoutError)


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
    outcomes = await detach_side_by_side(
        checked_attachments(attachments),
        del_attachment,
        lambda attachment: (attachment.container_id, attachment.network),
        side_by_side,
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, CNIError)]
    CNIErrorGroup.raise_any(f"{{}} of {len(outcomes)} attachments could not be detached", errors, outcomes)
    return [outcome for outcome in outcomes if not isinstance(outcome, CNIError)]


async def detach_side_by_side(
    targets: Sequence[TargetT],
    detach: Callable[[TargetT], Awaitable[AnswerT]],
    group: Callable[[TargetT], tuple[str, str]],
    side_by_side: SideBySide,
) -> list[AnswerT | CNIError]:
    """Detach the targets of each container with ``detach_each``, different containers in parallel.

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
        each = detach_each(indexes, lambda index: detach(targets[index]), lambda index: group(targets[index]))
        return [outcome async for outcome in each]

    ended = await side_by_side([partial(detach_container, indexes) for indexes in containers.values()])
    outcomes = dict(outcome for container in ended for outcome in container)
    return [outcomes[index] for index in range(len(targets))]
