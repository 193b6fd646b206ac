"""Logs and metrics of a run."""

from __future__ import annotations

from costmodel.run import Column
from costmodel.units import DAY
from hardware.site import site_storage


def log_bytes(num_gpus: Column, a_gpu_day: Column, days: Column) -> Column:
    """Text logs: N * bytes a GPU and day * days. NCCL at WARN 1 MB, at INFO 10 MB, stdout 1 to 10 MB."""
    return num_gpus * a_gpu_day * days


def metric_bytes(metrics: Column, steps: Column, each: Column = 100) -> Column:
    """Training metrics, every one each step: 100 bytes a value."""
    return metrics * steps * each


def series_bytes(series: Column, days: Column, interval: Column = 15, sample: Column = 1.5) -> Column:
    """A monitor's time series: series * days*86400/dt * bytes (1 to 2 in Prometheus)."""
    return series * days * DAY / interval * sample


def usual_log_bytes(num_gpus: Column, days: Column, *, verbose: bool = False) -> Column:
    """Text logs and time series of a run's GPUs as usually configured."""
    facts = site_storage().logs
    text = log_bytes(num_gpus, facts.verbose_gpu_day if verbose else facts.gpu_day, days)
    series = num_gpus * facts.series_per_gpu
    return text + series_bytes(series, days, facts.series_interval, facts.sample_bytes)
