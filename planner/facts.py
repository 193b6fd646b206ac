"""What the catalogue knows, a mapping each: GPUs, models and software profiles with their sources."""

from __future__ import annotations

from typing import Any

from costmodel.cards import UnknownModel, card_names, load_card
from costmodel.parameters import active_parameters, total_parameters
from costmodel.stack import UnknownStackError, load_stack, stack_names
from hardware.accelerator import Accelerator, PriceBand
from hardware.catalogue import UnknownAccelerator, accelerator_names, load_accelerator
from planner.errors import InvalidInput, nearest, shown

TERA, GIGA, BITS = 1e12, 1e9, 8


def gpu_rows() -> list[dict[str, Any]]:
    """The facts of each GPU that decide most; peaks are dense, bandwidths one way."""
    return [gpu_row(gpu) for gpu in map(load_accelerator, accelerator_names())]


def gpu_row(gpu: Accelerator) -> dict[str, Any]:
    """One GPU in the units that people quote."""
    fp8 = gpu.peak_flops.get("fp8")
    return {
        "name": gpu.name,
        "bf16_tflops": gpu.peak_flops["bf16"] / TERA,
        "fp8_tflops": None if fp8 is None else fp8 / TERA,
        "memory_gb": gpu.memory.nominal / GIGA,
        "hbm_tb_s": gpu.memory.bandwidth / TERA,
        "link_gb_s": gpu.link.one_way / GIGA,
        "domain": gpu.link.domain,
        "nic_gbit_s": gpu.network.nic * BITS / GIGA,
        "usd_per_gpu_hour": gpu.prices.reserved.typical,
        "reserved_usd": band(gpu.prices.reserved),
        "on_demand_usd": band(gpu.prices.on_demand),
        "spot_usd": band(gpu.prices.spot) if gpu.prices.spot else None,
        "tdp_w": gpu.power.tdp,
        "aliases": list(gpu.aliases),
        "sources": [*gpu.sources, f"prices: {gpu.prices.source}"],
    }


def band(prices: PriceBand) -> list[float]:
    """Lowest and highest price seen."""
    return [prices.low, prices.high]


def model_rows() -> list[dict[str, Any]]:
    """The size and shape of each model card."""
    return [
        {
            "name": name,
            "parameters": total_parameters(card),
            "active_parameters": active_parameters(card),
            "layers": card.layers,
            "hidden": card.hidden,
            "experts": card.moe.experts if card.moe else None,
            "top_k": card.moe.top_k if card.moe else None,
            "sources": [card.source],
        }
        for name, card in ((name, load_card(name)) for name in card_names())
    ]


def profile_rows() -> list[dict[str, Any]]:
    """The software profiles, and on what each was fitted."""
    stacks = [load_stack(name) for name in stack_names()]
    return [
        {"name": stack.name, "family": stack.family, "title": stack.title, "sources": list(stack.sources)}
        for stack in stacks
    ]


def gpu_facts(name: str) -> dict[str, Any]:
    """Everything that is known about a GPU, in SI units. Raises `InvalidInput`."""
    try:
        gpu = load_accelerator(name)
    except UnknownAccelerator as error:
        raise _unknown("gpus", name, error.known, error.likely) from None
    return gpu.model_dump(mode="json", exclude_none=True)


def card_facts(name: str) -> dict[str, Any]:
    """Parameters and shapes of a model card. Raises `InvalidInput`."""
    try:
        card = load_card(name)
    except UnknownModel:
        raise _unknown("models", name, card_names()) from None
    counted = {"parameters": total_parameters(card), "active_parameters": active_parameters(card)}
    shapes = card.model_dump(mode="json", exclude_none=True)
    return {"name": shapes.pop("name")} | counted | shapes


def profile_facts(name: str) -> dict[str, Any]:
    """Every number of a software profile, in SI units. Raises `InvalidInput`."""
    try:
        return load_stack(name).model_dump(mode="json", exclude_none=True)
    except UnknownStackError:
        raise _unknown("profiles", name, stack_names()) from None


def _unknown(kind: str, name: str, known: tuple[str, ...], likely: tuple[str, ...] = ()) -> InvalidInput:
    hint = f"did you mean {likely[0]!r}?" if likely else nearest(name, known)
    return InvalidInput(
        file=f"catalogue {kind}", found=f"found {shown(name)}", accepted=", ".join(known), suggestion=hint
    )
