"""The demo: a small CNN learns handwritten digits, is saved, reloaded in a new process and predicts."""
