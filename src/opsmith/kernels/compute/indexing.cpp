// Elements chosen by indices, and concatenation. An index that is out of range leaves a fault (faults.h).
#include <algorithm>
#include <string>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "dense.h"
#include "faults.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

constexpr const char* kRowsSource =
#include "indexing.cl"
    ;
constexpr const char* kLinesSource =
#include "scatter.cl"
    ;
constexpr const char* kCheckedIndex =
#include "checked_index.cl"
    ;
constexpr const char* kTriangle =
#include "triangle.cl"
    ;
constexpr int64_t kNothingSkipped = std::numeric_limits<int64_t>::min();

// As in indexing.cl.
struct Rows {
  int64_t outer, inner, in_size, out_size, indices, skipped;
};

void choose_rows(const char* kind, const at::Tensor& in, const at::Tensor& index, const at::Tensor& out,
                 const Rows& rows, const at::Scalar& value, int64_t items) {
  if (items == 0) {
    return;
  }
  Arguments arguments;
  arguments.tensor(in).tensor(index).tensor(out).address(faults()).value(rows);
  add_number(arguments, value, out.scalar_type());
  const std::string definitions = definition(kind) + fault_definitions() +
                                  definition("DTYPE", out.scalar_type()) +
                                  definition("INDEX_DTYPE", index.scalar_type());
  launch("choose rows", kernel(kRowsSource, definitions, kCheckedIndex), arguments, linear(items));
}

// Gathers from `target` to `value`, or scatters the other way, along `dim` at the places that `index` has.
void scatter_along(const std::string& definitions, int64_t dim, const at::Tensor& index,
                   const at::Tensor& value, const at::Tensor& target, const at::Scalar& number,
                   bool gathers) {
  if (index.numel() == 0) {
    return;
  }
  const int64_t along = c10::maybe_wrap_dim(dim, index.dim());
  const auto at_least_1d = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  };
  const at::Tensor i = at_least_1d(index);
  const at::Tensor v = at_least_1d(value);
  const at::Tensor t = at_least_1d(target);
  at::DimVector others;
  for (int64_t d = 0; d < i.dim(); ++d) {
    if (d != along) {
      others.push_back(d);
    }
  }
  const auto stride = [](const at::Tensor& tensor, int64_t d) {
    return tensor.defined() ? tensor.stride(d) : 0;
  };
  const int64_t length = i.size(along);
  Words layout;
  layout.add(i.numel() / length).add(length);
  layout.add_each(others.size(), [&](size_t o) { return i.size(others[o]); }, 1);
  for (const at::Tensor* tensor : {&i, &v, &t}) {
    layout.add_each(others.size(), [&](size_t o) { return stride(*tensor, others[o]); }, 0);
  }
  layout.add(i.stride(along)).add(stride(v, along)).add(t.stride(along)).add(t.size(along));
  Arguments arguments;
  arguments.words(layout).tensor(i).tensor(v).tensor(t).address(faults());
  add_number(arguments, number, t.scalar_type());
  const std::string text = definitions + definition("RANK", std::max<size_t>(others.size(), 1)) +
                           fault_definitions() + definition("DTYPE", t.scalar_type());
  launch("gather or scatter", kernel(kLinesSource, text, kCheckedIndex), arguments,
         linear(gathers ? i.numel() : i.numel() / length));
}

void copy_unless_same(const at::Tensor& self, const at::Tensor& out) {
  if (!out.is_same(self)) {
    out.copy_(self);
  }
}

void triangle(const std::string& definitions, const at::Tensor& self, int64_t diagonal,
              const at::Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  const at::Tensor in = self.contiguous();
  const DenseResult written(out);
  Arguments arguments;
  arguments.tensor(in).tensor(written.tensor()).value(self.numel()).value(self.size(-2)).value(self.size(-1));
  arguments.value(std::clamp(diagonal, -self.size(-2) - 1, self.size(-1) + 1));  // beyond, all is one part
  launch("take a triangle", kernel(kTriangle, definitions + definition("DTYPE", self.scalar_type())),
         arguments, linear(self.numel()));
}

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t /*padding_idx*/,
                     bool /*scale_grad_by_freq*/, bool /*sparse*/) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  at::DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  at::Tensor out = at::empty(sizes, weight.options());
  const Rows rows{.outer = 1,
                  .inner = weight.size(1),
                  .in_size = weight.size(0),
                  .out_size = 0,
                  .indices = indices.numel(),
                  .skipped = kNothingSkipped};
  choose_rows("SELECT", weight.contiguous(), indices.contiguous(), out, rows, 0, out.numel());
  return out;
}

at::Tensor embedding_dense_backward(const at::Tensor& grad_output, const at::Tensor& indices,
                                    int64_t num_weights, int64_t padding_idx, bool scale_grad_by_freq) {
  TORCH_CHECK_NOT_IMPLEMENTED(!scale_grad_by_freq,
                              "embedding's gradient scaled by frequency is not supported on ",
                              grad_output.device(), ". Leave scale_grad_by_freq out");
  const int64_t inner = grad_output.size(-1);
  TORCH_CHECK(grad_output.numel() == indices.numel() * inner, "embedding_dense_backward: grad_output of ",
              grad_output.sizes(), " is not of indices of ", indices.sizes());
  at::Tensor grad_weight = at::zeros({num_weights, inner}, grad_output.options());
  const Rows rows{.outer = 1,
                  .inner = inner,
                  .in_size = 0,
                  .out_size = num_weights,
                  .indices = indices.numel(),
                  .skipped = padding_idx < 0 ? kNothingSkipped : padding_idx};
  choose_rows("ADD", grad_output.contiguous(), indices.contiguous(), grad_weight, rows, 1, inner);
  return grad_weight;
}

at::Tensor& index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Tensor& out) {
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_select(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  }
  at::native::resize_output(out, sizes);
  const DenseResult written(out);
  const Lines lines = lines_of(self, dim);
  const Rows rows{.outer = lines.outer,
                  .inner = lines.inner,
                  .in_size = lines.length,
                  .out_size = 0,
                  .indices = index.numel(),
                  .skipped = kNothingSkipped};
  choose_rows("SELECT", self.contiguous(), index.contiguous(), written.tensor(), rows, 0, out.numel());
  return out;
}

void index_add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source,
               const at::Scalar& alpha, const at::Tensor& out) {
  copy_unless_same(self, out);
  at::Tensor dense = out.is_contiguous() ? out : out.contiguous();
  const Lines lines = lines_of(self, dim);
  const Rows rows{.outer = lines.outer,
                  .inner = lines.inner,
                  .in_size = 0,
                  .out_size = lines.length,
                  .indices = index.numel(),
                  .skipped = kNothingSkipped};
  choose_rows("ADD", source.contiguous(), index.contiguous(), dense, rows, checked(alpha, out.scalar_type()),
              lines.outer * lines.inner);
  copy_unless_same(dense, out);
}

void gather(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool /*sparse_grad*/,
            const at::Tensor& out) {
  scatter_along(definition("GATHER"), dim, index, out, self, 0, true);
}

void scatter_src(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src,
                 const at::Tensor& out) {
  copy_unless_same(self, out);
  scatter_along("", dim, index, src, out, 0, false);
}

void scatter_value(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Scalar& value,
                   const at::Tensor& out) {
  copy_unless_same(self, out);
  scatter_along(definition("FROM_NUMBER"), dim, index, {}, out, checked(value, out.scalar_type()), false);
}

void scatter_add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src,
                 const at::Tensor& out) {
  copy_unless_same(self, out);
  scatter_along(definition("ADDS"), dim, index, src, out, 0, false);
}

void cat(const at::ITensorListRef& tensors, int64_t dim, int64_t /*valid*/, bool /*all_contiguous*/,
         bool /*all_same_dtype*/, bool /*all_same_sizes_and_stride*/, at::MemoryFormat /*memory_format*/,
         const at::Tensor& out) {
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() == 1 && tensor.size(0) == 0) {
      continue;  // cat skips empty vectors, whatever `dim` and the rank of the others
    }
    const int64_t size = tensor.size(dim);
    out.narrow(dim, start, size).copy_(tensor);
    start += size;
  }
}

void tril(const at::Tensor& self, int64_t diagonal, const at::Tensor& out) {
  triangle(definition("LOWER"), self, diagonal, out);
}

void triu(const at::Tensor& self, int64_t diagonal, const at::Tensor& out) {
  triangle("", self, diagonal, out);
}

}  // namespace opsmith::compute
