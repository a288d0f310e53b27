"""Native kernels generated at run time: scalar rules become loops, loops become LLVM IR, LLVM IR becomes machine code.

    lower     a primitive's scalar rule, run on symbols, gives the loops of a kernel      (elementary: exp, erf, … as polynomials)
    loop_ir   the grammar of kernels; text prints and parses them
    codegen   LLVM IR of a kernel's loops and of the builtin function through which Python enters it
    jit       machine code for this CPU, from the on-disk cache where it has been compiled before
    service   kernels on request: cached, compiled, or remembered as impossible

This folder lies below `backends` in the layers: it knows arrays, types and threads, but neither tensors nor primitives (a
rule comes in as a plain function). `tocha.backends.native` decides what runs here. llvmlite is imported on first use.
"""
