"""Kernels whose loops are written by hand: matrix products and convolutions.

    builder    LLVM IR of functions, written with Python's operators and blocks
    gemm       the register-blocked microkernel and the packing of its left operand
    windows    scratch memory and the packing of an input's windows for all convolutions
    runs       tiles of a packed box and the outputs in them
    conv       convolution and its input gradient as implicit matrix products
    weight     the weight gradient, the same product over pixels
    depthwise  convolutions of one channel each
    maxima     max pooling and its gradient

A module here describes kernels and plans calls (which numbers a kernel gets for which shapes); `tocha.backends._native_conv` and
`_native_products` run them.
"""
