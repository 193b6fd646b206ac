"""How likely a plan runs out of memory, from how far predicted peaks have been off.

A peak that is `r` times the prediction fills the GPU; how often measured peaks were more than `r` times
their prediction is the risk. The prediction holds what the allocator cannot hand out (fragmentation). Of a
mixture of experts it counts the tokens of a rank as its profile balances them; the risk is that of experts
as uneven as they are without forced balance. Which experts are hot differs by layer and not by micro-batch,
so that over n layers of a stage an imbalance of 1 + x comes to 1 + x/sqrt(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, exp, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from costmodel.estimate import estimate
from costmodel.memory.overhead import usable_bytes
from costmodel.run import Run

Class = Literal["low", "moderate", "high"]


@dataclass(frozen=True, slots=True)
class MemoryRisk:
    """The risk of one plan."""

    probability: float
    balanced: float
    """The same with tokens spread over experts as the profile has it; equal without experts."""
    grade: Class
    headroom: float | None = None
    """Where the risk is high: the share of a GPU's memory that would have to stay free for a moderate one."""

    @classmethod
    def of(cls, probability: float, balanced: float, uneven: float) -> MemoryRisk:
        """Of a peak that is `uneven` times as high as predicted where experts are."""
        grade = grade_of(probability)
        return cls(probability, balanced, grade, headroom_for(uneven) if grade == "high" else None)


def risk_of(run: Run, layers: tuple[int, ...], recomputed: tuple[int, ...], predicted: float) -> MemoryRisk:
    """Risk of a run whose fullest GPU is predicted to hold so many bytes."""
    room = usable_bytes(run.gpu)
    balanced = share_above(room / predicted)
    uneven = uneven_run(run, layers)
    if uneven is None:
        return MemoryRisk.of(balanced, balanced, 1.0)
    more = max(float(estimate(uneven, layers, recomputed).memory.total), predicted)
    return MemoryRisk.of(share_above(room / more), balanced, more / predicted)


def headroom_for(uneven: float) -> float:
    """Headroom, in whole per cent, with which a plan that fills the rest has a moderate risk at most."""
    table = settings()
    shares, logs = zip(*table["quantiles"].items(), strict=True)
    ratio = uneven * exp(float(np.interp(1 - table["classes"]["moderate"], shares, logs)))
    return ceil(100 * (1 - 1 / ratio)) / 100


def uneven_run(run: Run, layers: Sequence[int]) -> Run | None:
    """The run with experts as uneven as natural routing leaves them; None where nothing is uneven."""
    stack, pp = run.stack, int(run.pp)
    most = max(sum(layers[rank::pp]) for rank in range(pp))
    uneven = 1 + (stack.expert_parallel.natural_imbalance - 1) / sqrt(most)
    if run.architecture.moe is None or int(run.ep) == 1 or uneven <= stack.memory.expert_imbalance:
        return None
    memory = stack.memory.model_copy(update={"expert_imbalance": uneven})
    return replace(run, stack=stack.model_copy(update={"memory": memory}))


def share_above(ratio: float) -> float:
    """Share of runs whose measured over predicted peak is above `ratio`.

    Between the quantiles of the table linear in the logarithm; beyond the outer ones the share falls by the
    same factor for the same distance as between the outer two.
    """
    table = settings()["quantiles"]
    shares, logs = np.array(list(table)), np.array(list(table.values()))
    x = float(np.log(ratio))
    if x > logs[-1]:
        return float(
            (1 - shares[-1]) * _tail(x - logs[-1], logs[-1] - logs[-2], shares[::-1], lambda s: 1 - s)
        )
    if x < logs[0]:
        return 1 - float(shares[0] * _tail(logs[0] - x, logs[1] - logs[0], shares, lambda s: s))
    return 1 - float(np.interp(x, logs, shares))


def _tail(beyond: float, step: float, shares: Any, outside: Any) -> float:
    """What is left of the outermost share so far beyond it."""
    return float((outside(shares[0]) / outside(shares[1])) ** (beyond / step))


def grade_of(probability: float) -> Class:
    """Class of a risk."""
    limits = settings()["classes"]
    return (
        "low" if probability <= limits["low"] else "moderate" if probability <= limits["moderate"] else "high"
    )


@cache
def settings() -> dict[str, Any]:
    """The table."""
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
