// Products, in the dtype that is asked for.
#include "../common_dtype.h"
#include "../reducer.h"

namespace opsmith::portable::native {
namespace {

constexpr char kProd[] = "prod.out";
constexpr char kProdDim[] = "prod.int_out";

// Integers of every width are multiplied as unsigned 64-bit ones: they wrap in the same way whenever they are
// cut off.
template <class C>
struct Product {
  using Element = C;
  using State = std::conditional_t<std::is_integral_v<C>, uint64_t, C>;
  using Results = std::tuple<C>;

  State start() const { return 1; }
  void row(State& state, const C* p, int64_t n, int64_t) const {
    for (int64_t k = 0; k < n; ++k) {
      state *= static_cast<State>(load_element(p + k));
    }
  }
  void element(State& state, C value, int64_t) const { state *= static_cast<State>(value); }
  void merge(State& state, const State& later) const { state *= later; }
  Results finish(const State& state) const { return {convert_value<C>(state)}; }
};

using Multiplied = Types<float, double, Half, BFloat16, int64_t, bool>;

template <const char* Name>
Tensor& product(KernelRuntimeContext& context, const Tensor& self, const OptionalArrayRef<int64_t>& dim,
                bool keepdim, ScalarType result, Tensor& out) {
  DimSet dims = 0;
  if (out_is(context, result, out) && reduced_dims(context, self, dim, dims) &&
      resize_to_reduced(context, out, self, dims, keepdim)) {
    const ScalarType dtype = out.scalar_type();
    with_compute_dtype<Name>(
        context, Multiplied{}, is_integral(dtype) ? ScalarType::Long : dtype, [&](auto type) {
          reduce(context, Product<typename decltype(type)::type>{}, self, dims, keepdim, false, out);
        });
  }
  return out;
}

}  // namespace

Tensor& prod_out(KernelRuntimeContext& context, const Tensor& self, std::optional<ScalarType> dtype,
                 Tensor& out) {
  const ScalarType own = is_floating(self.scalar_type()) ? self.scalar_type() : ScalarType::Long;
  return product<kProd>(context, self, std::nullopt, false, dtype.value_or(own), out);
}

Tensor& prod_dim_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool keepdim,
                     std::optional<ScalarType> dtype, Tensor& out) {
  return product<kProdDim>(context, self, executorch::aten::ArrayRef<int64_t>(dim), keepdim,
                           dtype.value_or(out.scalar_type()), out);
}

}  // namespace opsmith::portable::native
