// channelwise_gated_delta_rule: linear attention whose state, a matrix of [key dim, value dim] for each head,
// decays by its rows and is corrected by what it gets wrong of each value.
//
// Of each position: S = decay·S; S += key·(beta·(value - keyᵀS)); result = queryᵀS.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "../common/dtypes.h"
#include "../common/resize.h"
#include "../common/tasks.h"

namespace opsmith::llm::native {

std::tuple<Tensor&, Tensor&> channelwise_gated_delta_rule_out(KernelRuntimeContext& context,
                                                              const Tensor& query, const Tensor& key,
                                                              const Tensor& value, const Tensor& decay,
                                                              const Tensor& beta, const Tensor& initial_state,
                                                              Tensor& out, Tensor& final_state_out) {
  std::tuple<Tensor&, Tensor&> results(out, final_state_out);
  constexpr const char* kName = "channelwise_gated_delta_rule";
  for (const Tensor* each :
       {&query, &key, &value, &decay, &beta, &initial_state, static_cast<const Tensor*>(&out),
        static_cast<const Tensor*>(&final_state_out)}) {
    OPSMITH_CHECK(context, each->scalar_type() == ScalarType::Float, NotSupported, results,
                  "%s takes and gives Float, not %s", kName, name_of(each->scalar_type()));
  }
  OPSMITH_CHECK(context, query.dim() == 4 && value.dim() == 4, InvalidArgument, results,
                "%s: query and value are [batch, heads, positions, dim]", kName);
  const Dims q = sizes_of(query);
  const int64_t batch = q[0], heads = q[1], positions = q[2], dim = q[3], width = value.sizes()[3];
  OPSMITH_CHECK(
      context,
      sizes_of(key) == q && sizes_of(decay) == q &&
          sizes_of(value) == (Dims{batch, heads, positions, width}) &&
          sizes_of(beta) == (Dims{batch, heads, positions}) &&
          sizes_of(initial_state) == (Dims{batch, heads, dim, width}),
      InvalidArgument, results,
      "%s: key and decay have the query's shape, value and beta its batch, heads and positions, and "
      "the state is [batch, heads, key dim, value dim]",
      kName);
  if (!resize_like(context, out, value) || !resize_like(context, final_state_out, initial_state) ||
      !are_contiguous(context,
                      {&query, &key, &value, &decay, &beta, &initial_state, &out, &final_state_out})) {
    return results;
  }
  if (final_state_out.numel() > 0) {
    std::memmove(final_state_out.mutable_data_ptr(), initial_state.const_data_ptr(), initial_state.nbytes());
  } else if (out.numel() > 0) {
    std::memset(out.mutable_data_ptr(), 0, out.nbytes());  // of no state
    return results;
  }
  const float* const q_data = query.const_data_ptr<float>();
  const float* const k_data = key.const_data_ptr<float>();
  const float* const v_data = value.const_data_ptr<float>();
  const float* const decays = decay.const_data_ptr<float>();
  const float* const betas = beta.const_data_ptr<float>();
  float* const out_data = out.mutable_data_ptr<float>();
  float* const states = final_state_out.mutable_data_ptr<float>();
  const auto run_head = [&](int64_t head, float* error) {
    float* const state = states + head * dim * width;
    for (int64_t t = head * positions; t < (head + 1) * positions; ++t) {
      const float *const k = k_data + t * dim, *const d = decays + t * dim, *const x = q_data + t * dim;
      const float* const v = v_data + t * width;
      float* const y = out_data + t * width;
      std::fill_n(error, width, 0.0f);
      for (int64_t i = 0; i < dim; ++i) {
        float* const row = state + i * width;
        for (int64_t j = 0; j < width; ++j) {
          row[j] *= d[i];
          error[j] += k[i] * row[j];
        }
      }
      for (int64_t j = 0; j < width; ++j) {
        error[j] = (v[j] - error[j]) * betas[t];
      }
      std::fill_n(y, width, 0.0f);
      for (int64_t i = 0; i < dim; ++i) {
        float* const row = state + i * width;
        for (int64_t j = 0; j < width; ++j) {
          row[j] += k[i] * error[j];
          y[j] += x[i] * row[j];
        }
      }
    }
  };
  run_tasks<float>(context, batch * heads, grain_size(positions * dim * width), width, run_head);
  return results;
}

}  // namespace opsmith::llm::native
