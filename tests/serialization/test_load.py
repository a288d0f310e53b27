"""Files written by torch 2.13 (tests/fixtures/make_torch_files.py) read as the values they were made of."""

from __future__ import annotations

import io
import pathlib
import pickle
from collections import Counter, OrderedDict

import pytest

import tocha as torch

FILES = pathlib.Path(__file__).parents[1] / "fixtures" / "torch_files"
TYPED = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
         "complex128", "complex64"]  # fmt: skip
UNTYPED = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
           "float8_e8m0fnu"]  # fmt: skip
trust = pytest.mark.parametrize("weights_only", [True, False])


@trust
@pytest.mark.parametrize("name, kinds", [("dtypes", TYPED + UNTYPED), ("dtypes_legacy", TYPED)])
def test_every_dtype(name, kinds, weights_only):
    found = torch.load(FILES / f"{name}.pt", weights_only=weights_only)
    assert list(found) == kinds
    for kind, tensor in found.items():
        assert tensor.dtype is getattr(torch, kind)
        expected = {
            "bool": [True] * 3,
            "complex128": [1 - 1j, 2 - 1j, 4 - 1j],
            "complex64": [1 - 1j, 2 - 1j, 4 - 1j],
        }
        assert tensor.tolist() == expected.get(kind, [1, 2, 4])


@trust
@pytest.mark.parametrize("name", ["views", "views_legacy"])
def test_views_share_memory(name, weights_only):
    v = torch.load(FILES / f"{name}.pt", weights_only=weights_only)
    assert v["x"].tolist() == list(range(12))
    assert v["part"].tolist() == [5, 6, 7, 8] and v["part"].storage_offset() == 5
    assert v["turned"].shape == (4, 3) and v["turned"].stride() == (1, 4)
    assert v["steps"].tolist() == [[1, 3], [5, 7], [9, 11]]
    assert v["wide"].tolist() == [2, 2, 2, 2] and v["wide"].stride() == (0,)
    assert v["scalar"].shape == () and v["scalar"].item() == 7
    assert v["empty"].shape == (0,)
    assert v["again"] is v["grid"]
    assert all(t.untyped_storage() is v["x"].untyped_storage() for t in v.values())
    v["x"].fill_(-1.0)
    assert v["turned"].tolist() == [[-1.0] * 3] * 4


@trust
def test_parameters_attributes_and_plain_data(weights_only):
    e = torch.load(FILES / "extras.pt", weights_only=weights_only)
    assert type(e["parameter"]) is torch.nn.Parameter and not e["parameter"].requires_grad
    assert type(e["tagged"]) is torch.nn.Parameter and e["tagged"].requires_grad and e["tagged"].tag == "head"
    assert e["noted"].tolist() == [3, 4] and e["noted"].note == {"depth": 2}
    assert isinstance(e["buffer"], torch.nn.Buffer) and e["buffer"].persistent is False
    assert e["leaf"].requires_grad and e["leaf"].is_leaf and e["leaf"].tolist() == [7.0]
    assert e["conj"].tolist() == [1 - 2j, 3 + 4j]
    assert e["neg"].tolist() == [-2.0, 4.0]
    assert e["meta"].device.type == "meta" and e["meta"].shape == (2, 3) and e["meta"].dtype is torch.float16
    assert e["dtype"] is torch.float8_e5m2 and e["layout"] is torch.strided
    assert e["size"] == (2, 3) and type(e["size"]) is torch.Size and e["device"] == torch.device("cuda", 1)
    assert e["storage"].tolist() == [1, 0, 2, 0, 3, 0]
    assert e["plain"] == [
        None,
        True,
        -1,
        2**70,
        1.5,
        "é",
        b"\x00\xff",
        bytearray(b"ab"),
        1 - 2j,
        {1, 2},
        (),
        (1, (2, 3)),
    ]
    assert type(e["counter"]) is Counter and e["counter"] == {"a": 2, "b": 1}
    assert type(e["ordered"]) is OrderedDict and list(e["ordered"]) == ["b", "a"]


@trust
def test_state_dict_keeps_its_metadata(weights_only):
    state = torch.load(FILES / "module_state.pt", weights_only=weights_only)
    assert state["first.weight"].tolist() == [[0, 0.125], [0.25, 0.375], [0.5, 0.625]]
    assert state["norm.num_batches_tracked"].shape == () and state["norm.num_batches_tracked"].dtype is torch.int64
    assert state._metadata["norm"] == {"version": 2}


def test_whole_module_loads_when_trusted_and_computes():
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules\.container\.Sequential"):
        torch.load(FILES / "module.pt")
    model = torch.load(FILES / "module.pt", weights_only=False)
    assert type(model) is torch.nn.Sequential
    out = model.eval()(torch.ones(1, 2))
    # relu(norm(W @ 1 + b)) with running mean 0 and variance 1: (row sums + b) * w / sqrt(1 + eps) + b
    lin = [0.125, 0.75, 1.375]
    expected = [y * w / (1 + 1e-5) ** 0.5 + w for y, w in zip(lin, [0, 0.125, 0.25])]
    assert out.tolist()[0] == pytest.approx(expected, rel=1e-6)


def test_whole_module_loads_restricted_once_its_classes_are_listed():
    nn = torch.nn
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, nn.BatchNorm1d, nn.ReLU]):
        assert type(torch.load(FILES / "module.pt").act) is nn.ReLU


def test_optimizer_state():
    state = torch.load(FILES / "optimizer.pt")
    assert state["param_groups"][0]["betas"] == (0.9, 0.999)
    assert state["state"][3]["exp_avg"].tolist() == pytest.approx([0, 0.4, 0.4])


def test_generator_state_continues_torchs_stream():
    generator = torch.load(FILES / "generator.pt", weights_only=False)
    assert generator.initial_seed() == 7
    assert torch.rand(3, generator=generator).tolist() == torch.rand(3, generator=torch.Generator().manual_seed(7)).tolist()


def test_later_protocols_and_files_without_checksums():
    assert torch.load(FILES / "protocol4.pt")["b"] == b"xy"
    assert torch.load(FILES / "without_checksums.pt").tolist() == [1, 2, 4]


@trust
def test_torchscript_is_refused(weights_only):
    with pytest.raises(RuntimeError, match="TorchScript archive"):
        torch.load(FILES / "torchscript.pt", weights_only=weights_only)


def test_from_file_objects_and_offsets():
    data = (FILES / "views.pt").read_bytes()
    assert torch.load(io.BytesIO(data))["scalar"].item() == 7
    stream = io.BytesIO(b"head" + data)
    stream.seek(4)
    assert torch.load(stream)["scalar"].item() == 7
    legacy = (FILES / "views_legacy.pt").read_bytes()
    two = io.BytesIO(legacy + legacy)
    torch.load(two)
    assert two.tell() == len(legacy)
    assert torch.load(two)["scalar"].item() == 7


def test_bad_arguments():
    with pytest.raises(FileNotFoundError):
        torch.load(FILES / "nothing.pt")
    with pytest.raises(AttributeError, match="seekable"):
        torch.load(5)
    with pytest.raises(EOFError):
        torch.load(io.BytesIO())
    with pytest.raises(pickle.UnpicklingError, match="not a file written by torch"):
        torch.load(io.BytesIO(b"a text file"))
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        torch.load(FILES / "views.pt", pickle_module=pickle, weights_only=True)
    assert torch.load(FILES / "views.pt", pickle_module=pickle)["scalar"].item() == 7


def test_mmap_reads_lazily_and_keeps_changes_private():
    path = FILES / "views.pt"
    before = path.read_bytes()
    v = torch.load(path, mmap=True)
    assert v["part"].tolist() == [5, 6, 7, 8]
    v["x"].fill_(3.0)
    assert v["part"].tolist() == [3, 3, 3, 3] and path.read_bytes() == before
    assert v["part"].untyped_storage() is v["x"].untyped_storage()
    with pytest.raises(ValueError, match="must be a file path"):
        torch.load(io.BytesIO(before), mmap=True)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(FILES / "views_legacy.pt", mmap=True)


@pytest.mark.parametrize("name", ["views", "views_legacy"])
def test_map_location(name):
    path = FILES / f"{name}.pt"
    seen = []

    def keep(storage, location):
        seen.append((type(storage), location))
        return storage

    assert torch.load(path, map_location=keep)["scalar"].item() == 7
    assert seen == [(torch.UntypedStorage, "cpu")]
    assert torch.load(path, map_location=lambda storage, location: None)["scalar"].item() == 7
    for where in ("meta", torch.device("meta"), {"cpu": "meta"}):
        v = torch.load(path, map_location=where)
        assert v["turned"].device.type == "meta" and v["turned"].stride() == (1, 4)
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        torch.load(path, map_location="mars")
    with pytest.raises(TypeError, match="map_location"):
        torch.load(path, map_location=3)


@trust
@pytest.mark.parametrize("name", ["views", "views_legacy"])
def test_cuda_files_say_what_to_do_without_cuda(monkeypatch, name, weights_only):
    from tocha.backends import cuda

    monkeypatch.setattr(cuda, "device_count", lambda: 0)
    words = r"Attempting to deserialize object on a CUDA device but torch.cuda.is_available\(\) is False.*map_location"
    with pytest.raises(RuntimeError, match=words):
        torch.load(FILES / f"{name}.pt", map_location="cuda:0", weights_only=weights_only)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"on CUDA device 5 but torch.cuda.device_count\(\) is 2.*map_location"):
        torch.load(FILES / f"{name}.pt", map_location="cuda:5", weights_only=weights_only)


@trust
@pytest.mark.parametrize("name", ["views", "views_legacy"])
@pytest.mark.parametrize("error", [IndexError, KeyError, AssertionError, EOFError, OverflowError, ValueError])
def test_errors_of_map_location_are_not_the_files(name, error, weights_only):
    def fail(storage, location):
        raise error("mine")

    with pytest.raises(error, match="mine"):
        torch.load(FILES / f"{name}.pt", map_location=fail, weights_only=weights_only)


class Picky:
    def __setstate__(self, state):
        raise IndexError(f"no {state['size']}")


@trust
def test_errors_of_the_callers_classes_are_not_the_files(weights_only):
    made = Picky()
    made.size = 3
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    with torch.serialization.safe_globals([Picky]), pytest.raises(IndexError, match="no 3"):
        torch.load(file, weights_only=weights_only)
