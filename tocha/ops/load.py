"""Imports every module that registers operators, in one place and in a fixed order."""

# ruff: noqa: F401, I001
from __future__ import annotations

from tocha.ops import activation
from tocha.ops import attention
from tocha.autograd import engine
from tocha.ops import arithmetic
from tocha.ops import arrange
from tocha.ops import complex
from tocha.ops import convert
from tocha.ops import convolution
from tocha.ops import creation
from tocha.ops import dropout
from tocha.ops import rnn
from tocha.ops import fft
from tocha.ops import geometry
from tocha.ops import indexing
from tocha.ops import inspect
from tocha.ops import join
from tocha.ops import ctc
from tocha.ops import distance
from tocha.ops import einsum
from tocha.ops import embedding
from tocha.ops import fold
from tocha.ops import interpolate
from tocha.ops import grid
from tocha.ops import linalg
from tocha.ops import linalg_least
from tocha.ops import linalg_legacy
from tocha.ops import linalg_norm
from tocha.ops import loss
from tocha.ops import margin_loss
from tocha.ops import matmul
from tocha.ops import memory
from tocha.ops import mutate
from tocha.ops import norm
from tocha.ops import padding
from tocha.ops import pool
from tocha.ops import quantize
from tocha.ops import random
from tocha.ops import ranges
from tocha.ops import reduce
from tocha.ops import scan
from tocha.ops import masked
from tocha.ops import foreach
from tocha.ops import sort
from tocha.ops import sampling
from tocha.ops import scatter
from tocha.ops import select
from tocha.ops import shape
from tocha.ops import stft
from tocha.ops import triangle
from tocha.ops import viewcopy
from tocha.ops import windows
from tocha.prims import elementary, logic, rounding, special
from tocha import printing
from tocha.dispatch import attributes
from tocha.ops import operators

operators.attach()
attributes.attach()
