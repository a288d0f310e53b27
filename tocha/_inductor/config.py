"""torch._inductor.config: the names that programs set. Kernels here are always fused, autotuned by measured heuristics and cached, and
random numbers are always eager's, so most change nothing; setting such a name says so once."""

from tocha.utils._config_module import install

_OFF = """
abi_compatible aggressive_fusion assume_aligned_inputs assert_indirect_indexing b2b_gemm_pass benchmark_combo_kernel benchmark_epilogue_fusion
benchmark_fusion benchmark_harness benchmark_kernel combo_kernels coordinate_descent_check_all_directions coordinate_descent_tuning cpp_wrapper
debug debug_fusion debug_ir_traceback decompose_mem_bound_mm developer_warnings disable_cpp_codegen disable_progress
emulate_precision_casts fallback_by_default force_disable_caches force_fuse_int_mm_with_mul force_layout_optimization force_same_precision
force_shape_pad freezing freezing_discard_parameters fx_graph_remote_cache graph_partition group_fusion_enabled is_nightly_or_source
keep_output_stride_eager loop_ordering_after_fusion max_autotune max_autotune_gemm max_autotune_pointwise memory_planning
nan_asserts profile_bandwidth profiler_mark_wrapper_call quiesce_async_compile_pool reorder_for_compute_comm_overlap search_autotune_cache
selective_decompose unsafe_ignore_unsupported_triton_autotune_args use_mixed_mm verbose_progress warn_mix_layout
triton.cudagraphs triton.cudagraph_skip_dynamic_graphs triton.cudagraph_support_input_mutation triton.debug_sync_graph triton.debug_sync_kernel
triton.dense_indexing triton.enable_persistent_tma_matmul triton.prefer_nd_tiling triton.skip_cudagraph_warmup
triton.use_block_ptr triton.cooperative_reductions cpp.enable_concat_linear cpp.enable_kernel_profile cpp.enable_tiling_heuristics
cpp.enable_unsafe_math_opt_flag cpp.fallback_scatter_reduce_sum cpp.use_decompose_tanh
trace.enabled trace.save_real_tensors trace.draw_orig_fx_graph trace.graph_diagram trace.log_autotuning_results
aot_inductor.debug_compile aot_inductor.package aot_inductor.use_runtime_constant_folding
""".split()
_ON = """
allow_buffer_reuse alignment_asserts autotune_fallback_to_aten autotune_local_cache batch_fusion_enabled comment_origin constant_and_index_propagation
conv_1x1_as_mm dce efficient_conv_bn_eval_fx_passes enable_auto_functionalized_v2 epilogue_fusion epilogue_fusion_first fallback_random
fx_graph_cache implicit_fallbacks inplace_buffers inplace_padding joint_graph_constant_folding keep_output_stride
layout_optimization optimize_scatter_upon_const_tensor padding_alignment_enabled pattern_matcher permute_fusion pick_loop_orders
prologue_fusion reorder_for_locality reorder_for_peak_memory scalar_asserts shape_padding size_asserts split_cat_fx_passes split_reductions
use_fast_math use_joint_graph_passes use_post_grad_passes use_pre_grad_passes worker_suppress_logging
triton.autotune_at_compile_time triton.autotune_cublasLt triton.autotune_pointwise triton.cudagraph_trees triton.persistent_reductions
triton.fast_path_cudagraph_asserts triton.slow_path_cudagraph_asserts triton.store_cubin triton.unique_kernel_names triton.unique_user_kernel_names
triton.reorder_for_reducing_graph_partitions cpp.dynamic_threads cpp.enable_floating_point_contract_flag cpp.enable_loop_tail_vec
cpp.enable_grouped_gemm_template cpp.no_redundant_loops cpp.vec_isa_ok cpp.weight_prepack
trace.fx_graph trace.fx_graph_transformed trace.ir_post_fusion trace.ir_pre_fusion trace.output_code
""".split()
_VALUES = {
    "compile_threads": 1,
    "autotune_num_choices_displayed": 10,
    "combo_kernel_allow_mixed_sizes": 1,
    "max_autotune_conv_backends": "ATEN,TRITON",
    "max_autotune_flex_search_space": "DEFAULT",
    "max_autotune_gemm_backends": "ATEN,TRITON,CPP",
    "max_autotune_gemm_search_space": "DEFAULT",
    "max_epilogue_benchmarked_choices": 1,
    "max_fusion_size": 64,
    "max_pointwise_cat_inputs": 8,
    "realize_acc_reads_threshold": 8,
    "realize_opcount_threshold": 30,
    "realize_reads_threshold": 4,
    "score_fusion_memory_threshold": 10,
    "unroll_reductions_threshold": 8,
    "joint_custom_post_pass": None,
    "joint_custom_pre_pass": None,
    "post_grad_custom_post_pass": None,
    "post_grad_custom_pre_pass": None,
    "pre_grad_custom_pass": None,
    "pre_grad_fusion_options": {},
    "post_grad_fusion_options": {},
    "custom_should_partition_ops": [],
    "triton.descriptive_names": "original_aten",
    "triton.max_tiles": None,
    "triton.multi_kernel": 0,
    "cpp.cxx": (None, "g++"),
    "cpp.gemm_cache_blocking": None,
    "cpp.gemm_max_k_slices": 1,
    "cpp.max_horizontal_fusion_size": 16,
    "cpp.min_chunk_size": 512,
    "cpp.simdlen": None,
    "cpp.threads": -1,
    "trace.debug_dir": None,
    "trace.upload_tar": None,
    "aot_inductor.output_path": "",
    "cuda.arch": None,
    "cuda.compile_opt_level": "-O1",
    "cuda.cutlass_dir": "",
    "cuda.version": None,
}

install(
    __name__,
    {**dict.fromkeys(_OFF, False), **dict.fromkeys(_ON, True), **_VALUES},
    # These ask for what happens anyway.
    (
        "fallback_random",
        "freezing",
        "fx_graph_cache",
        "dce",
        "pattern_matcher",
        "epilogue_fusion",
        "emulate_precision_casts",
        "max_autotune",
        "max_autotune_pointwise",
    ),
)
