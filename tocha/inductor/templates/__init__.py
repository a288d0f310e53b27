"""Kernels whose loops are written by hand: matrix products, attention, recurrent layers and convolutions.

    builder    LLVM IR of functions, written with Python's operators and blocks
    gemm       the register tile of this CPU, vectors, and the convolutions' microkernel
    expressions  loop IR expressions on vectors inside a hand-written function
    epilogue   the holes of a product: rules for factors as they are packed, and for sums before they are stored
    panels     packing of a product's factors, of any strides and type
    matmul     products of batches of matrices on packed panels
    few        products with few columns, their gradients, and sums of columns, in torch's order
    batch_norm batch normalisation of images, in torch's order
    thin       products with few rows, whose right factor is read as it lies
    attention  attention without its matrix of scores
    attention_backward  its gradient, which makes the scores again
    recurrent  a recurrent layer's steps: product and cell, forward and backward
    windows    scratch memory and the packing of an input's windows for all convolutions
    runs       tiles of a packed box and the outputs in them
    conv       convolution and its input gradient as implicit matrix products
    weight     the weight gradient, the same product over pixels
    depthwise  convolutions of one channel each
    maxima     max pooling and its gradient
    few_windows  pooling of few elements
    few_norms  normalisation of few elements
    draws      random values

A module here describes kernels and plans calls (which numbers a kernel gets for which shapes); `tocha.backends._native_conv`,
`_native_products`, `_native_attention` and `_native_recurrent` run them.
"""
