"""HFU counts what is recomputed: a plan that recomputes more may have what is required, a quicker one not.

    hfu >= x    step <= tokens a step * (model FLOPs + FLOPs again) / (x * peak * GPUs)

FLOPs are those of a token. Where a row recomputes the same whatever its stages this is a longest step. Where
whole layers may be recomputed or not it depends on how many are. With all of them it is the longest step that
there can be; which assignment is the quickest that keeps to it, its stages have to say (`planner.stages`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.flops import layer_flops, model_flops_per_token, recomputed_flops_per_token
from costmodel.pipeline import stage_split
from planner.instance import Instance
from planner.requirements import Requirement
from planner.space.columns import Candidates, LayerKeys
from planner.space.recompute import ALL, FAMILIES, OPEN, SOME, VARIANTS, family_variants, modules_of

Array = NDArray[Any]
ROUNDING = 1e-9
"""Relative room for rounding, so that bounds stay bounds."""
BEYOND = 1e-6
"""What is ruled out takes so much more than is allowed."""


def hfu_requirement(instance: Instance) -> Requirement | None:
    """The tightest requirement on HFU."""
    return max(
        (of for of in instance.limits.steps if of.name == "hfu"), key=lambda of: of.value, default=None
    )


def seconds_a_flop(instance: Instance, rows: LayerKeys, share: float) -> Array:
    """(rows,) GPU-seconds that each FLOP of a token may take where such a share of the peak is required."""
    return 1 / (share * np.array([pool.gpu.peak_flops["bf16"] for pool in instance.pools])[rows.pool])


def model_flops(instance: Instance) -> float:
    """Model FLOPs of a token."""
    return float(model_flops_per_token(instance.architecture, instance.seq_len))


def again_at_most(instance: Instance, rows: LayerKeys) -> Array:
    """(rows,) FLOPs of a token that rows recompute, at most where their variant or the layers are open."""
    if "again" not in instance.derived:
        table = np.zeros((FAMILIES, VARIANTS + 1))
        for family in range(FAMILIES):
            for variant in family_variants(instance, family):
                table[family, variant] = again_of(instance, family, variant)
            table[family, OPEN] = table[family].max()
        instance.derived["again"] = table
    return instance.derived["again"][rows.family, rows.variant]


def again_of(instance: Instance, family: int, variant: int, recomputed: Array | None = None) -> float:
    """FLOPs of a token that are recomputed, with all whole layers that the family may have unless given."""
    architecture, framework = instance.architecture, instance.framework
    if recomputed is None:
        whole = family in (SOME, ALL)
        recomputed = np.array([whole * architecture.pattern().count(kind) for kind in architecture.kinds])
    layers = dict(zip(architecture.kinds, recomputed.tolist(), strict=True))
    share = instance.stack.recompute.per_op_share
    modules = modules_of(framework, variant)
    return float(
        recomputed_flops_per_token(architecture, instance.seq_len, modules, layers, per_op_share=share)
    )


def again_by_layer(instance: Instance) -> Array:
    """(kinds,) FLOPs of a token that a layer recomputed whole adds."""
    of = instance.architecture
    return np.array([float(layer_flops(of, kind, instance.seq_len).total) for kind in of.kinds])


def seconds_for(instance: Instance, rows: Candidates, flops: Array | float) -> Array:
    """(rows,) seconds of a step that so many FLOPs of a token allow, where an HFU is required."""
    required = hfu_requirement(instance)
    assert required is not None
    tokens = rows.micro_batch * rows.m_high * rows.dp * float(instance.seq_len)
    return seconds_a_flop(instance, rows, required.value) * flops * tokens / rows.num_gpus


def least_with_hfu(instance: Instance, rows: LayerKeys, bound: Array, even: Array, each: Array) -> Array:
    """(rows,) GPU-seconds a token at least, with what has to be recomputed for the HFU that is required.

    Rows take `bound` at least, and with f FLOPs recomputed even + each * f. With s GPU-seconds a FLOP allowed

        f >= bound/s - model FLOPs,   even + each * f <= s * (model FLOPs + f),   f <= those of all layers

    so that with the fewest of them they take even + each * f. Where there is no such f it is a little more
    than is allowed with all layers recomputed. Rows that recompute the same in any case stay as they are.
    """
    required = hfu_requirement(instance)
    if required is None:
        return bound
    model, most = model_flops(instance), again_at_most(instance, rows)
    allowed = seconds_a_flop(instance, rows, required.value)
    gain, short = allowed - each, even - allowed * model
    with np.errstate(divide="ignore", invalid="ignore"):
        fewest = np.maximum(bound / allowed - model, np.where((gain > 0) & (short > 0), short / gain, 0.0))
        most = np.minimum(most, np.where(gain < 0, short / gain, np.inf))
    fewest = np.maximum(fewest, 0.0) * (1 - ROUNDING)
    none = (fewest > most * (1 + ROUNDING)) | ((gain <= 0) & (short > 0))
    beyond = allowed * (model + again_at_most(instance, rows)) * (1 + BEYOND)
    least = np.where(none, beyond, even + each * np.where(none, 0.0, fewest))
    return np.where(rows.family == SOME, np.maximum(bound, least), bound)


def longest_of_plain(instance: Instance, rows: Candidates) -> tuple[Array, Array]:
    """(rows,) the longest steps of plain splits: with no layer recomputed whole, and with all of them."""
    if hfu_requirement(instance) is None:
        endless = np.full(len(rows), np.inf)
        return endless, endless
    model, most = model_flops(instance), again_at_most(instance, rows)
    without = np.where(rows.family == SOME, 0.0, most)
    return seconds_for(instance, rows, model + without), seconds_for(instance, rows, model + most)


def longest_of_stages(instance: Instance, row: Candidates) -> tuple[float, tuple[float, ...]]:
    """The longest step of a row with no layer recomputed whole, and what each of a kind adds to it.

    Nothing is asked of stages that leave no choice of that.
    """
    if hfu_requirement(instance) is None or int(row.family[0]) != SOME:
        return np.inf, ()
    return longest_with(instance, int(row.variant[0]), float(seconds_for(instance, row, 1.0)[0]))


def longest_with(instance: Instance, variant: int, seconds: float) -> tuple[float, tuple[float, ...]]:
    """The same of a variant, where each FLOP of a token allows so many seconds of a step."""
    none = np.zeros(len(instance.architecture.kinds))
    without = model_flops(instance) + again_of(instance, SOME, variant, none)
    return seconds * without, tuple((seconds * again_by_layer(instance)).tolist())


def hfu_of(instance: Instance, row: Candidates, recomputed: Array, step: float) -> float:
    """HFU of one row with so many recomputed layers of each kind, and such a step."""
    family, variant = int(row.family[0]), int(row.variant[0])
    flops = model_flops(instance) + again_of(instance, family, variant, recomputed)
    tokens = row.micro_batch * row.m_high * row.dp * float(instance.seq_len)
    return float((flops * tokens / row.num_gpus * seconds_a_flop(instance, row, 1.0))[0] / step)


def hfu_of_stages(
    instance: Instance, row: Candidates, layers: tuple[int, ...], recomputed: tuple[int, ...], step: float
) -> float:
    """The same of one stage assignment."""
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    split = stage_split(instance.architecture, pp, vpp, m, layers, recomputed)
    return hfu_of(instance, row, np.asarray(split.total_recomputed), step)
