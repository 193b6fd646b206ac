"""Storage: what a run has to keep, write and read, and how much of it that takes."""
