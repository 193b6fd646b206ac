"""A solution as tables for people: the plan, its time, its limits, why, and what else there was."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.cli.grid import grid, section, sentences
from planner.cli.mixed_table import pool_parts
from planner.cli.phases_table import longest, phase_facts, run_facts
from planner.cli.proof_words import (
    EVERY_MIXED,
    fates_words,
    mixed_rows,
    proof_words,
    removed_rows,
    removed_table,
    removed_title,
)
from planner.cli.words import (
    NO_PLAN,
    NOT_KNOWN,
    amount,
    batch_words,
    checkpoint_words,
    decisions_line,
    dollars,
    energy_words,
    goodput_words,
    memory_risk_words,
    seconds,
    share,
    stages_line,
    status_line,
    storage_words,
)
from planner.english import counted
from planner.limit_words import label_of
from planner.solution import (
    Conflict,
    Estimate,
    MixingVerdict,
    Nearest,
    Plan,
    RunnerUp,
    Slack,
    Solution,
)


def solution_table(solution: Solution) -> RenderableType:
    """Everything a reader of the terminal needs, from the answer down to how it was found."""
    name = str(solution.problem.get("name", "problem"))
    parts: list[RenderableType] = [Text(f"{name}: {status_line(solution)}", style="bold")]
    if solution.run is not None:
        parts += [section("Run", run_facts(solution.run)), section("Phases", phase_facts(solution.run))]
        parts += [section("Limits", limits(solution.run.slack))] if solution.run.slack else []
        parts += [section("Why", sentences(solution.run.texts))] if solution.run.texts else []
        parts += [section("Longest phase", plan_facts(solution.plans[0], longest(solution.run).seq_len))]
        parts += [section("Its step time", breakdown(solution.plans[0]))]
    elif solution.plans:
        seq_len = _seq_len(solution)
        best = solution.plans[0]
        parts += [section("Plan", plan_facts(best, seq_len))]
        parts += [section("Pools", pool_parts(best.decisions))] if best.decisions.parts else []
        parts += [section("Step time", breakdown(best))]
        parts += [section("Limits", limits(best.slack))] if best.slack else []
        parts += [section("Why", sentences(reason.text for reason in best.reasons))] if best.reasons else []
    if solution.mixing:
        parts.append(section("Mixing", mixing_facts(solution.mixing)))
    if solution.sure:
        parts.append(section("How sure", sentences([solution.sure.text])))
    if solution.conflict:
        parts.append(section("Limits that cannot hold together", conflict_facts(solution.conflict)))
    if len(solution.plans) > 1:
        parts.append(section("Other plans", sentences(map(one_line, solution.plans[1:]))))
    if solution.runner_ups:
        parts.append(section("Other GPUs", runner_ups(solution.runner_ups)))
    if solution.notes:
        parts.append(section("Notes", sentences(solution.notes)))
    if removed := removed_rows(solution):
        parts.append(section(removed_title(solution), removed_table(removed)))
    for title, rows in mixed_rows(solution):
        parts.append(section(title, removed_table(rows, EVERY_MIXED)))
    return Group(*parts, section("Proof", Text(proof_words(solution))))


def _seq_len(solution: Solution) -> int | None:
    training = solution.problem.get("training")
    value = training.get("seq_len") if isinstance(training, dict) else None
    return value if isinstance(value, int) else None


def plan_facts(plan: Plan, seq_len: int | None) -> Table:
    """What to launch and what it will do."""
    return grid(fact_rows(plan, seq_len))


def fact_rows(plan: Plan, seq_len: int | None) -> list[tuple[str, str]]:
    """The same as pairs of name and words."""
    decisions, estimate = plan.decisions, plan.estimate
    between = estimate.interval_80_days
    sure = f" (80 % sure: {between[0]:.1f} to {between[1]:.1f})" if between else ""
    memory = None if decisions.parts else plan.slack.get("memory")
    room = f" of {memory.limit:.1f} GiB allowed" if memory else ""
    parts = estimate.memory_gib.model_dump(exclude={"total"})
    of = ", ".join(f"{name} {value:.1f}" for name, value in parts.items() if value > 0)
    return [
        (
            "GPUs",
            f"{decisions.machines} in {counted(decisions.nodes, 'node')}",
        ),
        ("layout", decisions_line(decisions)),
        ("stages", stages_line(decisions)),
        ("batch", batch_words(decisions, seq_len)),
        ("time", f"{estimate.days:.1f} days{sure}, {seconds(estimate.step_time_s)} a step"),
        ("cost", dollars(estimate.dollars)),
        *site_facts(plan),
        ("MFU", f"{share(estimate.mfu)} (HFU {share(estimate.hfu)})"),
        ("throughput", f"{estimate.tokens_per_s_per_gpu:,.0f} tokens/s a GPU"),
        (
            "memory",
            f"{estimate.memory_gib.total:.1f} GiB{room} on the fullest stage" + (f": {of}" if of else ""),
        ),
    ]


def site_facts(plan: Plan) -> list[tuple[str, str]]:
    """What the run loses, when it ends, what it draws and keeps: of what is known."""
    estimate, lost = plan.estimate, plan.estimate.losses
    facts: list[tuple[str, str]] = []
    if lost is not None and estimate.goodput is not None:
        facts += [("goodput", goodput_words(estimate, lost)), ("checkpoints", checkpoint_words(lost))]
    if lost is not None and lost.spare_nodes:
        facts.append(("spares", f"{counted(lost.spare_nodes, 'node')} ready, paid like the others"))
    if estimate.finish_days:
        ends = (
            f"{share.replace('%', ' %')} by {days:.1f} days" for share, days in estimate.finish_days.items()
        )
        facts.append(("finish", ", ".join(ends)))
    facts += sure_facts(estimate)
    if estimate.energy is not None:
        facts.append(("energy", energy_words(estimate.energy)))
    if estimate.storage is not None:
        facts.append(("storage", storage_words(estimate.storage)))
    return facts


def sure_facts(estimate: Estimate) -> list[tuple[str, str]]:
    """How likely limits hold, and how likely memory is not enough."""
    facts = []
    if estimate.probability:
        holds = ", ".join(f"{name} {share(value)}" for name, value in estimate.probability.items())
        facts.append(("limits hold", holds))
    if estimate.out_of_memory is not None:
        facts.append(("memory risk", memory_risk_words(estimate.out_of_memory)))
    return facts


def breakdown(plan: Plan) -> Table:
    """Parts of a step, largest first, with their share."""
    total = plan.estimate.step_time_s
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, part in sorted(plan.estimate.breakdown_s.items(), key=lambda item: -item[1]):
        table.add_row(name.replace("_", " "), seconds(part), share(part / total if total else 0.0))
    table.add_row("step", seconds(total), share(1.0), style="bold")
    return table


def limits(slack: dict[str, Slack]) -> Table:
    """Each limit, what the plan uses of it and what is left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("limit", overflow="fold")
    for heading in ("allowed", "used", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, each in slack.items():
        row = [amount(value, each.unit) for value in (each.limit, each.used, each.left)]
        table.add_row(label_of(name), *row)
    return table


def one_line(plan: Plan) -> str:
    """A plan in a line."""
    decisions, estimate = plan.decisions, plan.estimate
    head = f"{decisions.machines}, {decisions_line(decisions)}"
    return f"{head}: {estimate.days:.1f} days, {dollars(estimate.dollars)}, MFU {share(estimate.mfu)}"


def runner_ups(others: Iterable[RunnerUp]) -> Table:
    """The best plan of each other GPU type, or why there is none."""
    return grid(
        (other.gpu, "\n".join(filter(None, (one_line(other.plan) if other.plan else "", other.text))))
        for other in others
    )


def mixing_facts(verdict: MixingVerdict) -> Table:
    """Whether two pools together beat one, the best such plan if it is not chosen, and what was looked at."""
    rows = [("together" if verdict.better else "apart", verdict.text)]
    if verdict.plan is not None:
        rows.append(("best together", one_line(verdict.plan)))
    of = verdict.proof
    still = " or still open" if of.gap else ""
    looked = (
        f"{counted(of.node_pairs, 'pair')} of node counts{fates_words(of.pairs, still)}",
        f"{counted(of.layouts, 'layout')}{fates_words(of.written, still)}",
        f"{of.solved:,} solved exactly; {of.seconds:.1f} s",
    )
    rows.append(("looked at", "\n".join(looked)))
    return grid(rows)


def conflict_facts(conflict: Conflict) -> Table:
    """The limits in conflict, and how far each would have to move by itself."""
    moves = [(label_of(move.limit), move.text) for move in conflict.relaxations]
    moves += [(label_of(name), text) for name, text in conflict.stuck.items()]
    near = conflict.nearest
    last = [] if near is None else [("nearest", f"{near_line(near)}\n{near.text}")]
    named = ", ".join(NO_PLAN.get(name, name) for name in conflict.limits)
    return grid([("in conflict", named or NOT_KNOWN), *moves, *last])


def near_line(near: Nearest) -> str:
    """The nearest plan in a line, with the phase that it is of."""
    return one_line(near.plan) if near.phase is None else f"{near.phase}: {one_line(near.plan)}"
