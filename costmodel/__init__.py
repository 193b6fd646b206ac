"""Physics and money of a training run: one file an effect, one function a formula."""
