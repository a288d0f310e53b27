"""safetensors: byte for byte what the package writes, and nothing read that the header doesn't prove."""

from __future__ import annotations

import io
import json
import pathlib
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

import tocha as torch
from tocha.serialization import SafeTensors, load_safetensors, save_safetensors

ROOT = pathlib.Path(__file__).parents[2]
KINDS = ["bool", "uint8", "int8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32",
         "float64", "int64", "uint64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
         "float8_e5m2fnuz", "float8_e8m0fnu"]  # fmt: skip


def written(tensors, metadata=None):
    buffer = io.BytesIO()
    save_safetensors(tensors, buffer, metadata)
    return buffer.getvalue()


def crafted(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def test_layout_is_the_packages():
    # The bytes that safetensors 0.8 writes for these tensors under torch.
    tensors = {
        "b": torch.zeros(2),
        "a": torch.zeros(1, dtype=torch.int64),
        "c": torch.zeros(3, dtype=torch.uint8),
        "aa": torch.tensor(1.0),
        "z": torch.zeros(0, 2),
        "h": torch.zeros(2, dtype=torch.bfloat16),
    }
    header = (
        b'{"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},'
        b'"aa":{"dtype":"F32","shape":[],"data_offsets":[8,12]},'
        b'"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},'
        b'"z":{"dtype":"F32","shape":[0,2],"data_offsets":[20,20]},'
        b'"h":{"dtype":"BF16","shape":[2],"data_offsets":[20,24]},'
        b'"c":{"dtype":"U8","shape":[3],"data_offsets":[24,27]}}'
    )
    header += b" " * (-len(header) % 8)
    data = bytes(8) + struct.pack("<f", 1) + bytes(15)
    assert written(tensors, {"format": "pt"}) == struct.pack("<Q", len(header)) + header + data
    assert written({}) == b"\x08\0\0\0\0\0\0\0{}      "


def test_every_dtype_round_trips_through_a_mapped_file(tmp_path):
    tensors = {kind: torch.tensor([1, 2, 4]).to(getattr(torch, kind)) for kind in KINDS}
    path = tmp_path / "x.safetensors"
    save_safetensors(tensors, path, {"ü": "y"})
    with SafeTensors(path) as file:
        assert file.metadata() == {"ü": "y"} and set(file.keys()) == set(KINDS)
        for kind in KINDS:
            got = file.get_tensor(kind)
            assert got.dtype is getattr(torch, kind) and got.tolist() == tensors[kind].tolist()
        with pytest.raises(KeyError, match="no tensor 'x'"):
            file.get_tensor("x")
    before = path.read_bytes()
    load_safetensors(path)["float32"].fill_(9)
    assert path.read_bytes() == before


def test_the_package_reads_it_and_is_read(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    save_safetensors({"w": torch.arange(6.0).view(2, 3), "n": torch.tensor([True])}, ours)
    found = package.load_file(ours)
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["n"].tolist() == [True]
    package.save_file({"w": np.arange(3, dtype=np.int16)}, theirs, metadata={"k": "v"})
    assert load_safetensors(theirs)["w"].tolist() == [0, 1, 2] and SafeTensors(theirs).metadata() == {"k": "v"}


def test_the_package_works_on_tocha_as_torch(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "x.safetensors"
    tensors = {kind: torch.tensor([1, 2, 4]).to(getattr(torch, kind)) for kind in KINDS}
    save_safetensors(tensors, path, {"format": "pt"})
    script = """
import sys, tocha
sys.modules["torch"] = tocha
from safetensors import safe_open
from safetensors.torch import load_file, save
path = sys.argv[1]
found = load_file(path)
assert all(t.dtype is getattr(tocha, k) for k, t in found.items())
assert found["bfloat16"].tolist() == [1, 2, 4]
with safe_open(path, framework="pt") as file:
    assert file.get_slice("int64")[1:].tolist() == [2, 4]
assert save(found, metadata={"format": "pt"}) == open(path, "rb").read()
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=ROOT)


def test_device_argument():
    got = load_safetensors(written({"w": torch.ones(2, 3)}), device="meta")["w"]
    assert got.device.type == "meta" and got.shape == (2, 3)


def test_odd_offsets_are_copied_into_alignment():
    header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
              "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}}  # fmt: skip
    got = load_safetensors(crafted(header, b"\7" + struct.pack("<f", 2.5)))
    assert got["b"].item() == 2.5 and got["b"].data_ptr() % 4 == 0


def test_what_is_not_saved():
    x = torch.zeros(4)
    with pytest.raises(RuntimeError, match="'a' and 'b'"):
        written({"a": x, "b": x})
    with pytest.raises(RuntimeError, match="share memory"):
        written({"a": x[:2], "b": x[1:3]})
    assert set(load_safetensors(written({"a": x[:2], "b": x[2:]}))) == {"a", "b"}
    with pytest.raises(ValueError, match="not contiguous"):
        written({"a": x[::2]})
    with pytest.raises(ValueError, match="received int"):
        written({"a": 3})
    with pytest.raises(ValueError, match="received list"):
        written([x])
    with pytest.raises(ValueError, match="name of a tensor"):
        written({"__metadata__": x})
    with pytest.raises(ValueError, match="complex128"):
        written({"a": torch.zeros(1, dtype=torch.complex128)})
    with pytest.raises(RuntimeError, match="meta"):
        written({"a": torch.zeros(1, device="meta")})
    with pytest.raises(TypeError, match="str to str"):
        written({"a": x}, {"k": 1})


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    save_safetensors({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="received int"):
        save_safetensors({"a": 3}, path)
    assert load_safetensors(path)["a"].item() == 1


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "source, message",
    [
        (b"", "too small"),
        (bytes(7), "too small"),
        (crafted(b"{}", size=1 << 40), "does not fit"),
        (crafted(b"{}", size=2**64 - 1), "does not fit"),
        (crafted(b"{]"), "invalid JSON"),
        (crafted(b"[]"), "not a JSON object"),
        (crafted(b"[" * 100_000), "invalid JSON"),
        (crafted(b"\xff\xff"), "invalid JSON"),
        (crafted(b'{"a":%s,"a":%s}' % ((json.dumps(ENTRY).encode(),) * 2), bytes(4)), "appears twice"),
        (crafted({}, b"x"), "cover 0 bytes, the file has 1"),
        (crafted({"a": ENTRY}, bytes(8)), "cover 4 bytes, the file has 8"),
        (crafted({"a": ENTRY}), "cover 4 bytes, the file has 0"),
        (crafted({"a": ENTRY, "b": ENTRY}, bytes(4)), "starts at 0, expected 4"),
        (crafted({"a": ENTRY | {"data_offsets": [4, 8]}}, bytes(8)), "starts at 4, expected 0"),
        (crafted({"a": ENTRY | {"data_offsets": [0, 8]}}, bytes(8)), "does not fill"),
        (crafted({"a": ENTRY | {"shape": [-1]}}, bytes(4)), "invalid shape"),
        (crafted({"a": ENTRY | {"shape": [True]}}, bytes(4)), "invalid shape"),
        (crafted({"a": ENTRY | {"shape": [1] * 65}}, bytes(4)), "invalid shape"),
        (crafted({"a": ENTRY | {"shape": [2**62, 4]}}, bytes(4)), "does not fill"),
        (crafted({"a": ENTRY | {"dtype": "Q"}}, bytes(4)), "dtype 'Q'"),
        (crafted({"a": ENTRY | {"dtype": []}}, bytes(4)), "dtype"),
        (crafted({"a": 3}), "damaged"),
        (crafted({"a": {"dtype": "F32"}}), "damaged"),
        (crafted({"__metadata__": {"a": 1}}), "__metadata__"),
    ],
)
def test_headers_are_checked(source, message, tmp_path):
    with pytest.raises(RuntimeError, match=message):
        load_safetensors(source)
    path = tmp_path / "x"
    path.write_bytes(source)
    with pytest.raises(RuntimeError, match=message):
        load_safetensors(path)


def test_random_damage():
    rng = random.Random("safetensors")
    refused = 0
    good = written({"a": torch.ones(3), "b": torch.zeros(2, 2, dtype=torch.int8)}, {"k": "v"})
    for _ in range(300):
        data = bytearray(good)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            load_safetensors(bytes(data))
        except RuntimeError as error:
            refused += "not a valid safetensors file" in str(error)
        else:
            refused += 1
    assert refused == 300
