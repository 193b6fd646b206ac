"""The section `phases:`: parts of a run with their own tokens, batch and sequence length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from planner.errors import Refused, shown
from planner.quantities import Fraction, SequenceLength, Strict, Tokens, batch_range


class Phase(Strict):
    """One part of a run. What is left out is as in `training`."""

    name: str
    """What reports call it."""
    tokens: Tokens | None = None
    """Tokens of the phase. Either this or `share`; one phase may leave both out and takes the rest."""
    share: Fraction | None = None
    """Share of the run's tokens."""
    seq_len: SequenceLength | None = None
    """Tokens in a sequence."""
    global_batch: Any = None
    """Batch of a step, one value or `{min, max}`, in tokens or sequences."""

    @model_validator(mode="after")
    def _counted_once(self) -> Phase:
        if not self.name.strip():
            raise Refused("found ''", "a name, such as main", "", ("name",))
        if self.tokens is not None and self.share is not None:
            raise Refused("both tokens and share are given", "one of them", "", ("share",))
        if self.share == 0:
            raise Refused("found 0", "a share above 0", "", ("share",))
        return self


def _listed(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        accepted = (
            "a list of phases: [{name: ramp, tokens: 469B, global_batch: 3072 sequences}, {name: main}]"
        )
        raise Refused(f"found {shown(value)}", accepted)
    return tuple(value)


Phases = Annotated[tuple[Phase, ...], BeforeValidator(_listed)]


@dataclass(frozen=True, slots=True)
class ResolvedPhase:
    """A phase with nothing left open."""

    name: str
    tokens: float
    seq_len: int
    min_batch: int
    """Sequences a step, at least."""
    max_batch: int


def resolved_phases(
    phases: tuple[Phase, ...], *, tokens: int, seq_len: int, min_batch: int, max_batch: int
) -> tuple[ResolvedPhase, ...]:
    """The phases of a run of so many tokens; one phase, the run itself, where there are none.

    Raises `Refused` where their tokens are not the run's, with the place below `phases`.
    """
    if not phases:
        return (ResolvedPhase("training", tokens, seq_len, min_batch, max_batch),)
    names = [each.name for each in phases]
    if again := next((index for index, name in enumerate(names) if name in names[:index]), 0):
        raise Refused(f"a second phase called {names[again]}", "a name of its own", "", (again, "name"))
    counts = _tokens_of(phases, tokens)
    result: list[ResolvedPhase] = []
    for index, (phase, count) in enumerate(zip(phases, counts, strict=True)):
        length = phase.seq_len or seq_len
        batch = {"min": min_batch, "max": max_batch}
        try:
            if phase.global_batch is not None:
                batch = batch_range(phase.global_batch, length)
            elif length != seq_len:
                low = -(-min_batch * seq_len // length)
                batch = {"min": low, "max": max(low, max_batch * seq_len // length)}
        except Refused as refused:
            raise refused.below(index, "global_batch") from None
        result.append(ResolvedPhase(phase.name, count, length, batch["min"], batch["max"]))
    return tuple(result)


def _tokens_of(phases: tuple[Phase, ...], tokens: int) -> list[float]:
    """Tokens of each phase; the one that says nothing takes the rest."""
    counts = [tokens * each.share if each.share is not None else each.tokens for each in phases]
    open_ones = [index for index, count in enumerate(counts) if count is None]
    said = float(sum(count for count in counts if count is not None))
    if len(open_ones) > 1:
        second = open_ones[1]
        raise Refused("a second phase without tokens or share", "at most one takes the rest", "", (second,))
    if open_ones:
        if said >= tokens:
            found = f"the other phases have {said:.6g} tokens, which leaves none of {tokens:.6g}"
            raise Refused(found, "fewer tokens there", "", (open_ones[0],))
        return [float(tokens - said) if count is None else float(count) for count in counts]
    if abs(said - tokens) > 1e-6 * tokens:
        found = f"the phases have {said:.6g} tokens, the run {tokens:.6g}"
        raise Refused(found, "phases that add up, or one without tokens", "", (0, "tokens"))
    return [float(count) for count in counts if count is not None]
