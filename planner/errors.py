"""What can go wrong, for the person at the terminal.

    PlannerError                 exit 1
    +-- InvalidInput             exit 2   a file or an option cannot be used as it is
    +-- Infeasible               exit 3   proved: no plan satisfies every limit
    +-- TimeLimit                exit 4   the time limit passed without a plan

`Refused` is not in the tree: a parser raises it for one value, and whoever knows the file and the
path in it turns it into `InvalidInput`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_SHOWN = 80


class PlannerError(Exception):
    """Anything the planner reports on purpose."""

    exit_code = 1


class InvalidInput(PlannerError):
    """Names the file, the path in it, what was found, what is accepted, and the nearest name."""

    exit_code = 2

    def __init__(
        self,
        *,
        file: str,
        path: str = "",
        found: str = "",
        accepted: str = "",
        suggestion: str = "",
        others: Iterable[str] = (),
    ) -> None:
        self.file, self.path, self.found = file, path, found
        self.accepted, self.suggestion, self.others = accepted, suggestion, tuple(others)
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [": ".join(part for part in (self.file, self.path, self.found) if part)]
        if self.accepted:
            lines.append(f"  accepted: {self.accepted}")
        if self.suggestion:
            lines.append(f"  {self.suggestion}")
        if self.others:
            lines.append(f"  more is wrong at: {', '.join(self.others)}")
        return "\n".join(lines)


class Infeasible(PlannerError):
    """No plan satisfies every limit, and that is proved."""

    exit_code = 3


class TimeLimit(PlannerError):
    """The time limit passed before any plan was found."""

    exit_code = 4


def nothing_found(time_limit: float | None) -> TimeLimit:
    """That there is neither a plan nor a proof that there is none."""
    return TimeLimit(f"no plan was found in {time_limit:g} s; nothing is proved either way")


class Refused(ValueError):
    """One value cannot be used: what was found, what is accepted, and a hint.

    `where` is the path below the value that was being read, when the fault is deeper.
    """

    def __init__(self, found: str, accepted: str, hint: str = "", where: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{found}; accepted: {accepted}" + (f"; {hint}" if hint else ""))
        self.found, self.accepted, self.hint, self.where = found, accepted, hint, where

    def below(self, *where: str | int) -> Refused:
        """The same fault seen from further up."""
        return Refused(self.found, self.accepted, self.hint, (*where, *self.where))

    def of(self, file: str, path: str = "") -> InvalidInput:
        """The same fault of a file or an option, for the person at the terminal."""
        return InvalidInput(
            file=file, path=path, found=self.found, accepted=self.accepted, suggestion=self.hint
        )


def shown(value: object) -> str:
    """A value as it appears in a message: short, on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def nearest(name: object, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or nothing when no known name is close; case does not matter."""
    by_lower = {each.lower(): each for each in known}
    match = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[match[0]]!r}?" if match else ""
