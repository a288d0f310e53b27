"""torch._dynamo.config: settings of capture, read at each compilation."""

from __future__ import annotations

from tocha.utils._config_module import install as _install

#: Variants of one function, or of one place where a graph broke, that are kept; further ones run eagerly.
recompile_limit = 8
cache_size_limit = 8
accumulated_recompile_limit = 256
#: Whether a backend's failure is a warning and the graph runs eagerly.
suppress_errors = False
verbose = False
fail_on_recompile_limit_hit = False
error_on_recompile = False
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
disable = False
#: Frames that inlined calls may nest, and instructions of a trace: beyond, the graph breaks.
inline_depth_limit = 60
trace_limit = 400_000


def limit() -> int:
    """The recompile limit; `cache_size_limit` is its older name."""
    return min(recompile_limit, cache_size_limit)


_OFF = """
allow_complex_guards_as_runtime_asserts allow_empty_graphs allow_unspec_int_on_nn_module compiled_autograd cprofile do_not_emit_runtime_asserts
dont_skip_tracing enable_compiler_collectives inline_torch_dispatch_torch_compile log_compilation_metrics nested_graph_breaks
only_allow_pt2_compliant_ops print_graph_breaks print_specializations raise_on_backend_change raise_on_ctx_manager_usage
record_compile_time_instruction_count replay_record_enabled report_all_guard_failures report_guard_failures run_gc_after_compile
skip_code_recursive_on_recompile_limit_hit skip_nnmodule_hook_guards skip_torchrec specialize_float specialize_int trace_distributed
translation_validation use_numpy_random_stream
""".split()
_ON = """
allow_rnn assume_dunder_attributes_remain_unchanged capture_autograd_function capture_func_transforms enable_cpp_symbolic_shape_guards
error_on_nested_fx_trace error_on_nested_jit_trace force_nn_module_property_static_shapes force_parameter_static_shapes guard_nn_modules
guard_nn_modules_using_dict_tags inline_inbuilt_nn_modules optimize_ddp prefer_deferred_runtime_asserts_over_guards
rewrite_assert_with_torch_assert skip_fsdp_guards skip_fsdp_hooks skip_tensor_guards_with_matching_dict_tags trace_numpy use_lazy_graph_module
""".split()
_OTHERS: dict[str, object] = {
    "constant_functions": {}, "debug_dir_root": "torch_compile_debug", "ignore_logger_methods": set(), "log_file_name": None, "log_level": 30,
    "minimum_call_count": 1, "numpy_default_complex": "complex128", "numpy_default_float": "float64", "numpy_default_int": "int64",
    "output_code": False, "output_graph_code": None, "reorderable_logging_functions": set(), "repro_after": None, "repro_level": 2,
    "traceable_tensor_subclasses": set(),
}  # fmt: skip
# Names that programs set and that change nothing here.
_install(__name__, dict.fromkeys(_OFF, False) | dict.fromkeys(_ON, True) | _OTHERS)
