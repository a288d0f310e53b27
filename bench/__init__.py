"""Benchmarks: the same cases on tocha and on torch, side by side in interleaved rounds."""
