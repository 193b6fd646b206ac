"""What a plan asks of storage, and which limit of a described system it outruns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.goodput import Goodput
from costmodel.run import Column
from costmodel.storage.data import read_bandwidth, text_bytes, token_id_bytes
from costmodel.storage.description import Storage
from costmodel.storage.logs import usual_log_bytes
from costmodel.storage.retention import Retention, kept_bytes
from costmodel.storage.servers import servers_for_bandwidth, servers_for_room
from costmodel.units import DAY
from hardware.site import StorageServer, site_storage

Array = NDArray[Any]
LIMITS = ("capacity", "write", "read")


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes and bytes/s that a plan needs, a row each."""

    data: Array
    """The data set: text with working copies, and token ids."""
    checkpoints: Array
    logs: Array
    write: Array
    """bytes/s so that a checkpoint is written before the best time for the next one."""
    read: Array
    """bytes/s of data loading."""
    restart_read: Array
    """bytes/s so that a restart loads within the asked time."""

    @property
    def capacity(self) -> Array:
        """Bytes of all that is kept."""
        return self.data + self.checkpoints + self.logs


def storage_demand(
    *,
    tokens: Column,
    vocab: int,
    num_gpus: Column,
    checkpoint: Column,
    losses: Goodput,
    run_seconds: Column,
    batch_tokens: Column,
    step_time: Column,
    retention: Retention,
    load_within: float | None = None,
) -> Demand:
    """What a run of so many seconds keeps, writes and reads. Bytes, bytes/s, seconds.

    Data: D*4*f of text while it is prepared and D*(2 or 4) of ids. Checkpoints: C*kept. Write: C over the
    interval between checkpoints that is wished for; slower storage makes it longer. Read: B*S*bytes/T_step.
    Restart: C over `load_within`.
    """
    facts, ids = site_storage().data, token_id_bytes(vocab)
    text = text_bytes(tokens, facts.text_bytes_per_token, facts.overhead)
    period = losses.wished + losses.saving.stall
    return Demand(
        data=np.asarray(text + tokens * ids),
        checkpoints=np.asarray(kept_bytes(checkpoint, retention.count(run_seconds))),
        logs=np.asarray(usual_log_bytes(num_gpus, run_seconds / DAY)),
        write=np.asarray(checkpoint / period),
        read=np.asarray(read_bandwidth(batch_tokens, ids, step_time)),
        restart_read=np.zeros(np.shape(period)) + (0.0 if load_within is None else checkpoint / load_within),
    )


@dataclass(frozen=True, slots=True)
class Outrun:
    """One limit of a storage system that a plan exceeds."""

    limit: str
    needed: float
    """Bytes, or bytes/s."""
    described: float


def outrun(demand: Demand, storage: Storage) -> list[Outrun]:
    """The limits that one plan outruns, with what it needs and what was described; empty if it fits."""
    needed = {
        "capacity": demand.capacity,
        "write": demand.write,
        "read": np.maximum(demand.read, demand.restart_read),
    }
    described = {name: float(np.asarray(getattr(storage, name))) for name in LIMITS}
    return [
        Outrun(name, float(needed[name]), described[name])
        for name in LIMITS
        if float(needed[name]) > described[name]
    ]


def within(demand: Demand, storage: Storage) -> Array:
    """Rows whose plans outrun nothing."""
    read = np.maximum(demand.read, demand.restart_read)
    return np.asarray(
        (demand.capacity <= storage.capacity) & (demand.write <= storage.write) & (read <= storage.read)
    )


def servers_needed(demand: Demand, server: StorageServer, replicas: int = 1) -> Array:
    """Servers of one kind that meet all of it: the most of what room, writes and reads need.

    Written bytes cross the wire once for each replica, so servers for writes count `replicas` times.
    """
    share = site_storage().efficiency
    write, read = min(server.write, server.network), min(server.read, server.network)
    asked = np.maximum(demand.read, demand.restart_read)
    return np.maximum.reduce(
        [
            np.asarray(servers_for_room(demand.capacity, server.capacity, replicas)),
            np.asarray(servers_for_bandwidth(demand.write, write, share, replicas)),
            np.asarray(servers_for_bandwidth(asked, read, share)),
        ]
    )
