"""Checkpoints: bytes, who writes them, how long training stands still and how long the write goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from costmodel.architecture import Architecture
from costmodel.closed_form.states import state_bytes
from costmodel.parameters import mtp_parameters, total_parameters
from costmodel.run import Column
from costmodel.storage.description import Storage

Mode = Literal["sync", "async"]
Writers = Literal["all", "replica", "one"]


def saved_parameters(architecture: Architecture) -> int:
    """Parameters in a checkpoint: all experts of a mixture, and the multi-token-prediction modules."""
    extra = mtp_parameters(architecture) if architecture.mtp_layers else 0
    return total_parameters(architecture) + extra


def checkpoint_bytes(parameters: Column, weights: Column = 2, optimizer: Column = 12) -> Column:
    """(w + o)*P: weights and what the optimizer keeps; gradients are not saved.

    BF16 weights, FP32 master and two moments are 14 bytes a parameter; 12 where the BF16 copy is made
    from the master again; 10 without a master (cannot be resumed exactly) or with BF16 moments.
    """
    return state_bytes(parameters, weights=weights, gradients=0, optimizer=optimizer)


def write_bandwidth(size: Column, window: Column, writers: Column = 1) -> Column:
    """bytes/s that each of so many writers needs to be done within a window: C/(n*w)."""
    return size / (writers * window)


def transfer_seconds(size: Column, bandwidth: Column, ranks: Column = 1) -> Column:
    """Seconds to write or read a checkpoint in equal parts by so many ranks: C/(n*B)."""
    return size / (ranks * bandwidth)


def share_of_rank(size: Column, ranks: Column) -> Column:
    """Bytes each rank (or node) writes, or holds in host memory for an asynchronous write: C/n."""
    return size / ranks


def pause_share(stall: Column, interval: Column) -> Column:
    """Share of time lost to saving alone: delta/(tau + delta)."""
    return stall / (interval + stall)


@dataclass(frozen=True, slots=True)
class Saving:
    """What one checkpoint costs."""

    stall: Column
    """Seconds training stands still."""
    write: Column
    """Seconds after that until the checkpoint can be used; 0 if training waited for it."""
    bandwidth: Column
    """bytes/s of the write."""
    host_bytes: Column
    """Bytes of host memory a writing node needs meanwhile."""


def saving(
    size: Column,
    storage: Storage,
    *,
    num_gpus: Column,
    gpus_per_node: Column,
    mode: Mode = "async",
    writers: Writers = "all",
    replicas: Column = 1,
    copy_rate: float = np.inf,
    overhead: float = 0.0,
) -> Saving:
    """One checkpoint of `size` bytes.

    Ranks write in equal parts: all of them (distributed optimizer, fully parallel save), those of one of
    `replicas` data-parallel replicas, or one. Bandwidth is the storage's, at most what the writing nodes
    can send. Synchronous: training waits overhead + C/B. Asynchronous: overhead + C/(n*copy) for the
    copy to host memory, then C/B beside training.
    """
    ranks = {"all": num_gpus, "replica": np.maximum(num_gpus / replicas, 1), "one": 1 + 0 * num_gpus}[writers]
    # Rounded first: a mean over nodes of two sizes may come out a hair above a whole number of them.
    nodes = np.ceil(np.round(ranks / gpus_per_node, 9))
    bandwidth = np.minimum(storage.write, nodes * storage.node_write)
    seconds = transfer_seconds(size, bandwidth)
    if mode == "sync":
        return Saving(overhead + seconds, 0 * seconds, bandwidth, 0 * seconds)
    copy = transfer_seconds(size, copy_rate, ranks)
    return Saving(overhead + copy, seconds, bandwidth, share_of_rank(size, nodes))
