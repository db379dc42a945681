// cat and stack: each tensor is copied, and converted where dtypes differ, to its part of the result.
#include <algorithm>

#include "../../common/parallel.h"
#include "../../common/short_copy.h"
#include "../common_dtype.h"
#include "../movement.h"

namespace opsmith::portable::native {
namespace {

using executorch::aten::TensorList;

bool has_elements(const Tensor& tensor) {
  return tensor.numel() != 0;
}

// An empty tensor of the old form, which may stand among others of any rank.
bool is_old_empty(const Tensor& tensor) {
  return tensor.dim() == 1 && !has_elements(tensor);
}

// Whether the tensors may be written to `out`, as ATen asks of both operators, and lie as it does.
bool are_storable(KernelRuntimeContext& context, TensorList tensors, const Tensor& out) {
  for (const Tensor& tensor : tensors) {
    if (!can_store(context, tensor.scalar_type(), out) || !one_layout(context, {&out, &tensor})) {
      return false;
    }
  }
  return true;
}

// ---- runs: elements of a tensor that lie together in it and in the result

// Longer ones are worth a copy each, which threads share; shorter ones take longer to begin than to copy.
constexpr int64_t kMostBytes = 1 << 16, kLeastBytes = 32;

struct Run {
  const char* from;
  int64_t bytes;
};

// Copies the tensors' runs in turn, so that the result is written from end to end; `length` says how many
// elements each tensor's have. False where runs are not worth it.
bool join_runs(TensorList tensors, FunctionRef<int64_t(const Tensor&)> length, Tensor& out) {
  const int64_t width = out.element_size();
  int64_t together = 0;  // bytes
  for (const Tensor& tensor : tensors) {
    const int64_t bytes = length(tensor) * width;
    if (tensor.scalar_type() != out.scalar_type() || bytes > kMostBytes ||
        (bytes != 0 && bytes < kLeastBytes)) {
      return false;
    }
    together += bytes;
  }
  if (together == 0) {
    return false;
  }
  constexpr size_t kTensors = 16;  // at a time
  const int64_t rows = out.numel() * width / together;
  char* to = static_cast<char*>(out.mutable_data_ptr());
  for (size_t first = 0; first < tensors.size(); first += kTensors) {
    const size_t count = std::min(kTensors, tensors.size() - first);
    Run runs[kTensors];
    int64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const Tensor& tensor = tensors[first + i];
      runs[i] = {static_cast<const char*>(tensor.const_data_ptr()), length(tensor) * width};
      bytes += runs[i].bytes;
    }
    parallel(rows, grain_size(bytes / width), [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        char* next = to + row * together;
        for (size_t i = 0; i < count; ++i) {
          copy_short(next, runs[i].from + row * runs[i].bytes, runs[i].bytes);
          next += runs[i].bytes;
        }
      }
    });
    to += bytes;
  }
  return true;
}

// Whether the tensors' elements lie as they will in `out` but for the size of dimension `d`, both without
// gaps.
bool lie_alike(TensorList tensors, int64_t d, const Tensor& out) {
  for (int64_t i = 0; i < out.dim(); ++i) {
    if (out.sizes()[i] == 1 && i != d) {
      continue;
    }
    int64_t within = 1;
    for (int64_t j = 0; j < out.dim(); ++j) {
      within *= out.strides()[j] < out.strides()[i] ? out.sizes()[j] : 1;
    }
    if (out.sizes()[i] == 1 || out.strides()[i] != within) {
      return false;
    }
    const bool is_outside = out.strides()[i] > out.strides()[d];
    for (const Tensor& tensor : tensors) {
      const int64_t stride =
          is_outside ? out.strides()[i] / out.sizes()[d] * tensor.sizes()[d] : out.strides()[i];
      if (tensor.sizes()[i] != 1 && tensor.strides()[i] != stride) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

Tensor& cat_out(KernelRuntimeContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  OPSMITH_CHECK(context, !tensors.empty(), InvalidArgument, out,
                "torch.cat(): expected a non-empty list of Tensors");
  // Beside others ExecuTorch ignores empty tensors of any shape; ATen takes those alone that add nothing.
  const bool any_has_elements = std::any_of(tensors.begin(), tensors.end(), has_elements);
  const auto counts = [=](const Tensor& tensor) {
    return any_has_elements ? has_elements(tensor) : !is_old_empty(tensor);
  };
  const Tensor* model = nullptr;
  for (const Tensor& tensor : tensors) {
    OPSMITH_CHECK(context, tensor.dim() != 0, InvalidArgument, out,
                  "zero-dimensional tensor (at position %d) cannot be concatenated",
                  static_cast<int>(&tensor - tensors.data()));
    if (model == nullptr && counts(tensor)) {
      model = &tensor;
    }
  }
  if (model == nullptr) {
    resize(context, out, {0});
    return out;
  }
  const int64_t d = wrap_dim(context, dim, model->dim());
  if (d < 0) {
    return out;
  }
  Dims sizes = sizes_of(*model);
  sizes[d] = 0;
  for (const Tensor& tensor : tensors) {
    if (!counts(tensor)) {
      continue;
    }
    Dims expected = sizes_of(*model);
    OPSMITH_CHECK(context, tensor.dim() == model->dim(), InvalidArgument, out,
                  "Tensors must have same number of dimensions: got %d and %d",
                  static_cast<int>(model->dim()), static_cast<int>(tensor.dim()));
    expected[d] = tensor.sizes()[d];
    OPSMITH_CHECK(context, sizes_of(tensor) == expected, InvalidArgument, out,
                  "Sizes of tensors must match except in dimension %" PRId64, d);
    sizes[d] += tensor.sizes()[d];
  }
  if (!resize(context, out, sizes) || !are_storable(context, tensors, out)) {
    return out;
  }
  const bool all_count = std::all_of(tensors.begin(), tensors.end(), counts);
  const int64_t within = model->dim() == 0 ? 1 : out.strides()[d];
  const auto run_of = [=](const Tensor& tensor) { return tensor.sizes()[d] * within; };
  if (all_count && out.numel() != 0 && lie_alike(tensors, d, out) && join_runs(tensors, run_of, out)) {
    return out;
  }
  Destination to = destination_of(out);
  for (const Tensor& tensor : tensors) {
    if (counts(tensor)) {
      if (!convert_strided(context, sizes_of(tensor), tensor.scalar_type(), source_of(tensor),
                           out.scalar_type(), to)) {
        return out;
      }
      to.data += tensor.sizes()[d] * to.strides[d] * out.element_size();
    }
  }
  return out;
}

Tensor& stack_out(KernelRuntimeContext& context, TensorList tensors, int64_t dim, Tensor& out) {
  OPSMITH_CHECK(context, !tensors.empty(), InvalidArgument, out, "stack expects a non-empty TensorList");
  const Dims part = sizes_of(tensors[0]);
  const int64_t d = wrap_dim(context, dim, part.rank + 1);
  if (d < 0) {
    return out;
  }
  OPSMITH_CHECK(context, part.rank < kMaxDims, NotSupported, out, "stack: too many dimensions");
  for (const Tensor& tensor : tensors) {
    OPSMITH_CHECK(context, sizes_of(tensor) == part, InvalidArgument, out,
                  "stack expects each tensor to be equal size, but entry %d is of another size than entry 0",
                  static_cast<int>(&tensor - tensors.data()));
  }
  Dims sizes = part;
  sizes.insert(d, static_cast<int64_t>(tensors.size()));
  if (!resize(context, out, sizes) || !are_storable(context, tensors, out)) {
    return out;
  }
  if (out.numel() == 0 && contains(RealB{}, out.scalar_type())) {
    return out;  // of whatever dtypes, as ExecuTorch's kernel has it
  }
  const int64_t within = part.product(d, part.rank);
  const bool all_contiguous =
      is_contiguous(out) && std::all_of(tensors.begin(), tensors.end(), is_contiguous);
  if (all_contiguous && join_runs(tensors, [=](const Tensor&) { return within; }, out)) {
    return out;
  }
  Destination to = destination_of(out);
  const int64_t step = to.strides[d] * out.element_size();
  to.strides.erase(d);
  for (const Tensor& tensor : tensors) {
    if (!convert_strided(context, part, tensor.scalar_type(), source_of(tensor), out.scalar_type(), to)) {
      return out;
    }
    to.data += step;
  }
  return out;
}

}  // namespace opsmith::portable::native
