"""The arithmetic of a plan: FLOPs, MFU, GPUs, days and tokens from one another.

Symbols: C FLOPs, N GPUs, F peak FLOP/s of one GPU, T seconds. Money is in `costmodel.money`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from costmodel.units import DAY

if TYPE_CHECKING:
    from costmodel.run import Column


def compute_seconds(flops: Column, num_gpus: Column, peak: Column, efficiency: Column = 1) -> Column:
    """T = C/(N*F*eps). eps is the MFU for a whole run, the kernel efficiency for a micro-batch."""
    return flops / (num_gpus * peak * efficiency)


def training_days(flops: Column, num_gpus: Column, peak: Column, mfu: Column = 1) -> Column:
    """Days of a run: C/(N*F*MFU) / 86400; GPU-days with one GPU."""
    return compute_seconds(flops, num_gpus, peak, mfu) / DAY


def delivered_flops(days: Column, peak: Column, mfu: Column) -> Column:
    """Model FLOPs one GPU delivers in so many days: T*F*MFU."""
    return days * DAY * peak * mfu


def gpus_for_deadline(flops: Column, days: Column, peak: Column, mfu: Column) -> Column:
    """Fewest GPUs that finish in time: ceil(C/(T*F*MFU))."""
    return np.ceil(flops / delivered_flops(days, peak, mfu))


def gpus_for_memory(total_bytes: Column, usable_bytes: Column) -> Column:
    """Fewest GPUs that hold so many bytes between them: ceil(M/M_gpu)."""
    return np.ceil(total_bytes / usable_bytes)


def round_up(num_gpus: Column, group: Column) -> Column:
    """To whole groups of tp*pp*cp GPUs, or whole nodes: ceil(N/g)*g."""
    return np.ceil(num_gpus / group) * group


def equivalent_gpus(
    num_gpus: Column, peak: Column, mfu: Column, other_peak: Column, other_mfu: Column
) -> Column:
    """GPUs of another kind that train as fast: N*F*MFU/(F'*MFU'), not rounded."""
    return num_gpus * peak * mfu / (other_peak * other_mfu)


def mfu(tokens_per_second: Column, flops_per_token: Column, num_gpus: Column, peak: Column) -> Column:
    """Model FLOPs utilisation: tokens/s * FLOPs a token / (N*F). PaLM (arXiv:2204.02311), appendix B."""
    return tokens_per_second * flops_per_token / (num_gpus * peak)


def mfu_of_step(flops: Column, step_seconds: Column, num_gpus: Column, peak: Column) -> Column:
    """Model FLOPs utilisation from a step: C_step/(T_step*N*F)."""
    return flops / (step_seconds * num_gpus * peak)


def tokens_per_second(num_gpus: Column, peak: Column, mfu: Column, flops_per_token: Column) -> Column:
    """N*F*MFU / FLOPs a token."""
    return num_gpus * peak * mfu / flops_per_token


def mfu_at_scale(num_gpus: Column, mfu_of_node: Column, loss_per_decade: Column, node: Column = 8) -> Column:
    """Rule of thumb: MFU(N) = MFU_node - kappa*log10(N/node), kappa of 2 to 5 points."""
    return mfu_of_node - loss_per_decade * np.log10(num_gpus / node)


def attainable_flops(intensity: Column, bandwidth: Column, peak: Column) -> Column:
    """Roofline: min(F, I*BW_hbm) at I FLOPs a byte. Williams, Waterman, Patterson (2009)."""
    return np.minimum(peak, intensity * bandwidth)


def matmul_intensity(m: Column, k: Column, n: Column, element_bytes: Column = 2) -> Column:
    """FLOPs a byte of HBM traffic of (m,k) x (k,n): 2mkn/(bytes*(mk + kn + mn))."""
    return 2 * m * k * n / (element_bytes * (m * k + k * n + m * n))


def global_batch(micro_batch: Column, num_microbatches: Column, dp: Column) -> Column:
    """Sequences a step: b*m*n."""
    return micro_batch * num_microbatches * dp


def sequences_for_tokens(tokens: Column, seq_len: Column) -> Column:
    """Fewest sequences that hold so many tokens: ceil(T/S)."""
    return np.ceil(tokens / seq_len)


def tokens_that_fit(memory: Column, states: Column, bytes_per_token: Column) -> Column:
    """Tokens whose activations fit beside the states: (M - states)/a, not rounded."""
    return (memory - states) / bytes_per_token


def sequences_that_fit(memory: Column, states: Column, bytes_per_token: Column, seq_len: Column) -> Column:
    """Largest micro-batch: floor((M - states)/(a*S))."""
    return np.floor(tokens_that_fit(memory, states, bytes_per_token) / seq_len)
