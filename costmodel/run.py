"""A run: the noun that every formula takes. One fully specified run, or columns of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.stack import Stack
from hardware.accelerator import Accelerator

Column: TypeAlias = "int | float | NDArray[Any]"
"""A number, or an array with one entry a candidate. Formulas never ask which."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """The links a run has: the GPU's usual ones unless the run or the problem says otherwise."""

    gpus_per_node: int
    domain: int
    """GPUs in one NVLink domain."""
    nvlink: float
    """bytes/s one way a GPU."""
    nic: float
    """bytes/s of network one way that a GPU can call its own: node NICs / GPUs in the node."""

    @classmethod
    def of(cls, gpu: Accelerator) -> Fabric:
        nic = gpu.network.nics_per_node * gpu.network.nic / gpu.gpus_per_node
        return cls(gpu.gpus_per_node, gpu.link.domain, gpu.link.one_way, nic)


@dataclass(frozen=True, slots=True)
class Run:
    """What a run fixes for all candidates (first block) and what varies (second block, columns).

    World size is tp*cp*pp*dp. Experts live inside the tp*cp*dp ranks of a stage: ep*etp divides
    tp*cp*dp and does not multiply the world (Megatron-Core). A step is num_microbatches
    micro-batches of micro_batch sequences on each of dp replicas.
    """

    architecture: Architecture
    gpu: Accelerator
    fabric: Fabric
    stack: Stack
    seq_len: int
    precision: str
    recompute_modules: frozenset[str]
    """Modules recomputed in every layer ("selective"); full-layer recompute is counted per stage."""

    tp: Column
    cp: Column
    pp: Column
    vpp: Column
    dp: Column
    ep: Column
    etp: Column
    micro_batch: Column
    num_microbatches: Column
    zero: Column

    shard_ranks: Column = np.inf
    """Most ranks that states are sharded over: hybrid sharding, or ZeRO within a node. Others replicate."""
    offload: float = 0.0
    """Share of the kept activations that wait in host memory for their backward pass."""
    elsewhere: Column = 0
    """Of the dp replicas, those on another pool of GPUs (`costmodel.mixed`)."""

    @property
    def copies(self) -> int:
        """Ranks of a pipeline with the same stage: 2 where micro-batches enter at both ends (DualPipe)."""
        return 2 if self.stack.pipeline.placing == "both" else 1

    @property
    def num_gpus(self) -> Column:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def global_batch(self) -> Column:
        """Sequences a step."""
        return self.micro_batch * self.num_microbatches * self.dp

    @property
    def tokens_per_step(self) -> Column:
        return self.global_batch * self.seq_len

    @property
    def expert_dp(self) -> Column:
        """Replicas of each expert: the group over which expert gradients are reduced."""
        return self.tp * self.weight_ranks // (self.ep * self.etp)

    @property
    def weight_ranks(self) -> Column:
        """Ranks that hold the same dense weights: dp*cp, or twice that (`copies`)."""
        return self.dp * self.cp * self.copies

    @property
    def state_shards(self) -> Column:
        """Ranks that share the states of dense parameters under ZeRO: min(weight_ranks, shard_ranks)."""
        return np.minimum(self.weight_ranks, self.shard_ranks)

    @property
    def expert_shards(self) -> Column:
        """Ranks that share an expert's states: its replicas among the tp*shard_ranks of the dense ones."""
        most = self.tp * np.asarray(self.shard_ranks, dtype=float) / (self.ep * self.etp)
        return np.minimum(self.expert_dp, np.maximum(most, 1.0))

    @property
    def in_rounds(self) -> NDArray[np.bool_]:
        """Whether gradients are sharded beside a pipeline, round by round: ZeRO-2 of stacks that do so."""
        if not self.stack.data_parallel.reduces_by_round:
            return np.asarray(False)
        return np.equal(self.zero, 2) & np.greater(self.pp, 1)

    @property
    def tokens(self) -> Column:
        """Tokens of one micro-batch that a tensor-parallel group holds: b*S/cp."""
        return self.micro_batch * self.seq_len / self.cp

    def take(self, index: NDArray[np.int64] | slice | int) -> Run:
        """The same run with only the candidates of `index`."""
        names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
        names = (*names, "shard_ranks")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        columns = {name: value[index] for name, value in values.items() if np.ndim(value)}
        return replace(self, **columns)
