"""Goodput: the share of wall-clock time that trains. Failures, checkpoints, restarts, spare nodes."""
