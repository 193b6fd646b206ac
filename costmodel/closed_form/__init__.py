"""Textbook closed forms: what a handbook writes on one line, on numbers or numpy columns.

No hardware, no fitted constant. The detailed model in `costmodel` uses those that are exact (byte
counts); the rest are the sanity checks it is held against.
"""
