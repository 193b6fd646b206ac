"""What was looked at in words, and, where nothing fits, how many candidates each limit removed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from planner.limit_words import label_of
from planner.solution import Fates, Proof, Solution

EVERY = "(valid on any framework)"
EVERY_MIXED = "(all)"


def proof_words(solution: Solution) -> str:
    """How much was looked at."""
    of = solution.proof
    # Out of time, what is left may be dismissed or not.
    still = " or still open" if of.gap else ""
    text = f"{of.lattice:,} combinations, {counts_words(of, still)}; gap {of.gap * 100:.2f} %"
    text = f"{text}; {of.seconds:.1f} s"
    if solution.mixing is not None:
        text = f"on one pool: {text}"
    if removed_rows(solution):
        return text
    rejected = [f"{count:,} by {label_of(name)}" for name, count in of.rejected.items() if count]
    text += f"; ruled out{' so far' if still else ''}: {', '.join(rejected)}" if rejected else ""
    return text + narrowed_words(of)


def counts_words(of: Proof, still: str) -> str:
    """What became of the valid ones."""
    if of.valid is None:
        return "not counted: the time was out"
    return (
        f"{of.valid:,} valid, {of.feasible:,} not ruled out; {of.screened:,} screened{still}, "
        f"{of.bounded:,} bounded away{still}, {of.solved:,} solved exactly"
    )


def narrowed_words(of: Proof) -> str:
    """What the problem itself left out before."""
    if of.unrestricted is None:
        return ""
    before = [f"{count:,} by {label_of(name)}" for name, count in of.narrowed.items() if count]
    before += [f"{of.needless:,} recompute needlessly"] if of.needless else []
    return f"; left out before, of {of.unrestricted:,} valid: {', '.join(before)}" if before else ""


def removed_rows(solution: Solution) -> list[tuple[str, int, int]]:
    """Where nothing fits: what removed candidates, one after the other, how many, and how many it left."""
    of = solution.proof
    if solution.status != "infeasible" or of.unrestricted is None:
        return []
    needless = {"needless recompute": of.needless} if of.needless else {}
    rows, left = [("", 0, of.unrestricted)], of.unrestricted
    for name, number in (of.narrowed | needless | of.rejected).items():
        left -= number
        rows.append((label_of(name), number, left))
    return rows


def mixed_rows(solution: Solution) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """The same of pairs of node counts on two pools, and of the layouts on what is left of them: by title."""
    if solution.status != "infeasible" or solution.mixing is None:
        return []
    of, found = solution.mixing.proof, []
    counted = (("Pairs of node counts on two pools", of.node_pairs, of.pairs),)
    counted += (("Layouts on two pools", of.layouts, of.written),)
    for title, number, fates in counted:
        if fates is not None and number:
            rows, left = [("", 0, number)], number
            for name, removed in fates.rejected.items():
                left -= removed
                rows.append((label_of(name), removed, left))
            found.append((title, rows))
    return found


def fates_words(of: Fates | None, still: str) -> str:
    """What became of pairs of node counts, or of layouts: `: 12 ruled out by deadline, 3 looked into`."""
    if of is None:
        return ""
    each = [f"{count:,} ruled out by {label_of(name)}" for name, count in of.rejected.items()]
    each += [f"{of.bounded:,} bounded away{still}"] if of.bounded else []
    return f": {', '.join([*each, f'{of.opened:,} looked into'])}"


def removed_title(solution: Solution) -> str:
    """What is counted: a run in phases needs a candidate of each phase, so that some may be left."""
    if solution.problem.get("phases"):
        return "Candidates of all phases together"
    return "Candidates" if solution.mixing is None else "Candidates on one pool"


def removed_table(rows: Sequence[tuple[str, int, int]], every: str = EVERY) -> Table:
    """The same, a line each; `every` says what the first line is."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("removed by", overflow="fold")
    for heading in ("removed", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, number, left in rows:
        table.add_row(name or every, f"{number:,}" if name else "", f"{left:,}")
    return table
