// Whether any element, or every one, differs from 0.
#include "../reducer.h"

namespace opsmith::portable::native {
namespace {

template <bool kStart>
struct Truth {
  using Element = bool;
  using State = bool;
  using Results = std::tuple<bool>;

  State start() const { return kStart; }
  void row(State& state, const bool* p, int64_t n, int64_t) const {
    uint8_t differs = 0;  // from the start: an element that decides
    for (int64_t k = 0; k < n; ++k) {
      differs = static_cast<uint8_t>(differs | (load_element(p + k) != kStart));
    }
    state = differs != 0 ? !kStart : state;
  }
  void element(State& state, bool value, int64_t) const { state = kStart ? state & value : state | value; }
  void merge(State& state, const State& later) const { element(state, later, 0); }
  Results finish(const State& state) const { return {state}; }
};

template <class Policy>
Tensor& truth(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
              bool keepdim, Tensor& out) {
  OPSMITH_CHECK(
      context,
      !in_executorch() || out.scalar_type() == ScalarType::Bool || out.scalar_type() == ScalarType::Byte,
      InvalidArgument, out, "out must have the dtype Bool or Byte, but has %s", name_of(out.scalar_type()));
  DimSet dims = 0;
  const bool names_none = dim.has_value() && dim->empty();  // these operators take that literally
  if ((names_none || reduced_dims(context, self, dim, dims)) &&
      resize_to_reduced(context, out, self, dims, keepdim)) {
    reduce(context, Policy{}, self, dims, keepdim, false, out);
  }
  return out;
}

}  // namespace

#define OPSMITH_TRUTH(name, start)                                                                          \
  Tensor& name##_dim_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool keepdim,      \
                         Tensor& out) {                                                                     \
    return truth<Truth<start>>(context, self, ArrayRef<int64_t>(dim), keepdim, out);                        \
  }                                                                                                         \
  Tensor& name##_dims_out(KernelRuntimeContext& context, const Tensor& self, OptionalArrayRef<int64_t> dim, \
                          bool keepdim, Tensor& out) {                                                      \
    return truth<Truth<start>>(context, self, dim, keepdim, out);                                           \
  }                                                                                                         \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {                      \
    return truth<Truth<start>>(context, self, std::nullopt, false, out);                                    \
  }
OPSMITH_TRUTH(any, false)
OPSMITH_TRUTH(all, true)
#undef OPSMITH_TRUTH

}  // namespace opsmith::portable::native
