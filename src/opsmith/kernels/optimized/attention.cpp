// Scaled dot-product attention and its gradients, of dense tensors in any order of their dimensions: (batch,
// heads, length, dim), where heads of keys and values may each serve several heads of queries.
#include <algorithm>
#include <optional>
#include <tuple>

#include "../common/resize.h"
#include "../common/tasks.h"
#include "attention_pieces.h"
#include "by_dtype.h"
#include "threads.h"
#include "float_functions.h"

namespace opsmith::optimized::native {

namespace {

using OptionalTensor = std::optional<Tensor>;
using Sizes = AttentionSizes;

template <class T>
using Backward = void(const AttentionBackward<T>& head);

// Rejects operands that do not belong together.
bool sizes_of_call(KernelRuntimeContext& context, const Tensor& query, const Tensor& key, const Tensor& value,
                   const OptionalTensor& bias, Sizes& sizes) {
  const ScalarType dtype = query.scalar_type();
  OPSMITH_CHECK(context, is_taken(dtype) && key.scalar_type() == dtype && value.scalar_type() == dtype,
                NotSupported, false, "attention takes " OPSMITH_TAKEN ", all operands the same");
  OPSMITH_CHECK(context,
                !bias.has_value() || bias->scalar_type() == dtype || bias->scalar_type() == ScalarType::Float,
                NotSupported, false, "attention: the bias has the operands' dtype, or float32");
  OPSMITH_CHECK(context, query.dim() == 4 && key.dim() == 4 && value.dim() == 4, InvalidArgument, false,
                "attention: query, key and value are [batch, heads, length, dim]");
  const Dims q = sizes_of(query), k = sizes_of(key), v = sizes_of(value);
  sizes = {q[0], q[1], q[2], q[3], k[1], k[2], v[3]};
  OPSMITH_CHECK(context,
                k[0] == q[0] && v[0] == q[0] && v[1] == k[1] && v[2] == k[2] && k[3] == q[3] &&
                    (k[1] == 0 ? q[1] == 0 : q[1] % k[1] == 0),
                InvalidArgument, false,
                "attention: query, key and value have one batch, key and value one length, query and key one "
                "dim, and the heads of key and value divide the query's");
  if (!bias.has_value()) {
    return true;
  }
  OPSMITH_CHECK(context, bias->dim() <= 4, InvalidArgument, false,
                "attention: the bias has more than 4 dimensions");
  const Dims b = sizes_of(*bias);
  const int64_t wanted[4] = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  for (int64_t d = 0; d < b.rank; ++d) {
    OPSMITH_CHECK(context, b[d] == 1 || b[d] == wanted[4 - b.rank + d], InvalidArgument, false,
                  "attention: the bias does not broadcast to [batch, heads, queries, keys]");
  }
  return true;
}

// One head's rows in a tensor of four dimensions.
template <class T>
AttentionRows<const T> rows_of(const Tensor& tensor, int64_t batch, int64_t head) {
  const auto strides = tensor.strides();
  return {static_cast<const T*>(tensor.const_data_ptr()) + batch * strides[0] + head * strides[1], strides[2],
          strides[3]};
}
template <class T>
AttentionRows<T> rows_of(Tensor& tensor, int64_t batch, int64_t head) {
  const auto strides = tensor.strides();
  return {static_cast<T*>(tensor.mutable_data_ptr()) + batch * strides[0] + head * strides[1], strides[2],
          strides[3]};
}

AttentionBias bias_of(const OptionalTensor& bias, int64_t batch, int64_t head) {
  if (!bias.has_value()) {
    return {};
  }
  AttentionBias found;
  found.is_float = bias->scalar_type() == ScalarType::Float;
  found.row = broadcast_stride(*bias, 2, 4);
  found.column = broadcast_stride(*bias, 3, 4);
  const int64_t at = batch * broadcast_stride(*bias, 0, 4) + head * broadcast_stride(*bias, 1, 4);
  const int64_t size = found.is_float ? sizeof(float) : sizeof(uint16_t);
  found.data = static_cast<const char*>(bias->const_data_ptr()) + at * size;
  return found;
}

// Sets the operands that a head's attention and its gradients share.
template <class T>
void set_operands(Attention<T>& to, const Sizes& sizes, const Tensor& query, const Tensor& key,
                  const Tensor& value, const OptionalTensor& bias, bool is_causal, double scale,
                  int64_t batch, int64_t head) {
  to.query = rows_of<T>(query, batch, head);
  to.key = rows_of<T>(key, batch, head / sizes.shared());
  to.value = rows_of<T>(value, batch, head / sizes.shared());
  to.bias = bias_of(bias, batch, head);
  to.queries = sizes.queries;
  to.keys = sizes.keys;
  to.dim = sizes.dim;
  to.value_dim = sizes.value_dim;
  to.scale = static_cast<float>(scale);
  to.causal = is_causal;
}

template <class T>
void clear(Tensor& tensor) {
  std::fill_n(static_cast<T*>(tensor.mutable_data_ptr()), tensor.numel(), T{});
}

template <class T>
void attend(KernelRuntimeContext& context, const Sizes& sizes, const Tensor& query, const Tensor& key,
            const Tensor& value, const OptionalTensor& bias, bool is_causal, double scale, Tensor& out,
            Tensor& logsumexp, AttentionFunction<T>* function) {
  attend_heads(context, sizes, static_cast<float*>(logsumexp.mutable_data_ptr()), function,
               [&](AttentionForward<T>& call, int64_t batch, int64_t head) {
                 set_operands(call, sizes, query, key, value, bias, is_causal, scale, batch, head);
                 call.out = rows_of<T>(out, batch, head);
               });
}

template <class T>
void gradients(KernelRuntimeContext& context, const Sizes& sizes, const Tensor& grad_out, const Tensor& query,
               const Tensor& key, const Tensor& value, const OptionalTensor& bias, const Tensor& out,
               const Tensor& logsumexp, bool is_causal, double scale, Tensor& grad_query, Tensor& grad_key,
               Tensor& grad_value, Backward<T>* function) {
  const int64_t shared = sizes.shared();
  const int64_t memory = attention_backward_memory(shared, sizes.queries, sizes.dim, sizes.value_dim);
  const int64_t cost = shared * sizes.queries * sizes.keys * (sizes.dim + sizes.value_dim) / 6;
  const float* const sums = static_cast<const float*>(logsumexp.const_data_ptr());
  run_tasks<float>(context, sizes.batch * sizes.key_heads, row_grain_size(cost), memory,
                   [&](int64_t piece, float* own) {
                     const int64_t batch = piece / sizes.key_heads, key_head = piece % sizes.key_heads;
                     const int64_t head = key_head * shared;
                     AttentionBackward<T> call;
                     set_operands(call, sizes, query, key, value, bias, is_causal, scale, batch, head);
                     call.gradient = rows_of<T>(grad_out, batch, head);
                     call.out = rows_of<T>(out, batch, head);
                     call.logsumexp = sums + (batch * sizes.heads + head) * sizes.queries;
                     call.query_gradient = rows_of<T>(grad_query, batch, head);
                     call.key_gradient = rows_of<T>(grad_key, batch, key_head);
                     call.value_gradient = rows_of<T>(grad_value, batch, key_head);
                     call.heads = shared;
                     call.query_head = query.strides()[1];
                     call.gradient_head = grad_out.strides()[1];
                     call.out_head = out.strides()[1];
                     call.logsumexp_head = sizes.queries;
                     call.query_gradient_head = grad_query.strides()[1];
                     call.bias_head = bias.has_value() ? broadcast_stride(*bias, 1, 4) : 0;
                     call.memory = own;
                     function(call);
                   });
}

}  // namespace

std::tuple<Tensor&, Tensor&> attention_out(KernelRuntimeContext& context, const Tensor& query,
                                           const Tensor& key, const Tensor& value, const OptionalTensor& bias,
                                           bool is_causal, double scale, Tensor& out, Tensor& logsumexp) {
  std::tuple<Tensor&, Tensor&> results(out, logsumexp);
  Sizes sizes;
  if (!sizes_of_call(context, query, key, value, bias, sizes)) {
    return results;
  }
  OPSMITH_CHECK(context,
                out.scalar_type() == query.scalar_type() && logsumexp.scalar_type() == ScalarType::Float,
                NotSupported, results, "attention: out has the operands' dtype, and logsumexp is float32");
  if (!resize(context, out, {sizes.batch, sizes.heads, sizes.queries, sizes.value_dim}) ||
      !resize(context, logsumexp, {sizes.batch, sizes.heads, sizes.queries})) {
    return results;
  }
  OPSMITH_CHECK(context, is_contiguous(logsumexp), InvalidArgument, results,
                "attention: logsumexp is contiguous");
  if (sizes.keys == 0 || sizes.dim == 0 || logsumexp.numel() == 0) {
    OPSMITH_CHECK(context, sizes.keys == 0 || logsumexp.numel() == 0, NotSupported, results,
                  "attention: query and key have a dim of 0");
    with_element(out.scalar_type(), [&](auto element) { clear<decltype(element)>(out); });
    clear<float>(logsumexp);
    return results;
  }
  ByDtype<AttentionFunction> function;
  OPSMITH_SET_FUNCTIONS(function, "opsmith_fused::attention.out", attention)
  if (function.has(out.scalar_type())) {
    with_element(out.scalar_type(), [&](auto element) {
      attend<decltype(element)>(context, sizes, query, key, value, bias, is_causal, scale, out, logsumexp,
                                function.of(element));
    });
  }
  return results;
}

std::tuple<Tensor&, Tensor&, Tensor&> attention_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_out, const Tensor& query, const Tensor& key,
    const Tensor& value, const OptionalTensor& bias, const Tensor& out, const Tensor& logsumexp,
    bool is_causal, double scale, Tensor& grad_query, Tensor& grad_key, Tensor& grad_value) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(grad_query, grad_key, grad_value);
  Sizes sizes;
  if (!sizes_of_call(context, query, key, value, bias, sizes)) {
    return results;
  }
  const ScalarType dtype = query.scalar_type();
  bool is_alike = logsumexp.scalar_type() == ScalarType::Float;
  for (const Tensor* each :
       {&grad_out, &out, static_cast<const Tensor*>(&grad_query), static_cast<const Tensor*>(&grad_key),
        static_cast<const Tensor*>(&grad_value)}) {
    is_alike = is_alike && each->scalar_type() == dtype;
  }
  OPSMITH_CHECK(context, is_alike, NotSupported, results,
                "attention_backward: results and gradients have the operands' dtype, logsumexp is float32");
  const Dims result{sizes.batch, sizes.heads, sizes.queries, sizes.value_dim};
  OPSMITH_CHECK(context,
                sizes_of(grad_out) == result && sizes_of(out) == result && is_contiguous(logsumexp) &&
                    logsumexp.numel() == sizes.batch * sizes.heads * sizes.queries,
                InvalidArgument, results,
                "attention_backward: grad_out, out and logsumexp do not belong to query and value");
  if (!resize_like(context, grad_query, query) || !resize_like(context, grad_key, key) ||
      !resize_like(context, grad_value, value)) {
    return results;
  }
  if (sizes.keys == 0 || sizes.dim == 0 || sizes.value_dim == 0 || logsumexp.numel() == 0) {
    for (Tensor* each : {&grad_query, &grad_key, &grad_value}) {
      with_element(dtype, [&](auto element) { clear<decltype(element)>(*each); });
    }
    return results;
  }
  ByDtype<Backward> function;
  OPSMITH_SET_FUNCTIONS(function, "opsmith_fused::attention_backward.out", attention_gradient)
  if (function.has(dtype)) {
    with_element(dtype, [&](auto element) {
      gradients<decltype(element)>(context, sizes, grad_out, query, key, value, bias, out, logsumexp,
                                   is_causal, scale, grad_query, grad_key, grad_value, function.of(element));
    });
  }
  return results;
}

}  // namespace opsmith::optimized::native
