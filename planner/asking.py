"""The questions beside the search, asked as long as there is time; which ones have no full answer is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

from planner.search.goal import OutOfTime

A = TypeVar("A")
T = TypeVar("T")


@dataclass(slots=True)
class Asking:
    """Takes down answers, each of which may take searches of its own that keep to `until`."""

    until: float | None = None
    """Time (of time.monotonic) at which every search ends; None for as long as it takes."""
    unanswered: list[str] = field(default_factory=list[str])
    """Questions, in words, to which there is no answer or not all of one: the time was out first."""

    @property
    def over(self) -> bool:
        """Whether the time is out."""
        return self.until is not None and monotonic() > self.until

    def check(self) -> None:
        """Raises OutOfTime where the time is out."""
        if self.over:
            raise OutOfTime

    def answered(self, question: str) -> bool:
        """Whether a question has a whole answer, of those that were asked."""
        return question not in self.unanswered

    def ask(self, question: str, answer: Callable[[], T]) -> T | None:
        """The answer to a question, or None."""
        return next(iter(self.every(question, (answer() for _ in range(1)))), None)

    def each(self, question: str, asked: Iterable[A], answer: Callable[[A], T]) -> list[T]:
        """The answers to what is asked of a kind, until the time is out: also those that take no search."""
        return self.every(question, self._in_turn(asked, answer))

    def _in_turn(self, asked: Iterable[A], answer: Callable[[A], T]) -> Iterator[T]:
        for one in asked:
            self.check()
            yield answer(one)

    def every(self, question: str, answers: Iterable[T]) -> list[T]:
        """All answers to a question that come in time."""
        found: list[T] = []
        try:
            # One by one: what came before the time was out is kept.
            for each in answers:
                found.append(each)
        except OutOfTime:
            self.unanswered.append(question)
        return found

    def note(self) -> Iterator[str]:
        """A sentence of what was not answered, where there is anything."""
        if self.unanswered:
            yield f"The time was out before all was known of: {'; '.join(dict.fromkeys(self.unanswered))}."
