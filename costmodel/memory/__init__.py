"""Peak memory of a GPU: states, activations, transients and overhead, a file each."""
