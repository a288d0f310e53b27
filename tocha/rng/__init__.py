"""Random numbers on raw NumPy arrays, equal to torch's CPU generator bit for bit.

`mt19937` holds the stream and its state; `continuous`, `discrete` and `rejection` turn it into samples, in
the order in which torch writes them to memory. Nothing here knows tensors.
"""
