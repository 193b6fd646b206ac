"""How many fine-tunes cost as much as the run."""

from __future__ import annotations

from costmodel.money import dollars, runs_for_the_same_money
from costmodel.units import GB
from planner.english import counted
from planner.fine_tune import FineTune
from planner.outlook import Outlook
from planner.payment import FineTuning


def hours_words(hours: float) -> str:
    """48.0, 1,234.5, 0.0021."""
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def fine_tuning(of: FineTune, ahead: Outlook, mfu: float, cost: float) -> FineTuning:
    """A fine-tune beside a run of such a cost and MFU."""
    architecture, gpu = ahead.instance.architecture, ahead.pool.gpu
    days = of.days(architecture, gpu.peak_flops["bf16"], mfu)
    price = ahead.pool.price if of.price is None else of.price
    one = float(dollars(of.gpus, days, price))
    runs = float(runs_for_the_same_money(cost, one))
    often = (
        f"as much as {runs:,.0f} fine-tunes" if runs >= 1.5 else f"{runs:.3g} times as much as a fine-tune"
    )
    text = (
        f"The run costs {often} of {counted(of.gpus, 'GPU', '')} for {hours_words(days * 24)} h at "
        f"{price:.2f} USD/gpu-hour (${one:,.{0 if one >= 100 else 2}f} each)."
    )
    if (states := of.states(architecture)) > (there := of.gpus * gpu.memory.driver):
        text += f" Its weights and states are {states / GB:,.0f} GB, above the {there / GB:,.0f} GB there."
    return FineTuning(gpus=of.gpus, days=days, dollars=one, runs=runs, text=text)
