"""What is known about a GPU: facts with sources, and curves fitted on measurements.

Everything is SI inside: bytes, bytes/s, FLOP/s, seconds, watts, USD per GPU-hour. The YAML files
under `hardware/data/` are written in the same units, so that a fact has one spelling.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

Precision = Literal["bf16", "fp16", "fp8", "nvfp4"]
Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]


class Facts(BaseModel):
    """Frozen, and closed: an unknown key in a hardware file is an error, not a silent no-op."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GemmCurve(Facts):
    """Tile-wave GEMM time on one GPU, fitted per GPU on isolated BF16 kernels.

    t = t0 + max(min over tiles[waves * 2*tm*tn*(K + k0) / (area^pen * eff * peak/sm_count)] * droop,
    bytes / (eff_memory * HBM)).
    """

    eff_compute: PositiveFloat
    """Share of dense peak that the main loop of a full wave of large tiles reaches."""
    eff_memory: PositiveFloat
    """Share of HBM bandwidth reached by memory-bound GEMMs."""
    t0: PositiveFloat
    """Launch and drain, seconds."""
    k0: float
    """Prologue and epilogue, as extra K."""
    tile_penalty: float
    """Exponent by which tiles smaller than 256x128 lose efficiency."""
    droop: float
    """Clock droop per decade of FLOPs beyond `droop_from`."""
    droop_from: PositiveFloat = 2e12
    error: float
    """Mean absolute log error on held-out shapes with m, n, k >= 1024."""
    source: str


class AttentionCurve(Facts):
    """Causal flash attention, forward, one head size.

    t = t0 + 4*b*h*d*s*(s/2 + l0) / (eff*peak) * (1 + q*SM/(b*h*ceil(s/128))).
    """

    eff: PositiveFloat
    l0: float
    """Tokens of tile overhead per row (diagonal tiles are computed whole)."""
    t0: PositiveFloat
    block_saturation: float
    """q in the formula: how much an unfilled last wave of query blocks costs."""
    error: float
    source: str


class CollectiveCurve(Facts):
    """One collective in one NVLink domain: t = alpha + V/bandwidth + root*sqrt(V).

    V is the bytes a rank sends over the wire: S*(n-1)/n (twice that for all-reduce), S = full buffer.
    """

    alpha: PositiveFloat
    bandwidth: PositiveFloat
    root: float
    """seconds per sqrt(byte); without it small and medium messages are 2-3 times too fast."""
    error: float
    source: str


class Kernels(Facts):
    """Kernel curves of one chip; GPUs with the same die share them by name (H800 uses H100's)."""

    name: str
    gemm: GemmCurve
    attention: dict[int, AttentionCurve]
    """By head size (64, 128); other sizes take the nearest."""
    collectives: dict[Collective, dict[int, CollectiveCurve]]
    """By operation and number of ranks in the domain (2, 4, 8)."""


class Sustained(Facts):
    """What a chip sustains in training against its isolated kernels (power, clocks, concurrency)."""

    gemm: PositiveFloat
    """Multiplies GemmCurve.eff_compute. Fitted on published training runs."""
    attention_forward: PositiveFloat
    """Multiplies AttentionCurve.eff in the forward pass."""
    attention_backward: PositiveFloat
    """Rate of the backward pass (2.5x the FLOPs) as a share of AttentionCurve.eff."""
    hbm: PositiveFloat
    """Share of HBM bandwidth that elementwise kernels reach."""
    fp8_speedup: PositiveFloat | None = None
    """FP8 GEMM rate over BF16 GEMM rate at large K."""
    nvfp4_speedup: PositiveFloat | None = None
    source: str


class Memory(Facts):
    """Device memory: what is sold, what can be allocated, how fast it is."""

    nominal: PositiveFloat
    """Marketed capacity, bytes."""
    driver: PositiveFloat
    """What nvidia-smi shows, bytes: the most that processes can allocate together."""
    bandwidth: PositiveFloat
    """Nominal HBM bandwidth, bytes/s."""


class Link(Facts):
    """The scale-up link (NVLink)."""

    name: str
    one_way: PositiveFloat
    """bytes/s a GPU can send, one direction (half of the marketed figure)."""
    domain: PositiveInt
    """GPUs that reach each other at this speed: 8 in a node, 72 in an NVL72 rack."""
    bandwidth_scale: PositiveFloat = 1.0
    """Multiplies the bandwidth of the kernel curves' collectives (H800: 400/900 of H100's links)."""


class Network(Facts):
    """The scale-out network of a usual node."""

    nics_per_node: PositiveInt
    nic: PositiveFloat
    """bytes/s one NIC carries, one direction, line rate."""


class Power(Facts):
    """What the card may draw."""

    tdp: PositiveFloat
    """Watts a GPU."""


class PriceBand(Facts):
    """USD per GPU-hour."""

    low: PositiveFloat
    high: PositiveFloat
    typical: PositiveFloat


class Prices(Facts):
    """What a GPU-hour costs under each kind of contract."""

    on_demand: PriceBand
    reserved: PriceBand
    spot: PriceBand | None = None
    source: str


class LinkFactors(Facts):
    """Factors on the rate of a link by kind of traffic: 1 is what the software profile expects of it."""

    ring: PositiveFloat = 1.0
    """All-reduce, all-gather and reduce-scatter: gradients, weights, keys and values."""
    all_to_all: PositiveFloat = 1.0
    """Tokens on their way to experts and back."""
    point_to_point: PositiveFloat = 1.0
    """Activations between pipeline stages."""


class Calibration(Facts):
    """What one cluster reaches of what the catalogue and a software profile expect: factors on rates.

    Made by `planner calibrate`; a GPU of the catalogue has none.
    """

    step: PositiveFloat = 1.0
    """Everything that a step does, launches and memory-bound kernels too, fitted on whole training steps."""
    compute: PositiveFloat = 1.0
    """GEMMs and attention besides, fitted on whole training steps."""
    communication: PositiveFloat = 1.0
    """All traffic on all links besides, fitted on whole training steps."""
    nvlink: LinkFactors = LinkFactors()
    """Inside a domain, measured. Tensor-parallel collectives follow `curves.collectives` instead."""
    network: LinkFactors = LinkFactors()
    """Between domains, measured."""
    source: str
    """What was measured."""


class Accelerator(Facts):
    """One GPU type as a planner needs it."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    generation: Literal["ampere", "ada", "hopper", "blackwell", "other"]
    sm_count: PositiveInt
    peak_flops: dict[Precision, PositiveFloat]
    """Dense peak by precision, FLOP/s (never the sparse figure)."""
    memory: Memory
    link: Link
    network: Network
    gpus_per_node: PositiveInt
    power: Power
    prices: Prices
    kernels: str
    """Name of a file under hardware/data/kernels/."""
    curves: Kernels
    """The kernels, resolved by the catalogue."""
    sustained: Sustained
    calibration: Calibration | None = None
    """What one cluster reaches of all this."""
    notes: str = ""
    sources: tuple[str, ...] = Field(min_length=1)
