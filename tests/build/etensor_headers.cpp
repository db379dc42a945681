// Kernels as a vendor writes them for ExecuTorch, and all that its headers say of dtypes and dim orders, as
// text: test_etensor_headers.py compiles it with each set of headers.
#include <executorch/runtime/kernel/kernel_includes.h>
#include <lean/failure.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace torch {
namespace executor {
namespace native {

using Tensor = exec_aten::Tensor;
using ScalarType = exec_aten::ScalarType;

// out = self * factor, in self's dtype; Half and BFloat16 in float.
Tensor& scale_out(KernelRuntimeContext& ctx, const Tensor& self, const exec_aten::Scalar& factor,
                  Tensor& out) {
  ET_KERNEL_CHECK(ctx, tensors_have_same_dim_order(self, out), InvalidArgument, out);
  ET_KERNEL_CHECK(ctx, tensors_have_same_dtype(self, out), InvalidArgument, out);
  ET_KERNEL_CHECK_MSG(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out,
                      "%zd elements do not fit", self.numel());
  ET_SWITCH_REALHBF16_TYPES(self.scalar_type(), ctx, "scale.out", CTYPE, [&]() {
    using Compute = std::conditional_t<is_reduced_floating_point<CTYPE>::value, float, CTYPE>;
    const double by = factor.isFloatingPoint() ? factor.to<double>() : factor.to<int64_t>();
    const CTYPE* in = self.const_data_ptr<CTYPE>();
    std::transform(in, in + self.numel(), out.mutable_data_ptr<CTYPE>(),
                   [&](CTYPE x) { return static_cast<CTYPE>(static_cast<Compute>(x) * by); });
  });
  return out;
}

// The sums over `dim`, through temporary memory.
Tensor& sum_dim_out(KernelRuntimeContext& ctx, const Tensor& self, int64_t dim, Tensor& out) {
  ET_KERNEL_CHECK(ctx, tensor_has_dim(self, dim), NotFound, out);
  ET_CHECK_MSG(self.scalar_type() == ScalarType::Float, "Float is expected, not %s",
               toString(self.scalar_type()));
  const size_t d = ET_NORMALIZE_IX(dim, self.dim());
  const size_t outer = getLeadingDims(self, d), inner = getTrailingDims(self, d), size = self.size(d);
  Result<void*> memory = ctx.allocate_temp(inner * sizeof(double));
  ET_KERNEL_CHECK(ctx, memory.ok(), MemoryAllocationFailed, out);
  double* sums = static_cast<double*>(*memory);
  for (size_t i = 0; i < outer; ++i) {
    std::fill_n(sums, inner, 0.0);
    for (size_t j = 0; j < size * inner; ++j) {
      sums[j % inner] += self.const_data_ptr<float>()[i * size * inner + j];
    }
    std::copy_n(sums, inner, out.mutable_data_ptr<float>() + i * inner);
  }
  return out;
}

}  // namespace native
}  // namespace executor
}  // namespace torch

namespace {

using namespace executorch::runtime;
using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

// A dense Tensor of given sizes.
struct Dense {
  Dense(ScalarType dtype, std::vector<int32_t> given, std::vector<uint8_t> given_order = {})
      : sizes(std::move(given)), order(std::move(given_order)), strides(sizes.size()) {
    if (order.empty()) {
      order.resize(sizes.size());
      std::iota(order.begin(), order.end(), 0);
    }
    dim_order_to_stride_nocheck(sizes.data(), order.data(), sizes.size(), strides.data());
    impl = std::make_unique<TensorImpl>(dtype, sizes.size(), sizes.data(), memory.data(), order.data(),
                                        strides.data());
  }
  Tensor get() const { return Tensor(impl.get()); }

  std::vector<int32_t> sizes;
  std::vector<uint8_t> order;
  std::vector<int32_t> strides;
  std::vector<double> memory = std::vector<double>(64);
  std::unique_ptr<TensorImpl> impl;
};

template <class T>
void extract(std::ostream& text, const Dense& from) {
  T value{};
  if (extract_scalar_tensor(from.get(), &value)) {
    text << " " << +value;
  } else {
    text << " -";
  }
}

// The kernel's error and what it logged.
template <class Kernel>
void call(std::ostream& text, Kernel kernel, bool with_memory = true) {
  alignas(16) static uint8_t memory[256];
  MemoryAllocator allocator(sizeof(memory), memory);
  KernelRuntimeContext context(nullptr, with_memory ? &allocator : nullptr);
  opsmith::clear_lean_failure();
  try {
    kernel(context);
  } catch (const opsmith::LeanAborted& aborted) {
    text << "aborted: " << aborted.what() << "\n";
    return;
  }
  text << to_string(context.failure_state()) << ": " << opsmith::lean_failure_text() << "\n";
}

Error returned(bool fine) {
  ET_CHECK_OK_OR_RETURN_ERROR(fine ? Error::Ok : Error::NotFound);
  ET_CHECK_OK_OR_RETURN_ERROR(fine ? Error::Ok : Error::NotFound, "with %d", 1);
  return Error::Ok;
}

Result<int> unwrapped(Result<int> given) {
  ET_ASSIGN_OR_RETURN(value, std::move(given), "nothing to unwrap, %s", "really");
  return value + 1;
}

void check_matrix(const Tensor& t) {
  ET_CHECK(t.dim() == 2);
}

std::string facts() {
  std::ostringstream text;
  text << std::boolalpha;
  std::vector<ScalarType> dtypes;
  for (int8_t i = 0; i < static_cast<int8_t>(ScalarType::NumOptions); ++i) {
    dtypes.push_back(static_cast<ScalarType>(i));
  }
  for (const ScalarType dtype : dtypes) {
    text << toString(dtype) << " " << isValid(dtype) << isIntegralType(dtype, true)
         << isIntegralType(dtype, false) << isFloatingType(dtype) << isComplexType(dtype) << isRealType(dtype)
         << isRealHBBF16Type(dtype) << isQIntType(dtype) << isBitsType(dtype) << isFloat8Type(dtype)
         << isBarebonesUnsignedType(dtype) << " " << toString(toQIntType(dtype)) << " "
         << toString(toUnderlying(dtype)) << " " << toString(toRealValueType(dtype));
    if (isValid(dtype)) {
      text << " " << elementSize(dtype);
    }
    for (const ScalarType other : dtypes) {
      text << " " << canCast(dtype, other);
      const auto promotes = [](ScalarType each) { return isRealHBBF16Type(each) || isComplexType(each); };
      if (promotes(dtype) && promotes(other)) {
        text << toString(promoteTypes(dtype, other)) << toString(promoteTypes(dtype, other, true));
      }
    }
    text << "\n";
  }
  static_assert(std::is_same_v<promote_types<int8_t, c10::Half>::type, c10::Half>);

  const std::vector<std::vector<uint8_t>> orders = {{0, 1, 2, 3}, {0, 2, 3, 1}, {3, 2, 1, 0}, {1, 1, 2, 3}};
  for (const auto& order : orders) {
    const int32_t sizes[] = {2, 3, 0, 5};
    int32_t strides[4] = {};
    uint8_t back[4] = {};
    text << is_contiguous_dim_order(order.data(), 4) << is_channels_last_dim_order(order.data(), 4)
         << to_string(dim_order_to_stride(sizes, order.data(), 4, strides));
    for (const int32_t stride : strides) {
      text << " " << stride;
    }
    const int32_t distinct[] = {60, 1, 20, 4};
    text << to_string(stride_to_dim_order(distinct, 4, back));
    for (const uint8_t dim : back) {
      text << " " << +dim;
    }
    text << "\n";
  }

  for (const double value : {-1.0, 0.0, 7.0, 300.0, 1e39, std::nan("")}) {
    Dense wide(ScalarType::Double, {1});
    wide.memory[0] = value;
    extract<double>(text, wide);
    extract<float>(text, wide);
    extract<int64_t>(text, wide);
    extract<bool>(text, wide);
    if (std::abs(value) < 1000) {
      Dense integer(ScalarType::Long, {});
      integer.impl->mutable_data<int64_t>()[0] = static_cast<int64_t>(value);
      extract<int64_t>(text, integer);
      extract<int8_t>(text, integer);
      extract<float>(text, integer);
      extract<bool>(text, integer);
    }
    text << "\n";
  }

  const Dense image(ScalarType::Float, {2, 3, 2, 2}), last(ScalarType::Float, {2, 3, 2, 2}, {0, 2, 3, 1});
  const Dense row(ScalarType::Float, {12}), halves(ScalarType::Half, {2, 3, 2, 2}), one(ScalarType::Int, {});
  const Dense flags(ScalarType::Bool, {2}), empty(ScalarType::Float, {2, 0});
  const Dense* all[] = {&image, &last, &row, &halves, &one, &flags, &empty};
  for (const Dense* a : all) {
    const Tensor t = a->get();
    text << tensor_is_contiguous(t) << tensor_is_default_dim_order(t) << tensor_is_channels_last_dim_order(t)
         << tensor_is_default_or_channels_last_dim_order(t) << tensor_is_scalar(t) << tensor_is_rank(t, 1)
         << tensor_is_floating_type(t) << tensor_is_bool_type(t) << tensor_is_realhbf16_type(t)
         << tensor_is_type(t, ScalarType::Int, ScalarType::Half)
         << (t.dim() > 0 && tensor_has_non_empty_dim(t, -1)) << tensor_can_cast_to(t, ScalarType::Long)
         << nonzero_dim(t) << nonempty_size(t, 0);
    for (const int64_t dim : {-5, -1, 0, 1, 3, 4}) {
      text << tensor_has_dim(t, dim);
    }
    for (const Dense* b : all) {
      text << " " << tensors_have_same_shape(t, b->get()) << tensors_have_same_dtype(t, b->get())
           << tensors_have_same_dim_order(t, b->get()) << tensors_have_same_rank(t, b->get())
           << tensors_have_same_strides(t, b->get());
    }
    text << "\n";
  }
  size_t coordinate[4];
  indexToCoordinate(image.get(), 17, coordinate);
  text << coordinateToIndex(image.get(), coordinate) << " " << coordinate[0] << coordinate[1] << coordinate[2]
       << coordinate[3] << "\n";

  for (const Error error : {Error::Ok, Error::Internal, Error::NotSupported, Error::OutOfResources}) {
    text << to_string(error) << " ";
  }
  opsmith::clear_lean_failure();
  text << to_string(returned(false)) << opsmith::lean_failure_text() << to_string(returned(true));
  text << unwrapped(2).get() << to_string(unwrapped(Error::NotFound).error()) << opsmith::lean_failure_text()
       << "\n";

  using namespace torch::executor::native;
  Tensor out = image.get(), half_out = halves.get();
  call(text, [&](auto& ctx) { scale_out(ctx, image.get(), 2.5, out); });
  call(text, [&](auto& ctx) { scale_out(ctx, last.get(), 2.5, out); });
  call(text, [&](auto& ctx) { sum_dim_out(ctx, row.get(), 0, out); }, false);
  call(text, [&](auto& ctx) { sum_dim_out(ctx, half_out, 0, out); });
  Tensor true_out = flags.get();
  call(text, [&](auto& ctx) { scale_out(ctx, flags.get(), 2.5, true_out); });
  call(text, [&](auto&) { check_matrix(row.get()); });
  return text.str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* etensor_facts() {
  static const std::string text = facts();
  return text.c_str();
}

// Scales and sums by the kernels above: `sizes` of two dimensions.
extern "C" __attribute__((visibility("default"))) int etensor_run(float* self, int32_t* sizes, double factor,
                                                                  float* scaled, float* sums) {
  uint8_t order[] = {0, 1};
  int32_t strides[] = {sizes[1], 1};
  TensorImpl in(ScalarType::Float, 2, sizes, self, order, strides);
  TensorImpl out(ScalarType::Float, 2, sizes, scaled, order, strides);
  TensorImpl sum(ScalarType::Float, 1, sizes + 1, sums, order, strides + 1);
  std::vector<uint8_t> memory(4096);
  MemoryAllocator allocator(memory.size(), memory.data());
  KernelRuntimeContext context(nullptr, &allocator);
  Tensor scaled_out(&out), sums_out(&sum);
  torch::executor::native::scale_out(context, Tensor(&in), factor, scaled_out);
  torch::executor::native::sum_dim_out(context, Tensor(&in), 0, sums_out);
  return static_cast<int>(context.failure_state());
}
