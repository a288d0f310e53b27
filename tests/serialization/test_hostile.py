"""Damaged and malicious files end in a clear error: no code runs, nothing huge is allocated."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import pickle
import random
import struct
import time
import tracemalloc
import zlib

import pytest

import tocha as torch
from tocha import serialization
from tocha.serialization._restricted import Interpreter
from tocha.serialization._zip_read import ZipReader
from tocha.serialization._zip_write import ZipWriter

FILES = pathlib.Path(__file__).parents[1] / "fixtures" / "torch_files"
CLEAR = (RuntimeError, pickle.UnpicklingError, EOFError)


def archive(data, records=None, root="archive"):
    """A zip file with this data.pkl and these storages."""
    out = io.BytesIO()
    writer = ZipWriter(out.write, root)
    writer.record("data.pkl", data)
    writer.record("byteorder", b"little")
    for name, content in (records or {}).items():
        writer.record(name, content)
    writer.record("version", b"3\n")
    writer.finish()
    return io.BytesIO(out.getvalue())


def tensor_pickle(count=2, offset=0, size=(2,), stride=(1,), key="0", kind=b"FloatStorage", extra=b""):
    """The pickle of one tensor, with any numbers in it."""

    def plain(value):
        return pickle.dumps(value, 2)[2:-1]

    pid = b"(" + plain("storage") + b"ctorch\n" + kind + b"\n" + plain(key) + plain("cpu") + plain(count) + b"t"
    arguments = b"(" + pid + b"Q" + plain(offset) + plain(size) + plain(stride) + b"\x89}" + extra + b"t"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


FOUR = {"data/0": struct.pack("<2f", 1, 2)}


def test_the_crafted_tensor_is_right_when_its_numbers_are():
    assert torch.load(archive(tensor_pickle(), FOUR)).tolist() == [1, 2]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"count": 3}, "8 bytes, 3 elements"),
        ({"count": 2**60}, "8 bytes"),
        ({"count": -1}, "damaged"),
        ({"count": True}, "damaged"),
        ({"size": (3,)}, "out of bounds"),
        ({"size": (2**62, 2**62), "stride": (1, 1)}, "out of bounds"),
        ({"size": (2**62, 2**62), "stride": (0, 0)}, "setStorage"),
        ({"offset": -1}, "must not be negative"),
        ({"offset": 2}, "out of bounds"),
        ({"stride": (-1,)}, "must not be negative"),
        ({"size": (-2,)}, "must not be negative"),
        ({"stride": (1, 1)}, "mismatch"),
        ({"size": "ab"}, "damaged"),
        ({"key": "1"}, "'data/1' is missing"),
        ({"key": "../data/0"}, "is missing"),
        ({"key": 0}, "damaged"),
        ({"kind": b"Size"}, "damaged"),
    ],
)  # fmt: skip
def test_geometry_is_checked_against_the_storage(options, message):
    with pytest.raises(CLEAR, match=message):
        torch.load(archive(tensor_pickle(**options), FOUR))


def test_lazy_conjugation_does_not_write_out_repetition():
    conj = pickle.dumps({"conj": True}, 2)[2:-1]
    wide = tensor_pickle(count=1, size=(2**50,), stride=(0,), kind=b"ComplexFloatStorage", extra=conj)
    assert torch.load(archive(wide, FOUR))[5].item() == 1 - 2j
    window = tensor_pickle(count=1000, size=(500, 500), stride=(1, 1), kind=b"ComplexFloatStorage", extra=conj)
    assert torch.load(archive(window, {"data/0": bytes(8000)}))[499, 499].item() == 0


MARK = []


def tripwire(*args):
    MARK.append(args)


CALLS = [(tripwire, ()), (os.system, ("true",)), (eval, ("1",)), (getattr, ("", "join"))]


class Evil:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("function, args", CALLS)
def test_calls_are_refused_by_name_and_not_made(function, args, protocol, legacy):
    buffer = io.BytesIO()
    options = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": not legacy}
    torch.save({"w": torch.ones(2), "x": Evil(function, *args)}, buffer, **options)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=rf"Weights only load failed.*{function.__name__}"):
        torch.load(buffer)
    assert MARK == []


def test_unsafe_globals_are_listed_without_running():
    buffer = io.BytesIO()
    torch.save([torch.ones(1), Evil(tripwire), Evil(os.system, "true")], buffer)
    buffer.seek(0)
    found = serialization.get_unsafe_globals_in_checkpoint(buffer)
    assert [name.rpartition(".")[2] for name in found] == ["tripwire", "system"] and MARK == []


def test_blocked_modules_stay_blocked_when_listed():
    buffer = io.BytesIO()
    torch.save(Evil(os.system, "true"), buffer)
    buffer.seek(0)
    with serialization.safe_globals([os.system]), pytest.raises(pickle.UnpicklingError, match="system"):
        torch.load(buffer)


def nested_tuple(depth):
    return b"\x80\x02)" + b"\x85" * depth


ABUSES = {
    "a class by NEWOBJ": (b"\x80\x02ctorch\nTensor\n(J\xff\xff\xff\x7ft\x81.", "calls torch.Tensor"),
    "a class by REDUCE": (b"\x80\x02ctorch\nTensor\n(J\xff\xff\xff\x7ftR.", "calls torch.Tensor"),
    "an allocation": (b"\x80\x02c__builtin__\nbytearray\n(J\xff\xff\xff\x7ftR.", "latin1 only"),
    "an allocation through a rebuild": (
        b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(c__builtin__\nbytearray\nctorch\nTensor\n(J\xff\xff\xff\x7ft}tR.",
        "own rebuild functions only",
    ),
    "a codec that inflates": (b"\x80\x02c_codecs\nencode\n(X\1\0\0\0aX\3\0\0\0hextR.", "latin1 only"),
    "a set of a number": (b"\x80\x02c__builtin__\nset\n(K\5tR.", "set takes a list"),
    "state of a class": (b"\x80\x02ctorch\nTensor\n}X\1\0\0\0aK\1sb.", "sets the state"),
    "state of a function": (b"\x80\x02ctorch._utils\n_rebuild_tensor\n}X\1\0\0\0aK\1sb.", "sets the state"),
    "append to a dict": (b"\x80\x02}K\1a.", "can't append to a dict"),
    "items of a list": (b"\x80\x02]K\1K\2s.", "can't set items of a list"),
    "INST": (b"\x80\x02(ios\nsystem\n.", "opcode 0x69"),
    "OBJ": (b"\x80\x02(cos\nsystem\no.", "GLOBAL os.system"),
    "EXT1": (b"\x80\x02\x82\x01.", "opcode 0x82"),
    "a text persistent id": (b"\x80\x02P0\n.", "opcode 0x50"),
    "a memo hole": (b"\x80\x02h\5.", "memo entry 5"),
    "a huge string": (b"\x80\x02X\xff\xff\xff\xff.", "truncated"),
    "huge bytes": (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "truncated"),
    "a negative length": (b"\x80\x02\x8b\xff\xff\xff\xff.", "truncated"),
    "an empty stack": (b"\x80\x020.", "truncated"),
    "no mark": (b"\x80\x02K\1t.", "no MARK"),
    "a mark as value": (b"\x80\x02(.", "more or less than one"),
    "a mark in a tuple": (b"\x80\x02(K\1\x86.", "too few objects"),
    "two results": (b"\x80\x02K\1K\2.", "more or less than one"),
    "no stop": (b"\x80\x02K\1", "truncated"),
    "an unterminated name": (b"\x80\x02ctorch" + b"x" * 5000, "not terminated"),
    "an unknown protocol": (b"\x80\xffK\1.", "protocol 255"),
    "an unhashable key": (b"\x80\x02}]K\1s.", "unhashable"),
    "a deep key": (b"\x80\x02}" + nested_tuple(100_000)[2:] + b"K\1s.", "nested too deeply"),
    "a deep set member": (b"\x80\x04\x8f(" + nested_tuple(100_000)[2:] + b"\x90.", "nested too deeply"),
    "a key with 2**60 leaves": (b"\x80\x02})" + b"q\1h\1\x86" * 60 + b"K\1s.", "nested too deeply"),
    "odd items": (b"\x80\x02}(K\1u.", "no value"),
}


@pytest.mark.parametrize("data, message", ABUSES.values(), ids=ABUSES.keys())
def test_pickles_that_abuse_the_machine(data, message):
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(CLEAR, match=message):
        torch.load(archive(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000 and time.process_time() - started < 10


def test_large_memo_indices_and_deep_lists_are_harmless():
    assert Interpreter(b"\x80\x02K\7r\xff\xff\xff\xffj\xff\xff\xff\xff\x86.").load() == (7, 7)
    deep = Interpreter(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".").load()
    for _ in range(99_999):
        (deep,) = deep
    assert deep == []


def test_checksums_are_verified():
    data = bytearray((FILES / "views.pt").read_bytes())
    data[data.find(struct.pack("<2f", 5, 6))] ^= 1
    with pytest.raises(RuntimeError, match="checksum of record 'data/0'"):
        torch.load(io.BytesIO(data))


def test_every_truncation_is_noticed():
    data = (FILES / "views.pt").read_bytes()
    for length in range(len(data)):
        with pytest.raises(CLEAR):
            torch.load(io.BytesIO(data[:length]))
    legacy = (FILES / "views_legacy.pt").read_bytes()
    for length in range(len(legacy)):
        with pytest.raises(CLEAR):
            torch.load(io.BytesIO(legacy[:length]))


def deflated(content, claimed):
    """An archive whose data.pkl is stored compressed and claims a size."""
    name, engine = b"a/data.pkl", zlib.compressobj(9, zlib.DEFLATED, -15)
    body = engine.compress(content) + engine.flush()
    crc = zlib.crc32(content)
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 0, crc, len(body), claimed, len(name), 0) + name + body
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 0, crc, len(body), claimed, len(name), *[0] * 6)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(entry) + len(name), len(local), 0)
    return io.BytesIO(local + entry + name + end)


def test_compressed_archives_open_and_bombs_do_not():
    content = pickle.dumps([1, 2], 2)
    assert torch.load(deflated(content, len(content))) == [1, 2]
    for claimed in (len(content) - 1, len(content) + 1):
        with pytest.raises(RuntimeError, match="inflates to"):
            torch.load(deflated(content, claimed))
    with pytest.raises(RuntimeError, match="claim to inflate"):
        torch.load(deflated(bytes(1 << 25), 1 << 25))


def test_overlapping_and_repeated_records_are_refused():
    data = archive(tensor_pickle(), FOUR).getvalue()
    at = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", at + 1)
    doubled = bytearray(data)
    doubled[second + 42 : second + 46] = doubled[at + 42 : at + 46]
    with pytest.raises(RuntimeError, match="overlaps another"):
        torch.load(io.BytesIO(doubled))
    out = io.BytesIO()
    writer = ZipWriter(out.write, "a")
    writer.record("data.pkl", b"\x80\x02K\1.")
    writer.record("data.pkl", b"\x80\x02K\2.")
    writer.finish()
    with pytest.raises(RuntimeError, match="two records are named"):
        torch.load(io.BytesIO(out.getvalue()))


@pytest.mark.parametrize(
    "at, layout, value, message",
    [
        (-12, "<H", 60_000, "does not fit"),
        (-10, "<I", 0xFFFFFFF0, "does not fit"),
        (-6, "<I", 0xFFFFFFF0, "does not fit"),
        (-6, "<I", 3, "directory is damaged"),
        (-22, "<I", 0, "failed finding central directory"),
        (-18, "<H", 3, "several parts"),
    ],
)
def test_the_end_record_is_checked(at, layout, value, message):
    data = bytearray(deflated(b"\x80\x02K\1.", 5).getvalue())
    struct.pack_into(layout, data, len(data) + at, value)
    with pytest.raises(RuntimeError, match=message):
        torch.load(io.BytesIO(data))


def test_big_endian_files_are_swapped():
    out = io.BytesIO()
    writer = ZipWriter(out.write, "a")
    writer.record("data.pkl", tensor_pickle())
    writer.record("byteorder", b"big")
    writer.record("data/0", struct.pack(">2f", 1, 2))
    writer.finish()
    assert torch.load(io.BytesIO(out.getvalue())).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="byte order"):
        torch.load(io.BytesIO(out.getvalue().replace(b"big", b"pig").replace(struct.pack("<I", zlib.crc32(b"big")), bytes(4))))


def test_legacy_sizes_are_checked_before_memory_is_taken():
    data = (FILES / "views_legacy.pt").read_bytes()
    count = data.index(struct.pack("<q", 12) + struct.pack("<2f", 0, 1))
    wrong = data[:count] + struct.pack("<q", 2**60) + data[count + 8 :]
    with pytest.raises(RuntimeError, match="should have 12 elements"):
        torch.load(io.BytesIO(wrong))
    huge = data.replace(b"X\x03\x00\x00\x00cpuq\x06K\x0c", b"X\x03\x00\x00\x00cpuq\x06J\xff\xff\xff\x7f", 1)
    assert huge != data
    with pytest.raises(RuntimeError, match="more than the file has"):
        torch.load(io.BytesIO(huge))


def mutate(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        i, kind = rng.randrange(len(data)), rng.randrange(5)
        if kind == 0:
            data[i] = rng.randrange(256)
        elif kind == 1:
            del data[i : i + rng.randrange(1, 9)]
        elif kind == 2:
            data[i:i] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            data[i : i + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", bytes(4)))
        else:
            data[i] = rng.choice(b"()tR}]qhQcbsuae0123.")
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("name", ["views", "extras", "dtypes_legacy", "optimizer", "protocol4"])
def test_random_damage(name):
    rng = random.Random(f"damage to {name}")
    data = (FILES / f"{name}.pt").read_bytes()
    for _ in range(150):
        damaged = io.BytesIO(mutate(data, rng))
        if not name.endswith("legacy") and rng.random() < 0.7:  # damage inside the pickle, under a right checksum
            reader = ZipReader(io.BytesIO(data))
            records = {n: bytes(reader.read(n)) for n in reader.names() if n.startswith("data/")}
            damaged = archive(mutate(bytes(reader.read("data.pkl")), rng), records)
        with contextlib.suppress(CLEAR):
            torch.load(damaged, map_location="cpu")
