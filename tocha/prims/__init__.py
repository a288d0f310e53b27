"""Primitives, one record each, by family. A family owns shape and type inference, batching and lowering once."""
