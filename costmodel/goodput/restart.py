"""From a failure to the next useful step."""

from __future__ import annotations

import numpy as np

from costmodel.goodput.checkpoint import transfer_seconds
from costmodel.run import Column
from costmodel.storage.description import Storage


def load_seconds(
    size: Column,
    storage: Storage,
    *,
    num_nodes: Column,
    weight_bytes: Column = 0.0,
    copies: Column = 1,
) -> Column:
    """Seconds to load a checkpoint: every byte once, the weights once for each of `copies` replicas.

    (C + (copies - 1)*W)/B, B the storage's read bandwidth, at most what the nodes can take. Replicas
    that read in parts and exchange them (fully parallel load) are one copy.
    """
    bandwidth = np.minimum(storage.read, num_nodes * storage.node_read)
    return transfer_seconds(size + (copies - 1) * weight_bytes, bandwidth)


def restart_seconds(detection: Column, relaunch: Column, load: Column, warm_up: Column) -> Column:
    """Seconds a failure costs beside the work it undoes."""
    return detection + relaunch + load + warm_up
