"""A first problem file from a handful of answers: commented, checked, ready to be solved and edited."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.architecture import Architecture
from costmodel.parameters import active_parameters, total_parameters
from hardware.accelerator import Accelerator
from hardware.catalogue import UnknownAccelerator, accelerator_names, load_accelerator
from planner import units
from planner.errors import Refused, nearest, shown
from planner.model import Model
from planner.quantities import batch_range

USUAL_BATCH = "2M..6M tokens"
"""Where nothing is said: the batches of many published runs of 7B to 70B models."""
GPU_SPEC = re.compile(
    r"(?P<gpu>[^:@]+):\s*(?P<count>[\d_,]+)\s*(?P<unit>nodes?|gpus?)\s*(?:@(?P<price>.+))?", re.I
)
GPU_ACCEPTED = "GPU:COUNTnodes or GPU:COUNTgpus, with @PRICE in USD/gpu-hour: H800:128nodes@2.00"
RANGE = re.compile(r"(?P<low>.+?)\s*\.\.\s*(?P<high>.+)")
PLAIN = re.compile(r"[A-Za-z0-9$./_][\w$./%+ -]*")
BILLION = 1e9


TEMPLATE = """\
# What to rent for this job, and how to launch it:
#
#   planner solve {file}
#   planner solve {file} -s "limits.deadline=45 days"
#
# Every key: `planner schema`. GPUs, models and software known by name: `planner catalogue`.
name: {name}
model: {model}
training:
  tokens: {tokens}   # K, M, B, T are 10^3 .. 10^12; Ki, Mi, Gi are 2^10 .. 2^30
  seq_len: {seq_len}
  global_batch: {batch}
  precision: bf16   # or fp8, where the GPU has it; [bf16, fp8]: whichever is better
hardware:   # a plan uses one of the pools, in whole nodes
{pools}
{limits}
objective: {objective}
# search: {{tp: [1, 2, 4, 8], framework: megatron}}   # allowed values; what is left out is free
# scenarios: {scenarios}
"""


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """One `--gpu`: up to so many nodes or GPUs, at a price or the catalogue's."""

    gpu: Accelerator
    unit: str
    """`nodes` or `gpus`."""
    count: int
    price: float | None

    def line(self) -> str:
        """The pool as it stands in the file."""
        price = f", price: {self.price:.2f} USD/gpu-hour" if self.price is not None else ""
        pool = f"  - {{gpu: {self.gpu.name}, {self.unit}: {{max: {self.count}}}{price}}}"
        typical = f"typical reserved price, {self.gpu.prices.reserved.typical:.2f} USD/gpu-hour, is taken"
        return pool if price else f"{pool}   # {typical}"


@dataclass(frozen=True, slots=True)
class Draft:
    """The answers, as they were written; `model` relative to the file's folder."""

    name: str
    model: str
    tokens: str
    seq_len: str
    pools: tuple[PoolAnswer, ...]
    global_batch: str = USUAL_BATCH
    deadline: str | None = None
    budget: str | None = None
    objective: str | None = None

    def text(self, architecture: Architecture, file: str = "problem.yaml") -> str:
        """The commented file."""
        goal = self.objective or ("cost" if self.deadline else "time")
        goals = f"{'time' if goal == 'cost' else 'cost'}, [cost, time], {{cost: 1, time: 20k USD/day}}"
        batch, dearer = batch_words(self.global_batch), f"hardware.0.price: {self._dearer():.2f} USD/gpu-hour"
        return TEMPLATE.format(
            file=file,
            name=scalar(self.name),
            model=f"{scalar(self.model)}   # {size_words(architecture)}; a card, or a path to a config.json",
            tokens=scalar(self.tokens),
            seq_len=scalar(self.seq_len),
            batch=f"{batch}   # what converges well; the planner picks inside",
            pools="\n".join(pool.line() for pool in self.pools),
            limits="\n".join(self._limits()),
            objective=f"{goal}   # or {goals}",
            scenarios=f"{{dearer: {{{dearer}}}}}   # named what-ifs",
        )

    def _limits(self) -> list[str]:
        """Limits that were given; the others as comments, so that it is seen what there could be."""
        given = {"deadline": self.deadline, "budget": self.budget}
        usual = {"deadline": "60 days", "budget": "2M USD"}
        if not any(given.values()):
            return ["# limits: {deadline: 60 days, budget: 2M USD}   # leave one out and it does not bind"]
        rows = [
            f"  {key}: {scalar(value)}" if value else f"  # {key}: {usual[key]}"
            for key, value in given.items()
        ]
        return ["limits:   # leave one out and it does not bind", *rows]

    def _dearer(self) -> float:
        pool = self.pools[0]
        return 1.25 * (pool.price if pool.price is not None else pool.gpu.prices.reserved.typical)


def scalar(text: str) -> str:
    """Text as YAML: plain where that is safe, else quoted."""
    return text if PLAIN.fullmatch(text) and text == text.strip() else json.dumps(text)


def size_words(architecture: Architecture) -> str:
    """68.98B parameters, 80 layers; active ones where they differ."""
    total, active = total_parameters(architecture), active_parameters(architecture)
    of = f", {active / BILLION:.2f}B of them active" if active < total else ""
    return f"{total / BILLION:.2f}B parameters{of}, {architecture.layers} layers"


def batch_words(text: str) -> str:
    """`2M..6M tokens` as a range of the file, one value as it is."""
    value = batch_value(text)
    return f"{{min: {value['min']}, max: {value['max']}}}" if isinstance(value, dict) else scalar(value)


def batch_value(text: str) -> Any:
    """What the problem file holds for a batch that was written on one line."""
    match = RANGE.fullmatch(text.strip())
    if match is None:
        return text.strip()
    low, high = match["low"], match["high"]
    unit = high.split()[-1] if len(high.split()) > 1 else ""
    return {"min": low if " " in low else f"{low} {unit}".strip(), "max": high}


def pool_answer(text: str) -> PoolAnswer:
    """`H800:128nodes@2.00` as a pool. Raises `Refused`."""
    match = GPU_SPEC.fullmatch(text.strip())
    if match is None:
        raise Refused(f"found {shown(text)}", GPU_ACCEPTED)
    gpu, unit = gpu_answer(match["gpu"].strip()), match["unit"].lower().rstrip("s") + "s"
    count, price = units.count(match["count"]), match["price"]
    if unit == "gpus" and count < gpu.gpus_per_node:
        raise Refused(f"found {count} GPUs, less than a node of {gpu.gpus_per_node}", GPU_ACCEPTED)
    return PoolAnswer(gpu, unit, count, None if price is None else price_answer(price))


def gpu_answer(name: str) -> Accelerator:
    """A GPU of the catalogue. Raises `Refused` with the nearest name."""
    try:
        return load_accelerator(name)
    except UnknownAccelerator as error:
        hint = f"did you mean {error.likely[0]!r}?" if error.likely else ""
        raise Refused(f"found {shown(name)}", ", ".join(accelerator_names()), hint) from None


def price_answer(text: str) -> float:
    """A bare number is USD per GPU-hour here. Raises `Refused`."""
    bare = re.fullmatch(r"\$?\s*[\d.]+", text.strip())
    return units.price(f"{text.strip().lstrip('$').strip()} USD/gpu-hour" if bare else text)


def checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """The text itself, if a parser accepts it."""

    def same(text: str) -> str:
        read(text.strip())
        return text.strip()

    return same


def objective_answer(text: str) -> str:
    """A goal, cost or time. Raises `Refused`."""
    if text.strip() not in ("cost", "time"):
        raise Refused(f"found {shown(text)}", "cost, time", nearest(text, ("cost", "time")))
    return text.strip()


tokens_answer = checked(units.tokens)
seq_len_answer = checked(units.sequence_length)
deadline_answer = checked(units.duration)
budget_answer = checked(units.money)


def batch_answer(text: str, seq_len: str) -> str:
    """A batch, or a range of them, that holds whole sequences. Raises `Refused`."""
    batch_range(batch_value(text), units.sequence_length(seq_len))
    return text.strip()


def model_answer(text: str, folder: Path = Path()) -> Architecture:
    """The architecture that a card or a config.json means. Raises `Refused`."""
    return Model.spelled(text.strip(), folder).architecture
