"""A cluster's own numbers: curves fitted on its benchmarks, factors fitted on its training steps."""
