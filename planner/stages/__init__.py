"""Stage assignment: which layers lie on which virtual stage, and which are recomputed. CP-SAT.

Layers need not divide by stages: the first one holds the embedding and the most micro-batches in
flight, the last one the head and the loss. Memory of a rank is linear in the layers it holds and
recomputes, and so is the time of the schedule but for the slowest rank, a maximum.

Chunks of a rank that keep equally many micro-batches in flight are interchangeable, so they are one
variable (a `Slot`), not one each: 64 virtual stages take 100 times as long with their symmetry.

* `problem`: what has to be assigned, and the assignment.
* `slots`: virtual stages that are interchangeable.
* `cases`: what may be recomputed, each with what no assignment can beat.
* `model`: the variables; `memory`: its constraints; `objective`: the time of a step.
* `solve`: case by case, until no bound is better than what was found.
"""
