"""Small modules that libraries import: what they answer, and what they refuse."""

import subprocess
import sys

import pytest

import tocha as torch
from tocha.torch_version import TorchVersion


def test_versions_compare_as_versions():
    v = TorchVersion("2.13.0")
    assert v >= (2, 6) and v > "2.9" and v == "2.13" and v < "2.13.1" and v >= "2.13.0a0" and v <= (2, 13)
    assert TorchVersion("2.13.0.dev1") < "2.13.0" and v.split(".")[0] == "2" and v + "+cpu" == "2.13.0+cpu"
    assert isinstance(torch.__version__, str)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.jit.trace(lambda x: x, ()), lambda: torch.jit.load("x.pt"),
        lambda: torch.onnx.export(), lambda: torch.distributed.init_process_group(), lambda: torch.profiler.profile(),
        lambda: torch.SymInt(), lambda: torch.hub.load("someone/repo", "model"),
    ],
)  # fmt: skip
def test_what_is_not_there_says_so(call):
    with pytest.raises(RuntimeError):
        call()


def test_plain_python_is_never_scripted_nor_compiled():
    assert not torch.jit.is_scripting() and not torch.jit.is_tracing() and not torch.compiler.is_compiling()
    f = torch.jit.ignore(torch.jit.unused(torch.jit.export(torch.jit.script_if_tracing(len))))
    assert f is len and torch.jit.script(len) is len and torch.jit.ignore(drop=True)(len) is len
    assert not torch.distributed.is_available() and not torch.xpu.is_available()


def test_compiled_functions_and_modules_answer_as_the_originals():
    f = torch.compile(lambda x: x + 1)
    assert f(torch.ones(1)).item() == 2.0

    @torch.compile(backend="eager", fullgraph=True)
    def g(x):
        return x * 2

    assert g(torch.ones(1)).item() == 2.0 and g.__name__ == "g"
    linear = torch.nn.Linear(2, 2)
    model = torch.compile(linear, backend="eager")
    assert list(model.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"] and model.weight is linear.weight
    model.train(False)
    assert not linear.training and torch.equal(model(torch.ones(1, 2)), linear(torch.ones(1, 2)))


def test_futures():
    f = torch.futures.Future()
    g = f.then(lambda done: done.value() + 1)
    assert not f.done()
    f.set_result(3)
    assert (f.wait(), g.wait(), torch.futures.wait_all([f, g])) == (3, 4, [3, 4])
    with pytest.raises(RuntimeError):
        f.set_result(1)
    h = f.then(lambda done: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        h.wait()
    assert torch.jit.wait(torch.jit.fork(len, [1, 2])) == 2


def test_hub_loads_from_folders_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_dir", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert torch.hub.get_dir() == str(tmp_path / "hub") and torch.hub._get_torch_home() == str(tmp_path)
    (tmp_path / "hubconf.py").write_text("dependencies = []\ndef two(k=1):\n    'Doubles.'\n    return 2 * k\n")
    assert torch.hub.load(str(tmp_path), "two", source="local", k=3) == 6
    assert torch.hub.list(str(tmp_path)) == ["two"] and torch.hub.help(str(tmp_path), "two") == "Doubles."
    with pytest.raises(RuntimeError, match="Cannot find callable three"):
        torch.hub.load(str(tmp_path), "three", source="local")
    source = tmp_path / "weights.pt"
    torch.save({"a": torch.ones(2)}, source)
    loaded = torch.hub.load_state_dict_from_url(source.as_uri(), progress=False)
    assert loaded["a"].tolist() == [1.0, 1.0] and (tmp_path / "hub" / "checkpoints" / "weights.pt").exists()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        torch.hub.download_url_to_file(source.as_uri(), str(tmp_path / "x"), hash_prefix="0000", progress=False)
    assert not (tmp_path / "x").exists()
    with pytest.raises(RuntimeError, match="can't be opened"):
        torch.hub.download_url_to_file((tmp_path / "missing").as_uri(), str(tmp_path / "x"), progress=False)


def test_settings():
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("default")
    assert not torch.are_deterministic_algorithms_enabled()
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    torch.set_default_tensor_type("torch.DoubleTensor")
    assert torch.ones(1).dtype is torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.ones(1).dtype is torch.float32
    assert torch.cond(torch.tensor(False), lambda x: x, lambda x: -x, (torch.ones(1),)).item() == -1.0
    assert torch.while_loop(lambda i: i < 5, lambda i: (i + 2,), (0,)) == (6,)


def test_default_device_belongs_to_a_thread():
    import threading

    seen = []
    with torch.device("meta"):
        assert torch.empty(1).is_meta
        thread = threading.Thread(target=lambda: seen.append(torch.empty(1).device.type))
        thread.start()
        thread.join()
    assert seen == ["cpu"] and torch.empty(1).is_cpu


def test_data_pipes():
    from tocha.utils.data import IterDataPipe, functional_datapipe
    from tocha.utils.data.datapipes.iter import IterableWrapper

    assert list(IterableWrapper(range(5)).map(lambda x: x * 2).batch(2)) == [[0, 2], [4, 6], [8]]

    @functional_datapipe("every_second_for_test")
    class Second(IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            return (x for i, x in enumerate(self.source) if i % 2)

    assert list(IterableWrapper(range(5)).every_second_for_test()) == [1, 3]


MODULES = """
_C __config__ _custom_ops _dynamo.utils _jit_internal _tensor_str accelerator ao.quantization autograd.anomaly_mode
autograd.forward_ad autograd.function autograd.functional autograd.grad_mode autograd.graph autograd.profiler compiler cpu
distributed func functional futures hub jit.annotations library multiprocessing.reductions onnx.symbolic_helper
onnx.symbolic_opset11 ops overrides profiler return_types torch_version types utils._python_dispatch utils._pytree
utils.checkpoint utils.data.datapipes.iter utils.model_zoo xpu
""".split()


def test_modules_can_be_imported_first():
    """Each in a fresh state: no module needs another to be imported before it."""
    code = "import importlib, sys\n" + "".join(f"importlib.import_module('tocha.{m}')\n" for m in MODULES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_name_that_is_listed_is_there():
    assert [name for name in dir(torch) if not hasattr(torch, name)] == []


def test_modules_of_nn_need_no_import_of_their_own():
    assert torch.nn.grad.conv2d_input and torch.nn.attention.SDPBackend and torch.nn.common_types
