"""The outcome of many verbs of one kind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup
from libcni.verbs.client_base import Network

__all__ = ["Batch", "BatchItem"]

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[AnswerT]):
    """The outcome of one request of a batch: either its answer or its error.

    Attributes:
        index: the index of the request in the batch, from 0.
        net: the request's network.
        rt: the request's parameters.
        answer: the verb's return value: a Result for ADD, a DelReport for DEL; None if the verb failed.
        error: the verb's error, or None.
    """

    index: int
    net: Network
    rt: RuntimeConf
    answer: AnswerT | None = None
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class Batch(Generic[AnswerT]):
    """The outcome of a batch, in the order of the requests.

    Attributes:
        items: one item for each request.
    """

    items: tuple[BatchItem[AnswerT], ...]

    @property
    def answers(self) -> tuple[AnswerT | None, ...]:
        """The answers in order; None for a request that failed."""
        return tuple(item.answer for item in self.items)

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """The errors, in order."""
        return tuple(item.error for item in self.items if item.error is not None)

    def raise_errors(self) -> None:
        """Raise all errors as one group, if there are any.

        Raises:
            CNIErrorGroup: the errors, in the order of the requests.
        """
        CNIErrorGroup.raise_any(f"{{}} of {len(self.items)} failed", self.errors, self)


async def collect(
    items: AsyncGenerator[BatchItem[AnswerT], None], on_item: Callable[[BatchItem[AnswerT]], object] | None
) -> Batch[AnswerT]:
    """Return all items as a Batch; call ``on_item`` with each as it comes."""
    found = []
    async with aclosing(items):
        async for item in items:
            found.append(item)
            if on_item is not None:
                on_item(item)
    return Batch(tuple(sorted(found, key=lambda item: item.index)))
