"""Plans LLM training: which GPUs, how many, split how, for how long and for how much."""

__version__ = "0.1.0"
