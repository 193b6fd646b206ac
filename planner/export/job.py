"""What every launch file is written from: a plan, the problem it answers, and its place in both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costmodel.architecture import Architecture
from costmodel.run import Fabric
from costmodel.stack import Stack
from planner.errors import InvalidInput
from planner.export.refusal import CannotExport
from planner.problem import Problem, parse_problem
from planner.solution import Decisions, Estimate, Plan, Solution
from planner.validate import layout_faults, stage_lists


@dataclass(frozen=True, slots=True)
class Job:
    """A plan and what it trains."""

    name: str
    """Of the problem."""
    architecture: Architecture
    decisions: Decisions
    estimate: Estimate
    tokens: int
    seq_len: int
    stack: Stack
    """The software profile that predicted the plan: gradients and dispatcher are as it says."""
    fabric: Fabric
    source: str
    """Planner version and problem hash."""

    @property
    def gpus_per_node(self) -> int:
        return self.decisions.num_gpus // self.decisions.nodes

    @property
    def steps(self) -> int:
        """ceil(tokens / (global_batch * seq_len)): the last step may go past the tokens asked for."""
        return -(-self.tokens // (self.decisions.global_batch * self.seq_len))

    @property
    def instances(self) -> int:
        """Groups of a stage's ranks that each hold all its states: 1, or one in each node."""
        d = self.decisions
        return d.tp * d.cp * d.dp // self.fabric.domain if d.zero_scope == "node" else 1

    @property
    def layers(self) -> list[int]:
        """Layers of each virtual stage, in the order in which a token passes them."""
        return stage_lists(self.decisions)[0]

    @property
    def recomputed(self) -> list[int]:
        """Of these, layers that are recomputed in full."""
        return stage_lists(self.decisions)[1]

    @property
    def even(self) -> bool:
        """Every virtual stage has the same number of layers."""
        return len(set(self.layers)) == 1

    @property
    def recomputes_all(self) -> bool:
        """Full recompute of every layer."""
        return self.decisions.recompute == "full" and self.recomputed == self.layers

    @property
    def replicas(self) -> int:
        """Ranks that share dense weights: dp*cp."""
        return self.decisions.dp * self.decisions.cp


def shared_by_all(job: Job, target: str) -> None:
    """Raises `CannotExport` where the ranks of a node share the states among themselves."""
    if job.decisions.zero_scope != "full":
        why = "what the planner writes for it shards over all ranks"
        raise CannotExport(target, "ZeRO scope", job.decisions.zero_scope, why)


def job_of(solution: Solution, number: int = 1, file: str | Path = "solution") -> Job:
    """The job of the solution's plan `number`, counted from 1; of a run in phases, of that phase.

    Raises `InvalidInput`.
    """
    name = str(file)
    plans = solution.plans if solution.run is None else [phase.plan for phase in solution.run.phases]
    if not plans:
        raise InvalidInput(
            file=name, path="plans", found=f"no plan: {solution.status}", accepted="a solved problem"
        )
    if not 1 <= number <= len(plans):
        order = "best first" if solution.run is None else "a phase each"
        raise InvalidInput(
            file="--plan", found=f"{number}; {name} has {len(plans)}", accepted=f"1 to {len(plans)}, {order}"
        )
    problem = parse_problem(dict(solution.problem), file=f"{name}: problem", folder=Path(file).parent)
    plan, title = plans[number - 1], problem.name
    if solution.run is not None:
        part = problem.resolved_phases()[number - 1]
        problem, title = problem.of_phase(part), f"{problem.name}-{part.name}"
    fabric = _fabric(problem, plan, f"plans.{number - 1}.decisions", name)
    source = f"planner {solution.provenance.planner}, problem {solution.provenance.problem_hash[:12]}"
    return Job(
        name=title,
        architecture=problem.model.architecture,
        decisions=plan.decisions,
        estimate=plan.estimate,
        tokens=int(problem.training.tokens),
        seq_len=problem.training.seq_len,
        stack=problem.search.software,
        fabric=fabric,
        source=source,
    )


def _fabric(problem: Problem, plan: Plan, path: str, file: str) -> Fabric:
    """The links of the plan's GPUs, of two pools those of the first.

    Refuses decisions that contradict each other, as after an edit.
    """
    if plan.decisions.mixed is not None:
        return _first_fabric(problem, plan, path, file)
    pools = [pool for pool in problem.hardware if pool.accelerator.name == plan.decisions.gpu]
    if not pools:
        raise InvalidInput(
            file=file,
            path=f"{path}.gpu",
            found=plan.decisions.gpu,
            accepted=", ".join(p.accelerator.name for p in problem.hardware),
        )
    faults = [layout_faults(problem, pool, plan.decisions) for pool in pools]
    fewest = min(faults, key=len)
    if fewest:
        raise InvalidInput(
            file=file, path=path, found=fewest[0], accepted="a plan as `planner solve` wrote it"
        )
    return pools[faults.index(fewest)].fabric


def _first_fabric(problem: Problem, plan: Plan, path: str, file: str) -> Fabric:
    """Of a plan on two pools."""
    from planner.validate_mixed import mixed_layout_faults, pairs_of

    pairs = pairs_of(problem, plan.decisions)
    faults = [mixed_layout_faults(problem, pair, plan.decisions) for pair in pairs]
    fewest = min(faults, key=len, default=[f"{plan.decisions.gpu}, which are no two of the pools"])
    if fewest:
        accepted = "a plan as `planner solve` wrote it"
        raise InvalidInput(file=file, path=path, found=fewest[0], accepted=accepted)
    return pairs[faults.index(fewest)][0].fabric
