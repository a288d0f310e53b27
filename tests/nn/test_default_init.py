"""Default initialisation against digests of real torch's parameters after manual_seed(3)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import tocha as torch
from tocha import nn

# Expression: (digest of names and values, digest of the generator's state afterwards), made with torch 2.13.
EXPECTED = {
    "nn.Linear(7, 5)": ("6637db97e871", "cd5d93"),
    "nn.Linear(7, 5, bias=False)": ("35ee8f704ace", "2627a4"),
    "nn.Linear(17, 33, dtype=torch.float64)": ("a2b994c5a838", "cd894e"),
    "nn.Bilinear(3, 4, 5)": ("91b4156fc89d", "305d11"),
    "nn.Conv1d(3, 8, 3)": ("71432881a481", "732b4e"),
    "nn.Conv2d(3, 8, 3)": ("5d23e5179bb7", "9fa982"),
    "nn.Conv2d(4, 8, (3, 5), groups=2)": ("1bc7ddbde450", "1b4e7d"),
    "nn.Conv3d(2, 4, 3)": ("faee89ba9e43", "7a048d"),
    "nn.ConvTranspose1d(3, 8, 3)": ("af63f7cd2def", "732b4e"),
    "nn.ConvTranspose2d(3, 8, 3)": ("c869eaadfaa6", "9fa982"),
    "nn.ConvTranspose3d(3, 4, 2)": ("fcd458a62342", "264bb9"),
    "nn.Embedding(11, 6)": ("19ae6df9766b", "d615dc"),
    "nn.Embedding(11, 6, padding_idx=2)": ("4244f141e68e", "d615dc"),
    "nn.EmbeddingBag(11, 6)": ("19ae6df9766b", "d615dc"),
    "nn.EmbeddingBag(11, 6, padding_idx=1)": ("da9787e66a70", "d615dc"),
    "nn.RNN(5, 6, 2)": ("033bd5b03fe6", "d230dd"),
    "nn.LSTM(5, 6, 2, bidirectional=True)": ("727e7098dd00", "6bac2a"),
    "nn.LSTM(5, 6, proj_size=3)": ("83e9afe0df61", "7f5534"),
    "nn.GRU(5, 6, 2)": ("8861cc261cac", "51c460"),
    "nn.RNNCell(4, 5)": ("e5db421d8a61", "ecf65f"),
    "nn.LSTMCell(4, 5)": ("c1e89b8c7193", "7a048d"),
    "nn.GRUCell(4, 5)": ("8883a17cd653", "c7df8d"),
    "nn.MultiheadAttention(8, 2)": ("5d79086be1e9", "9f0271"),
    "nn.MultiheadAttention(8, 2, kdim=5, vdim=7, add_bias_kv=True)": ("6214c2164396", "9f0271"),
    "nn.TransformerEncoderLayer(8, 2, 16)": ("d7a89927ab66", "ec1f10"),
    "nn.TransformerDecoderLayer(8, 2, 16)": ("54c260c61b1e", "77ef35"),
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)": ("35888e71f729", "ec1f10"),
    "nn.Transformer(8, 2, 1, 1, 16)": ("7c0e35bd3bcc", "17f73b"),
    "nn.LayerNorm(5)": ("4ed95a7ba60e", "76fe32"),
    "nn.BatchNorm2d(5)": ("0445e0138dfc", "76fe32"),
    "nn.GroupNorm(2, 4)": ("57ccfb805077", "76fe32"),
    "nn.RMSNorm(5)": ("5acd743434e4", "76fe32"),
    "nn.PReLU(3)": ("57f68c557147", "76fe32"),
    "nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))": ("cc0475b0c6ae", "ac43f6"),
    "nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])": ("b12b33528654", "d615dc"),
    "nn.init.trunc_normal_(torch.empty(30, 30), std=.02)": ("34175eedad1c", "166ce2"),
    "nn.init.sparse_(torch.empty(9, 6), .3)": ("2acf9bcfe164", "464c5b"),
    "nn.init.xavier_uniform_(torch.empty(9, 6))": ("fe16a1c95c28", "837944"),
    'nn.init.kaiming_normal_(torch.empty(9, 6, 3, 3), mode="fan_out")': ("3e7d80bb9ad6", "bfa029"),
}


@pytest.mark.parametrize("expression", EXPECTED)
def test_parameters_and_state(expression: str) -> None:
    torch.manual_seed(3)
    made = eval(expression, {"torch": torch, "nn": nn})
    tensors = made.state_dict() if isinstance(made, nn.Module) else {"": made}
    found = hashlib.sha256()
    for name, value in tensors.items():
        found.update(name.encode())
        found.update(np.ascontiguousarray(value.detach().numpy()).tobytes())
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()[:6]
    assert (found.hexdigest()[:12], state) == EXPECTED[expression]
