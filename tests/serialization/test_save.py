"""What `save` writes: torch's bytes, shared storages once, whole files or none."""

from __future__ import annotations

import collections
import io
import os
import pathlib
import pickle
import stat
import zipfile

import pytest

import tocha as torch
from tocha import serialization

FILES = pathlib.Path(__file__).parents[1] / "fixtures" / "torch_files"


def roundtrip(obj, **options):
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    buffer.seek(0)
    return torch.load(buffer)


@pytest.mark.parametrize("name", ["views", "dtypes", "module_state", "optimizer"])
def test_bytes_are_torchs_but_for_the_id(name, tmp_path):
    original = FILES / f"{name}.pt"
    copy = tmp_path / f"{name}.pt"
    torch.save(torch.load(original), copy)
    with zipfile.ZipFile(original) as a, zipfile.ZipFile(copy) as b:
        assert a.namelist() == b.namelist() and b.testzip() is None
        for ours, theirs in zip(b.infolist(), a.infolist()):
            assert (ours.header_offset, ours.flag_bits) == (theirs.header_offset, theirs.flag_bits)
            if not ours.filename.endswith("serialization_id"):
                assert b.read(ours) == a.read(theirs), ours.filename
    assert copy.stat().st_size == original.stat().st_size


@pytest.mark.parametrize("legacy", [False, True])
def test_views_saved_together_share_after_loading(legacy):
    x = torch.arange(100.0)
    a, v = roundtrip([x, x[5:9]], _use_new_zipfile_serialization=not legacy)
    a[6] = -1.0
    assert v.tolist() == [5.0, -1.0, 7.0, 8.0]
    assert roundtrip(x[95:], _use_new_zipfile_serialization=not legacy).tolist() == [95, 96, 97, 98, 99]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(legacy, protocol):
    found = roundtrip(
        {"t": torch.ones(2, dtype=torch.float8_e5m2), "b": b"\xff", "s": {1}, "d": torch.float16},
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=not legacy,
    )
    assert found["t"].dtype is torch.float8_e5m2 and found["t"].tolist() == [1, 1]
    assert found["b"] == b"\xff" and found["s"] == {1} and found["d"] is torch.float16


def test_shapes_that_storages_find_hard():
    x = torch.arange(6.0).view(2, 3)
    cases = [
        x.t(),
        x[:, 1],
        x.expand(4, 2, 3),
        x[1:1],
        torch.tensor(3.0),
        torch.zeros(0, 3),
        torch.ones(1, 0, 2),
    ]
    for got, case in zip(roundtrip(cases), cases):
        assert got.tolist() == case.tolist() and got.shape == case.shape and got.dtype is case.dtype
        assert not case.numel() or got.stride() == case.stride()


def test_non_leaf_becomes_a_leaf_that_requires_grad():
    x = torch.ones(2, requires_grad=True) * 2
    got = roundtrip(x)
    assert got.requires_grad and got.is_leaf and got.tolist() == [2, 2]


def test_storages_and_odd_lengths():
    raw = torch.arange(5, dtype=torch.uint8)
    assert roundtrip(raw.untyped_storage()).tolist() == [0, 1, 2, 3, 4]
    assert roundtrip(raw.storage()).tolist() == [0, 1, 2, 3, 4]


def test_one_memory_as_two_dtypes_is_refused():
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        torch.save([x, x.view(torch.int32)], io.BytesIO())


def test_globals_are_written_under_torchs_names():
    buffer = io.BytesIO()
    torch.save(torch.nn.Sequential(torch.nn.Linear(1, 1)), buffer)
    with zipfile.ZipFile(buffer) as archive:
        data = archive.read("archive/data.pkl")
    assert b"tocha" not in data and b"ctorch.nn.modules.linear\nLinear\n" in data
    buffer.seek(0)
    assert type(torch.load(buffer, weights_only=False)[0]) is torch.nn.Linear


def test_unpicklable_objects_leave_the_file_alone(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(1, path)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        torch.save(lambda: 1, path)
    with pytest.raises(TypeError, match="contiguous_format"):
        torch.save(torch.contiguous_format, path)
    assert torch.load(path) == 1 and os.listdir(tmp_path) == ["x.pt"]


def test_bad_targets(tmp_path):
    with pytest.raises(AttributeError, match="'write' attribute"):
        torch.save(1, 5)
    with pytest.raises(RuntimeError, match="Parent directory"):
        torch.save(1, tmp_path / "no" / "x.pt")
    with pytest.raises(IsADirectoryError):
        torch.save(1, tmp_path)
    with pytest.raises(RuntimeError, match="meta"):
        torch.save(torch.ones(2, device="meta").untyped_storage(), io.BytesIO())


def test_write_only_targets():
    class Pipe:
        def __init__(self):
            self.parts = []

        def write(self, data):
            self.parts.append(bytes(data))

    pipe = Pipe()
    torch.save([torch.ones(2)], pipe)
    assert torch.load(io.BytesIO(b"".join(pipe.parts)))[0].tolist() == [1, 1]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.pt"
    torch.save("old", path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # longer files fail as on a full disk
    try:
        with pytest.raises(OSError, match="too large"):
            torch.save(torch.zeros(1_000_000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert torch.load(path) == "old" and os.listdir(tmp_path) == ["x.pt"]


def test_a_killed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.pt"
    torch.save("old", path)
    child = os.fork()
    if child == 0:
        os.fsync = lambda descriptor: os._exit(9)
        torch.save(torch.zeros(1000), path)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert torch.load(path) == "old"


def test_permissions_and_links_are_kept(tmp_path):
    real = tmp_path / "real.pt"
    torch.save(1, real)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~umask
    real.chmod(0o640)
    link = tmp_path / "link.pt"
    link.symlink_to(real)
    torch.save(2, link)
    assert link.is_symlink() and torch.load(real) == 2 and stat.S_IMODE(real.stat().st_mode) == 0o640


def test_special_files_are_written_in_place():
    torch.save(torch.ones(2), os.devnull)
    assert not pathlib.Path(os.devnull).is_file()


def test_checksums_can_be_left_out():
    serialization.set_crc32_options(False)
    try:
        buffer = io.BytesIO()
        torch.save(torch.ones(2), buffer)
    finally:
        serialization.set_crc32_options(True)
    with zipfile.ZipFile(buffer) as archive:
        assert {info.CRC for info in archive.infolist()} == {0}
    buffer.seek(0)
    assert torch.load(buffer).tolist() == [1, 1]


Point = collections.namedtuple("Point", "x y")


def test_user_classes_need_trust_or_listing():
    buffer = io.BytesIO()
    torch.save(Point(torch.ones(1), 2), buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).y == 2
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Point was not an allowed global"):
        torch.load(buffer)
    buffer.seek(0)
    with serialization.safe_globals([Point]):
        assert torch.load(buffer).y == 2
    assert Point not in serialization.get_safe_globals()


def test_skip_data_leaves_room_and_reads_none():
    x = torch.arange(4.0)
    tensors = {"a": x, "b": x[1:], "n": torch.ones(2, dtype=torch.int64)}
    room, full = io.BytesIO(), io.BytesIO()
    torch.save(tensors, full)
    with torch.serialization.skip_data(), torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(tensors, room)
    assert len(room.getvalue()) == len(full.getvalue())
    room.seek(0)
    made = torch.load(room)
    assert made["a"].tolist() == [0] * 4 and made["n"].dtype is torch.int64
    assert made["b"].untyped_storage() is made["a"].untyped_storage()
    full.seek(0)
    with torch.serialization.skip_data():
        empty = torch.load(full)
        with pytest.raises(RuntimeError, match="zip"):
            torch.save(tensors, io.BytesIO(), _use_new_zipfile_serialization=False)
    assert empty["b"].shape == (3,) and empty["b"].storage_offset() == 1
    full.seek(0)
    assert torch.load(full)["b"].tolist() == [1, 2, 3]
