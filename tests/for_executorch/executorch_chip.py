"""A backend ``chip`` with two small kernel libraries for ExecuTorch, written into a folder.

``fast`` stands before ``plain`` and takes less: ``add.out`` for Float in any rank, ``mul.out`` for matrices
of Float and Double by ``arg_meta``.  ``plain`` has an ``add.out`` that refuses every call, so that a test
notices who serves it, and an operator of its own.
"""

from __future__ import annotations

from pathlib import Path

BACKEND = """\
backend: chip
driver: sim
libraries: [fast.yaml, plain.yaml]
fallback: cpu
"""

FAST = """\
library: fast
abi: executorch
sources: [fast.cpp]
kernels:
  - {op: add.out, kernel_name: chip::fast::add_out, dtypes: [Float]}
  - op: mul.out
    type_alias: {T0: [Float, Double]}
    dim_order_alias: {D0: [0, 1]}
    kernels:
      - kernel_name: chip::fast::mul_out
        arg_meta: {self: [T0, D0], other: [T0, D0], out: [T0, D0]}
"""

PLAIN = """\
library: plain
abi: executorch
sources: [plain.cpp, shared.cpp, unused.cpp]
kernels:
  - {op: add.out, kernel_name: chip::plain::add_out, dim_order: any}
  - {op: relu.out, kernel_name: chip::plain::relu_out, dtypes: [Float], dim_order: any}
  - {op: silu.out, kernel_name: chip::plain::silu_out, dtypes: [Float]}
  - {op: max.dim_max, kernel_name: chip::plain::max_dim}
  - func: chip::scale.out(Tensor self, float factor, *, Tensor(a!) out) -> Tensor(a!)
    kernel_name: chip::plain::scale_out
"""

_HEADER = """\
#include <tuple>
#include <executorch/runtime/kernel/kernel_includes.h>
using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;
"""

_FAST_CPP = (
    _HEADER
    + """\
namespace chip::fast::native {
Tensor& add_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, const Scalar& alpha,
                Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out, "resize");
  ET_KERNEL_CHECK_MSG(ctx, self.numel() == other.numel(), NotSupported, out, "fast does not broadcast");
  const float a = alpha.isFloatingPoint() ? alpha.to<double>() : alpha.to<int64_t>();
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = self.const_data_ptr<float>()[i] + a * other.const_data_ptr<float>()[i];
  }
  return out;
}
template <class T>
void mul(const Tensor& self, const Tensor& other, Tensor& out) {
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<T>()[i] = self.const_data_ptr<T>()[i] * other.const_data_ptr<T>()[i];
  }
}
Tensor& mul_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out, "resize");
  ET_KERNEL_CHECK_MSG(ctx, self.numel() == other.numel(), NotSupported, out, "fast does not broadcast");
  self.scalar_type() == ScalarType::Float ? mul<float>(self, other, out) : mul<double>(self, other, out);
  return out;
}
}  // namespace chip::fast::native
"""
)

_PLAIN_CPP = (
    _HEADER
    + """\
#include <cmath>
namespace chip::plain {
template <class T>
void map(const Tensor& self, Tensor& out, T (*f)(T));
}
namespace chip::plain::native {
Tensor& add_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor&, const Scalar&, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, false, InvalidArgument, out, "plain refuses %d dimensions", int(self.dim()));
  return out;
}
Tensor& relu_out(KernelRuntimeContext& ctx, const Tensor& self, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out, "resize");
  map<float>(self, out, [](float x) { return x < 0 ? 0.0f : x; });
  return out;
}
Tensor& silu_out(KernelRuntimeContext& ctx, const Tensor& self, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out, "resize");
  map<float>(self, out, [](float x) { return x / (1 + std::exp(-x)); });
  return out;
}
std::tuple<Tensor&, Tensor&> max_dim(KernelRuntimeContext& ctx, const Tensor& self, int64_t dim, bool keepdim,
                                     Tensor& max, Tensor& indices) {
  const std::tuple<Tensor&, Tensor&> results(max, indices);
  ET_KERNEL_CHECK_MSG(ctx, self.dim() == 2 && dim == 1 && !keepdim && self.scalar_type() == ScalarType::Float,
                      NotSupported, results, "plain takes the largest of a row only");
  for (ssize_t row = 0; row < self.size(0); ++row) {
    const float* x = self.const_data_ptr<float>() + row * self.size(1);
    int64_t best = 0;
    for (int64_t i = 1; i < self.size(1); ++i) best = x[i] > x[best] ? i : best;
    max.mutable_data_ptr<float>()[row] = x[best];
    indices.mutable_data_ptr<int64_t>()[row] = best;
  }
  return results;
}
Tensor& scale_out(KernelRuntimeContext& ctx, const Tensor& self, double factor, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out, "resize");
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = float(factor) * self.const_data_ptr<float>()[i];
  }
  return out;
}
}  // namespace chip::plain::native
"""
)

_SHARED_CPP = (
    _HEADER
    + """\
namespace chip::plain {
template <class T>
void map(const Tensor& self, Tensor& out, T (*f)(T)) {
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<T>()[i] = f(self.const_data_ptr<T>()[i]);
  }
}
template void map(const Tensor&, Tensor&, float (*)(float));  // the only one that there is, for another file
}  // namespace chip::plain
"""
)

_UNUSED_CPP = """\
#ifdef OPSMITH_SELECTION_HEADER
#error "no program uses what is in this file"
#endif
namespace chip::plain {
extern const char table[4096];
const char table[4096] = {1};
}  // namespace chip::plain
"""


def write_chip(folder: Path, fast: str = FAST, plain: str = PLAIN) -> Path:
    """Writes the backend into ``folder``; returns its ``backend.yaml``."""
    files = {
        "backend.yaml": BACKEND,
        "fast.yaml": fast,
        "plain.yaml": plain,
        "fast.cpp": _FAST_CPP,
        "plain.cpp": _PLAIN_CPP,
        "shared.cpp": _SHARED_CPP,
        "unused.cpp": _UNUSED_CPP,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / "backend.yaml"
