"""Functions that a wave maps over Arrow batches, and the engines that run them."""
