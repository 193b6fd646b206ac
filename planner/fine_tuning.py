"""How many fine-tunes cost as much as the run."""

from __future__ import annotations

from costmodel.money import dollars, runs_for_the_same_money
from planner.fine_tune import FineTune
from planner.outlook import GB, Outlook
from planner.payment import FineTuning


def fine_tuning(of: FineTune, ahead: Outlook, mfu: float, cost: float) -> FineTuning:
    """A fine-tune beside a run of such a cost and MFU."""
    architecture, gpu = ahead.instance.architecture, ahead.pool.gpu
    days = of.days(architecture, gpu.peak_flops["bf16"], mfu)
    price = ahead.pool.price if of.price is None else of.price
    one = float(dollars(of.gpus, days, price))
    runs = float(runs_for_the_same_money(cost, one))
    text = (
        f"The run costs as much as {runs:,.0f} fine-tunes of {of.gpus} GPUs for {days * 24:,.1f} h at "
        f"{price:.2f} USD/gpu-hour (${one:,.0f} each)."
    )
    if (states := of.states(architecture)) > (there := of.gpus * gpu.memory.driver):
        text += f" Its weights and states are {states / GB:,.0f} GB, above the {there / GB:,.0f} GB there."
    return FineTuning(gpus=of.gpus, days=days, dollars=one, runs=runs, text=text)
