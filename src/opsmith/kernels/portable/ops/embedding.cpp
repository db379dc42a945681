// embedding and its gradient: rows of a table, looked up and added up.
#include <algorithm>

#include "../../common/temporary.h"
#include "../index_values.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

constexpr char kBackward[] = "embedding_dense_backward.out";

// Checks that all of a contiguous tensor of indices are rows of a table of `rows`.
bool within(KernelRuntimeContext& context, const Tensor& indices, int64_t rows) {
  OPSMITH_CHECK(context, rows > 0 || indices.numel() == 0, InvalidArgument, false,
                "index_select(): self indexing axis dim should be positive");
  const Indices values(indices);
  IndexCheck check(rows);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    check.checked(values.at(i));
  }
  OPSMITH_CHECK(context, !check.found_wrong(), NotFound, false, "index out of range in self");
  return true;
}

}  // namespace

namespace native {

// Contiguous tensors, as the manifest says: out has the sizes of indices, and the table's row size.
Tensor& embedding_out(KernelRuntimeContext& context, const Tensor& weight, const Tensor& indices, int64_t,
                      bool, bool, Tensor& out) {
  OPSMITH_CHECK(context, weight.dim() == 2, InvalidArgument, out, "'weight' must be 2-D");
  if (!same_dtype(context, weight, out)) {
    return out;
  }
  OPSMITH_CHECK(context, indices.dim() < kMaxDims, NotSupported, out, "embedding: too many dimensions");
  if (!Indices::accepts(context, "embedding", indices)) {
    return out;
  }
  Dims sizes = sizes_of(indices);
  const int64_t row = weight.sizes()[1];
  sizes.push_back(row);
  if (!resize(context, out, sizes) || !are_contiguous(context, {&weight, &indices, &out}) ||
      !within(context, indices, weight.sizes()[0]) || out.numel() == 0) {
    return out;
  }
  const Indices values(indices);
  const int64_t bytes = row * weight.element_size();
  const char* const from = static_cast<const char*>(weight.const_data_ptr());
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  parallel(indices.numel(), grain_size(row),
           [&](int64_t begin, int64_t end) { copy_rows(values, begin, end, bytes, from, bytes, to, bytes); });
  return out;
}

// Whether all indices but padding_idx name a weight; `frequency`, if not null, gets how often each is named.
bool count_weights(const Indices& values, int64_t count, int64_t num_weights, int64_t padding_idx,
                   int32_t* frequency) {
  IndexCheck check(num_weights);
  if (frequency != nullptr) {
    std::fill_n(frequency, num_weights, 0);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (values.at(i) != padding_idx) {
      const int64_t w = check.checked(values.at(i));
      if (frequency != nullptr) {
        ++frequency[w];
      }
    }
  }
  return !check.found_wrong();
}

// grad_weight[w] is the sum of grad_output's rows whose index is w, over the number of them where it is asked
// for; rows of padding_idx do not count. Threads share the columns, so that each adds up in order.
Tensor& embedding_dense_backward_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                     const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                                     bool scale_grad_by_freq, Tensor& out) {
  OPSMITH_CHECK(
      context, grad_output.dim() == indices.dim() + 1 && grad_output.scalar_type() == out.scalar_type(),
      InvalidArgument, out, "embedding_dense_backward: grad_output and indices do not belong together");
  if (!Indices::accepts(context, "embedding_dense_backward", indices)) {
    return out;
  }
  const int64_t row = grad_output.sizes()[grad_output.dim() - 1];
  const int64_t count = indices.numel();
  OPSMITH_CHECK(context, grad_output.numel() == count * row, InvalidArgument, out,
                "embedding_dense_backward: grad_output has %d elements, and there are %" PRId64 " indices",
                static_cast<int>(grad_output.numel()), count);
  if (!resize(context, out, {num_weights, row})) {
    return out;
  }
  const Indices values(indices);
  const auto frequency = scale_grad_by_freq ? temporary<int32_t>(context, num_weights) : Temporary<int32_t>();
  if (scale_grad_by_freq && frequency == nullptr) {
    return out;
  }
  OPSMITH_CHECK(context, count_weights(values, count, num_weights, padding_idx, frequency), InvalidArgument,
                out, "index out of range in self");
  with_dtype<kBackward>(context, Floating{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* const from = grad_output.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    parallel(row, std::max<int64_t>(16, kGrain / std::max<int64_t>(1, count)),
             [&](int64_t begin, int64_t end) {
               for (int64_t w = 0; w < num_weights; ++w) {
                 std::fill(to + w * row + begin, to + w * row + end, T(0));
               }
               for (int64_t i = 0; i < count; ++i) {
                 const int64_t w = values.at(i);
                 if (w == padding_idx) {
                   continue;
                 }
                 const C scale = frequency != nullptr ? C(1) / static_cast<C>(frequency[w]) : C(1);
                 const T* const source = from + i * row;
                 T* const destination = to + w * row;
                 for (int64_t x = begin; x < end; ++x) {
                   store_element(destination + x,
                                 load_element(destination + x) + scale * load_element(source + x));
                 }
               }
             });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
