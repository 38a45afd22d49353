"""A generator that asks for answers, and the loop that gives them: written once for all drivers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from libcni.errors import CNIError

__all__ = ["Course"]

_Asked = TypeVar("_Asked")
_Value = TypeVar("_Value")


class Course(Generic[_Asked, _Value]):
    """A generator on its way: iterate over what it asks for, and put into ``answer`` what each came to.

    As a context around the finding of an answer it keeps an error of ours, to be thrown into the generator instead.
    Anything else, such as KeyboardInterrupt or a cancellation, ends the generator as it stands.
    """

    def __init__(self, generator: Generator[_Asked, Any, _Value]) -> None:
        self._generator = generator
        self._error: CNIError | None = None
        self._value: _Value | None = None
        self.answer: Any = None

    def __iter__(self) -> Iterator[_Asked]:
        return self

    def __next__(self) -> _Asked:
        error, answer = self._error, self.answer
        self._error = self.answer = None
        try:
            return self._generator.throw(error) if error is not None else self._generator.send(answer)
        except StopIteration as end:
            self._value = end.value
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, CNIError):
            return False
        self._error = error
        return True

    @property
    def value(self) -> _Value:
        """What the generator returned, once it has."""
        return cast("_Value", self._value)
