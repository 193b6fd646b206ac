"""Pipeline transfers: a micro-batch's activations from one stage to the next."""

from __future__ import annotations

import numpy as np

from costmodel.collectives import usable_domain
from costmodel.elementwise import token_shard
from costmodel.run import Run
from costmodel.stage import Array


def hop_time(run: Run) -> Array:
    """Seconds of one stage-to-stage transfer: latency + 2*b*S/c*d/tp / link, 0 with one stage.

    Not divided by tp without sequence parallelism, unless the stack scatters and gathers
    (Narayanan et al. 2021, section 4.1).
    The next stage shares the NVLink domain when both fit in it: 2*tp*cp*dp <= domain.
    """
    stack = run.stack.pipeline
    near = 2 * run.tp * run.cp * run.dp <= usable_domain(run)
    link = np.where(near, stack.nvlink_efficiency * run.fabric.nvlink, stack.nic_efficiency * run.fabric.nic)
    split = run.tp if stack.scattered else token_shard(run)
    size = 2.0 * run.tokens * run.architecture.hidden / split
    return np.where(np.greater(run.pp, 1), stack.latency + size / link, 0.0)


def steady_transfer(run: Run, hop: Array) -> Array:
    """Exposed seconds a micro-batch: share * 2*v*hop, forward and backward of v virtual stages."""
    stack = run.stack.pipeline
    share = np.where(np.greater(run.vpp, 1), stack.exposed_interleaved, stack.exposed)
    return share * 2 * run.vpp * hop
