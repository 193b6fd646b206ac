"""The top of the page: the answer, how sure it is, the plan and its limits; or what stands in the way."""

from __future__ import annotations

from html import escape

from planner.cli.mixed_table import ranks_words
from planner.cli.table import fact_rows, near_line
from planner.cli.words import NO_PLAN, amount, decisions_line, dollars, seconds, share, status_line
from planner.english import counted
from planner.limit_words import label_of
from planner.report.data import ReportData
from planner.report.markup import bullets, facts, numbers, paragraph, section, tiles
from planner.report.sensitivity import token_words
from planner.solution import Decisions, Plan


def name(data: ReportData) -> str:
    """What the problem is called."""
    return str(data.solution.problem.get("name") or "plan")


def head(data: ReportData) -> str:
    """The answer, how sure it is, and the plan."""
    solution, plan = data.solution, data.plan
    warn = "" if solution.status == "optimal" else " warn"
    badge = f'<span class="badge{warn}">{escape(status_line(solution))}</span>'
    top = f'<header><p class="name">{escape(name(data))} {badge}</p><h1>{escape(headline(data))}</h1>'
    if plan is None:
        return top + conflict(data) + "</header>"
    rows = fact_rows(plan, data.problem.training.seq_len)
    warning = paragraph(data.stale, "warning")
    return (
        top
        + paragraph(lead(data, plan), "lead")
        + warning
        + tiles(key_figures(plan))
        + "</header>"
        + (section("The plan", facts(rows), pools(plan), limits(plan)))
    )


def headline(data: ReportData) -> str:
    """The answer in a sentence."""
    plan = data.plan
    if plan is None:
        return "No plan satisfies these limits"
    d, e = plan.decisions, plan.estimate
    return f"Train on {gpus(d)} for {e.days:.1f} days and {dollars(e.dollars)}"


def gpus(d: Decisions) -> str:
    """1,024 H800, or 64 H800 and 128 H20."""
    each = [f"{part.num_gpus:,} {part.gpu}" for part in d.parts]
    return " and ".join(each) or f"{d.num_gpus:,} {d.gpu}"


def pools(plan: Plan) -> str:
    """What each pool does in a plan on two."""
    d = plan.decisions
    rows = [
        (
            part.gpu,
            f"{part.num_gpus:,}",
            f"{ranks_words(part)} of {d.pp}",
            f"{part.num_microbatches} x {counted(part.dp, 'replica', '')}",
            f"{part.memory_gib:.1f} GiB",
            "" if part.memory_limit_gib is None else f"{part.memory_limit_gib:.1f} GiB",
        )
        for part in d.parts
    ]
    titles = ("pool", "GPUs", "pipeline ranks", "micro-batches", "memory", "allowed")
    return "<h3>Pools</h3>" + numbers(titles, rows) if rows else ""


def lead(data: ReportData, plan: Plan) -> str:
    """What is trained, how, and how near the limits that is."""
    training, d = data.problem.training, plan.decisions
    spare = [
        f"{amount(each.left, each.unit)} of the {limit.replace('_', ' ')}"
        for limit, each in plan.slack.items()
        if limit in ("deadline", "budget")
    ]
    rest = f" That leaves {' and '.join(spare)} to spare." if spare else ""
    goal = "the cheapest" if data.instance.objective[0][0] == "cost" else "the quickest"
    proved = data.solution.status == "optimal"
    which = f"It is {goal} plan {'there is' if proved else 'found'}"
    if not data.instance.lexicographic:
        which = f"No plan {'has' if proved else 'found has'} a lower sum of {weighted(data)}"
    return (
        f"{data.problem.model.architecture.name}, {token_words(training.tokens)} tokens in sequences of "
        f"{training.seq_len:,}, on {counted(d.nodes, 'node')}: {decisions_line(d)}. {which}.{rest}"
    )


def weighted(data: ReportData) -> str:
    """The terms of a weighted objective: the dollars of the run and $100,000 for each of its days."""
    weight = dict(data.instance.objective)
    times = "" if weight["cost"] == 1 else f"{weight['cost']:g} times "
    return f"{times}the dollars of the run and {dollars(weight['time'])} for each of its days"


def key_figures(plan: Plan) -> list[tuple[str, str, str]]:
    """The tiles."""
    d, e = plan.decisions, plan.estimate
    between = e.interval_80_days
    sure = f"80 % sure: {between[0]:.1f} to {between[1]:.1f}" if between else ""
    room = plan.slack.get("memory")
    return [
        ("Time", f"{e.days:.1f} days", sure),
        ("Cost", dollars(e.dollars), f"{dollars(e.dollars / e.days)} a day" if e.days else ""),
        ("GPUs", f"{d.num_gpus:,}", f"{d.gpu} in {counted(d.nodes, 'node')}"),
        ("Step", seconds(e.step_time_s), counted(d.global_batch, "sequence")),
        ("MFU", share(e.mfu), f"{e.tokens_per_s_per_gpu:,.0f} tokens/s a GPU"),
        ("Memory", f"{e.memory_gib.total:.1f} GiB", f"of {room.limit:.1f} GiB allowed" if room else ""),
    ]


def limits(plan: Plan) -> str:
    """Each limit, what the plan uses of it and what is left."""
    rows = [
        (label_of(limit), *(amount(value, each.unit) for value in (each.limit, each.used, each.left)))
        for limit, each in plan.slack.items()
    ]
    return "<h3>Limits</h3>" + numbers(("limit", "allowed", "used", "left"), rows) if rows else ""


def conflict(data: ReportData) -> str:
    """Which limits cannot hold together, and what would help."""
    of = data.solution.conflict
    if of is None:
        return paragraph("No plan was found.")
    named = " and ".join(of.limits) or "not all of the limits"
    text = f"Proved: {named} can{'not' if of.limits else ''} hold with the hardware at hand."
    if of.limits and of.limits[0] in NO_PLAN:
        text = f"Proved: {NO_PLAN[of.limits[0]]}."
    moves = [
        (label_of(move.limit), str(move.from_), f"{move.to}{'' if move.proved else ', or nearer'}")
        for move in of.relaxations
    ]
    which = "This change alone" if len(moves) == 1 else "Each of these changes alone"
    help_ = paragraph(f"{which} makes a plan possible:") if moves else ""
    return (
        paragraph(text, "lead")
        + help_
        + (numbers(("limit", "from", "to at least"), moves) if moves else "")
        + bullets(f"{text[0].upper()}{text[1:]}." for text in of.stuck.values())
        + ("" if of.nearest is None else paragraph(of.nearest.text) + paragraph(near_line(of.nearest)))
        + paragraph(data.stale, "warning")
    )
