"""The shapes that operators want of their operands, where random ones would nearly always be refused.

Each letter is one size; the same letter is the same size in all of a call's operands.  What is missing
here takes operands of any shapes, or of shapes that can be broadcast.
"""

from __future__ import annotations

_CONV = {
    1: {"input": "bcl", "weight": "ocj", "bias": "o"},
    2: {"input": "bchw", "weight": "ocjk", "bias": "o"},
    3: {"input": "bclhw", "weight": "ocijk", "bias": "o"},
}
_TRANSPOSED = {
    1: {"input": "bcl", "weight": "coj", "bias": "o"},
    2: {"input": "bchw", "weight": "cojk", "bias": "o"},
    3: {"input": "bclhw", "weight": "coijk", "bias": "o"},
}
_IMAGES = {
    1: {"self": "bcl", "input": "bcl"},
    2: {"self": "bchw", "input": "bchw"},
    3: {"self": "bclhw", "input": "bclhw"},
}

# By the names of operators that want the same.
_SHAPES: dict[str, dict[str, str]] = {
    "mm": {"self": "nm", "mat2": "mp"},
    "bmm": {"self": "bnm", "mat2": "bmp"},
    "addmm addmm_": {"self": "np", "mat1": "nm", "mat2": "mp"},
    "baddbmm baddbmm_": {"self": "bnp", "batch1": "bnm", "batch2": "bmp"},
    "addbmm addbmm_": {"self": "np", "batch1": "bnm", "batch2": "bmp"},
    "mv": {"self": "nm", "vec": "m"},
    "addmv addmv_": {"self": "n", "mat": "nm", "vec": "m"},
    "addr addr_": {"self": "nm", "vec1": "n", "vec2": "m"},
    "dot": {"self": "n", "tensor": "n"},
    "vdot": {"self": "n", "other": "n"},
    "ger outer": {"self": "n", "vec2": "m"},
    "inner": {"self": "nm", "other": "pm"},
    "matmul": {"self": "bnm", "other": "mp"},
    "linalg_matmul": {"self": "nm", "other": "bmp"},
    "linear": {"input": "bnm", "weight": "pm", "bias": "p"},
    "bilinear": {"input1": "bn", "input2": "bm", "weight": "onm", "bias": "o"},
    "layer_norm native_layer_norm rms_norm": {"input": "bnm", "weight": "m", "bias": "m"},
    "group_norm batch_norm native_batch_norm instance_norm": {
        "input": "bchw", "weight": "c", "bias": "c", "running_mean": "c", "running_var": "c",
    },
    "prelu": {"self": "bc", "weight": "c"},
    "embedding": {"weight": "nm", "indices": "bl"},
    "cdist": {"x1": "bnm", "x2": "bpm"},
    "pdist": {"self": "nm"},
    "cosine_similarity": {"x1": "bn", "x2": "bn"},
    "nll_loss nll_loss_forward nll_loss_nd cross_entropy_loss": {"self": "bc", "target": "b", "weight": "c"},
    "nll_loss2d nll_loss2d_forward": {"self": "bchw", "target": "bhw", "weight": "c"},
    "grid_sampler grid_sampler_2d": {"input": "bchw", "grid": "blj2"},
    "grid_sampler_3d": {"input": "bclhw", "grid": "bijk3"},
    "cross linalg_cross": {"self": "n3", "other": "n3"},
    "view_as_complex view_as_complex_copy": {"self": "nm2"},
    "chain_matmul": {},
    "conv_tbc": {"self": "lbc", "weight": "jco", "bias": "o"},
    "convolution": _CONV[2],
    "slow_conv_dilated2d slow_conv_transpose2d": {"self": "bchw", "weight": "ccjk", "bias": "c"},
    "pixel_shuffle": {"self": "b4hw"},
    "pixel_unshuffle channel_shuffle native_channel_shuffle im2col": {"self": "bchw"},
    "linalg_solve_triangular": {"self": "bnn", "B": "bnp"},
    "triangular_solve": {"self": "bnp", "A": "bnn"},
    "cholesky_solve": {"self": "bnp", "input2": "bnn"},
    "linalg_cholesky linalg_cholesky_ex linalg_det linalg_inv linalg_inv_ex linalg_lu linalg_lu_factor "
    "linalg_lu_factor_ex linalg_matrix_exp linalg_matrix_power linalg_slogdet linalg_solve linalg_solve_ex "
    "linalg_tensorinv linalg_cond linalg_pinv logdet det inverse slogdet cholesky cholesky_inverse "
    "matrix_exp matrix_power pinverse": {
        "self": "bnn", "A": "bnn", "input": "bnn", "B": "bnp", "other": "bnp",
    },
    "complex": {"real": "nm", "imag": "nm"},
    "polar": {"abs": "nm", "angle": "nm"},
}  # fmt: skip

SHAPES = {name: shapes for names, shapes in _SHAPES.items() for name in names.split()}
for _dims in (1, 2, 3):
    SHAPES[f"conv{_dims}d"] = _CONV[_dims]
    SHAPES[f"conv_transpose{_dims}d"] = _TRANSPOSED[_dims]
    for _name in (
        "avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "reflection_pad", "replication_pad",
        "upsample_nearest", "upsample_linear", "upsample_bilinear", "upsample_bicubic", "upsample_trilinear",
    ):  # fmt: skip
        SHAPES[f"{_name}{_dims}d"] = _IMAGES[_dims]
    SHAPES[f"max_pool{_dims}d_with_indices"] = _IMAGES[_dims]
