"""The CP-SAT model of an assignment: its variables, and what constraints ask of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.solver import load_cp_model
from planner.stages.problem import StageProblem
from planner.stages.slots import Slot, ordered_stages, slot_range, slots_of

Array = NDArray[Any]


class StageModel:
    """The variables of the assignment, with queries for what constraints need."""

    def __init__(self, problem: StageProblem, each: int | None = None) -> None:
        cp_model = load_cp_model()

        self.problem = problem
        self.each = each
        """Layers that every virtual stage recomputes (or all it has), where they are to be the same."""
        self.model = cp_model.CpModel()
        self.slots = slots_of(problem)
        total = problem.architecture.layers
        self.layers = [self.model.new_int_var(*slot_range(problem, slot), "layers") for slot in self.slots]
        self.model.add(sum(self.layers) == total)
        self.recomputed = [self._recomputed(s, n) for s, n in zip(self.slots, self.layers, strict=True)]
        self.held, self.redone = self._counts(self.layers), self._counts(self.recomputed)

    def _recomputed(self, slot: Slot, layers: Any) -> Any:
        if self.problem.recompute == "none":
            return 0
        if self.problem.recompute == "all":
            return layers
        if self.each == 0:
            return 0
        recomputed = self.model.new_int_var(0, slot_range(self.problem, slot)[1], "recomputed")
        if self.each is not None:
            # Stages of a slot hold n or n + 1 layers, so their sum of min(each, layers) is this.
            self.model.add_min_equality(recomputed, [len(slot.stages) * self.each, layers])
        else:
            self.model.add(recomputed <= layers)
        return recomputed

    def _counts(self, lengths: list[Any]) -> list[list[Any]]:
        """Layers of each kind among the first so many layers of each slot."""
        architecture = self.problem.architecture
        if len(architecture.kinds) == 1:
            return [[length] for length in lengths]
        prefix = np.concatenate([[0], np.cumsum(np.array(architecture.pattern()) == architecture.kinds[0])])
        last = architecture.kinds.index(architecture.pattern()[-1])
        counts, start = [], 0
        for slot, layers, length in zip(self.slots, self.layers, lengths, strict=True):
            if len(slot.stages) == 1 and slot.stages[0] < ordered_stages(architecture):
                first = self._prefix(prefix, start + length) - self._prefix(prefix, start)
                counts.append([first, length - first])
            else:
                counts.append([length if last == 0 else 0, length if last == 1 else 0])
            start = start + layers
        return counts

    def _prefix(self, prefix: Array, position: Any) -> Any:
        if isinstance(position, int):
            return int(prefix[position])
        value = self.model.new_int_var(0, int(prefix[-1]), "")
        self.model.add_element(position, [int(p) for p in prefix], value)
        return value

    def recomputes(self, rank: int) -> Any:
        """1 if a rank recomputes any layer, else 0."""
        if self.problem.recompute != "some":
            return int(self.problem.recompute == "all")
        any_layer = self.model.new_bool_var(f"recomputes_{rank}")
        layers = [r for slot, r in zip(self.slots, self.recomputed, strict=True) if slot.rank == rank]
        self.model.add(sum(layers) <= self.problem.architecture.layers * any_layer)
        return any_layer

    def of_rank(self, rank: int, weights: dict[int, list[int]] | list[int], counts: list[list[Any]]) -> Any:
        """Sum over a rank's slots and kinds of weight x count; weights by in-flight count, or one for all."""
        total: Any = 0
        for slot, by_kind in zip(self.slots, counts, strict=True):
            if slot.rank == rank:
                of_slot = weights[slot.in_flight] if isinstance(weights, dict) else weights
                total = total + sum(w * c for w, c in zip(of_slot, by_kind, strict=True))
        return total
