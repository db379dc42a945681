// Kernels of the `executorch` ABI, as plain as they can be: what is around them is tested.
#include <cstring>
#include <numeric>
#include <tuple>

#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include <opsmith/philox.h>
#include <opsmith_random.h>

namespace lean_test::native {

using executorch::aten::ArrayRef;
using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorList;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::resize_tensor;
using std::optional;

namespace {

template <class T>
Tensor& add(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, const Scalar& alpha,
            Tensor& out) {
  const bool broadcasts = other.numel() == 1 && self.numel() != 1;
  ET_KERNEL_CHECK_MSG(ctx, broadcasts || self.numel() == other.numel(), NotSupported, out,
                      "broadcasting %zd elements to %zd", other.numel(), self.numel());
  ET_KERNEL_CHECK(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out);
  const T factor = alpha.isFloatingPoint() ? T(alpha.to<double>()) : T(alpha.to<int64_t>());
  const T* a = self.const_data_ptr<T>();
  const T* b = other.const_data_ptr<T>();
  T* result = out.mutable_data_ptr<T>();
  executorch::extension::parallel_for(0, out.numel(), 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      result[i] = a[i] + factor * b[broadcasts ? 0 : i];
    }
  });
  return out;
}

}  // namespace

Tensor& add_integers_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other,
                         const Scalar& alpha, Tensor& out) {
  return self.scalar_type() == ScalarType::Long ? add<int64_t>(ctx, self, other, alpha, out)
                                                : add<int32_t>(ctx, self, other, alpha, out);
}

Tensor& add_single_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other,
                       const Scalar& alpha, Tensor& out) {
  return add<float>(ctx, self, other, alpha, out);
}

Tensor& add_double_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other,
                       const Scalar& alpha, Tensor& out) {
  return add<double>(ctx, self, other, alpha, out);
}

// Of operands of one shape; either may be a number.
Tensor& sub_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, const Scalar&,
                Tensor& out) {
  const Tensor& shaped = self.dim() > 0 ? self : other;
  ET_KERNEL_CHECK(ctx, resize_tensor(out, shaped.sizes()) == Error::Ok, InvalidArgument, out);
  const float* a = self.const_data_ptr<float>();
  const float* b = other.const_data_ptr<float>();
  for (ssize_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = a[self.dim() > 0 ? i : 0] - b[other.dim() > 0 ? i : 0];
  }
  return out;
}

// A number at one index, of the rows or of the columns.
Tensor& index_put_out(KernelRuntimeContext& ctx, const Tensor& self, ArrayRef<optional<Tensor>> indices,
                      const Tensor& values, bool, Tensor& out) {
  ET_KERNEL_CHECK(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out);
  const bool rows = indices[0].has_value();
  const int64_t at = indices[rows ? 0 : 1]->const_data_ptr<int64_t>()[0];
  for (ssize_t i = 0; i < out.numel(); ++i) {
    const int64_t place = rows ? i / self.size(1) : i % self.size(1);
    out.mutable_data_ptr<float>()[i] =
        (place == at ? values : self).const_data_ptr<float>()[place == at ? 0 : i];
  }
  return out;
}

// Takes any dim order, as long as all have the same; says what it was given by the alternating sign of zero.
Tensor& mul_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& other, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, executorch::runtime::tensors_have_same_dim_order(self, other, out), NotSupported,
                      out, "other dim orders");
  ET_KERNEL_CHECK(ctx, resize_tensor(out, self.sizes()) == Error::Ok, InvalidArgument, out);
  for (ssize_t i = 0; i < out.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = self.const_data_ptr<float>()[i] * other.const_data_ptr<float>()[i];
  }
  return out;
}

// Along dimension 0 only.
Tensor& cat_out(KernelRuntimeContext& ctx, TensorList tensors, int64_t dim, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, dim == 0, NotSupported, out, "dim %d", static_cast<int>(dim));
  float* to = out.mutable_data_ptr<float>();
  for (const Tensor& tensor : tensors) {
    to = std::copy_n(tensor.const_data_ptr<float>(), tensor.numel(), to);
  }
  return out;
}

Tensor& sum_out(KernelRuntimeContext& ctx, const Tensor& self, optional<ArrayRef<int64_t>> dim, bool,
                optional<ScalarType>, Tensor& out) {
  ET_KERNEL_CHECK_MSG(ctx, !dim.has_value() || dim->empty(), NotSupported, out, "a sum over some dimensions");
  const float* elements = self.const_data_ptr<float>();
  *out.mutable_data_ptr<float>() = std::accumulate(elements, elements + self.numel(), 0.0f);
  return out;
}

std::tuple<Tensor&, Tensor&, Tensor&> layer_norm_out(KernelRuntimeContext& ctx, const Tensor& input,
                                                     ArrayRef<int64_t> normalized_shape,
                                                     const optional<Tensor>& weight,
                                                     const optional<Tensor>& bias, double eps, Tensor& out,
                                                     Tensor& mean, Tensor& rstd) {
  size_t size = 1;
  for (const int64_t length : normalized_shape) {
    size *= length;
  }
  // In temporary memory, to see that there is some.
  auto memory = ctx.allocate_temp(size * sizeof(float), 64);
  if (!memory.ok() || reinterpret_cast<uintptr_t>(*memory) % 64 != 0) {
    ctx.fail(Error::MemoryAllocationFailed);
    return {out, mean, rstd};
  }
  float* row = static_cast<float*>(*memory);
  for (size_t i = 0; i < input.numel() / size; ++i) {
    std::memcpy(row, input.const_data_ptr<float>() + i * size, size * sizeof(float));
    const float average = std::accumulate(row, row + size, 0.0f) / size;
    float squares = 0;
    for (size_t j = 0; j < size; ++j) {
      squares += (row[j] - average) * (row[j] - average);
    }
    const float scale = 1 / std::sqrt(squares / size + static_cast<float>(eps));
    for (size_t j = 0; j < size; ++j) {
      const float w = weight.has_value() ? weight->const_data_ptr<float>()[j] : 1;
      const float b = bias.has_value() ? bias->const_data_ptr<float>()[j] : 0;
      out.mutable_data_ptr<float>()[i * size + j] = (row[j] - average) * scale * w + b;
    }
    mean.mutable_data_ptr<float>()[i] = average;
    rstd.mutable_data_ptr<float>()[i] = scale;
  }
  return {out, mean, rstd};
}

// Gives its result another shape than the operator has where the index holds -1; aborts where it holds -2.
Tensor& index_select_out(KernelRuntimeContext& ctx, const Tensor& self, int64_t dim, const Tensor& index,
                         Tensor& out) {
  const int64_t first = index.const_data_ptr<int64_t>()[0];
  ET_CHECK_MSG(first != -2, "index %d ends the process", static_cast<int>(first));
  const auto sizes = first == -1 ? self.sizes() : out.sizes();
  ET_KERNEL_CHECK(ctx, dim == 0 && resize_tensor(out, sizes) == Error::Ok, InvalidArgument, out);
  const size_t row = self.numel() / self.size(0);
  for (ssize_t i = 0; i < index.numel(); ++i) {
    const int64_t from = index.const_data_ptr<int64_t>()[i];
    ET_KERNEL_CHECK_MSG(ctx, from >= 0 && from < self.size(0), InvalidArgument, out, "index %d of %d",
                        static_cast<int>(from), static_cast<int>(self.size(0)));
    std::copy_n(self.const_data_ptr<float>() + from * row, row, out.mutable_data_ptr<float>() + i * row);
  }
  return out;
}

namespace {

float number(const Scalar& scalar) {
  return scalar.isFloatingPoint() ? static_cast<float>(scalar.to<double>())
                                  : static_cast<float>(scalar.to<int64_t>());
}

}  // namespace

Tensor& clamp_out(KernelRuntimeContext&, const Tensor& self, const optional<Scalar>& min,
                  const optional<Scalar>& max, Tensor& out) {
  for (ssize_t i = 0; i < self.numel(); ++i) {
    float value = self.const_data_ptr<float>()[i];
    value = min.has_value() ? std::max(value, number(*min)) : value;
    value = max.has_value() ? std::min(value, number(*max)) : value;
    out.mutable_data_ptr<float>()[i] = value;
  }
  return out;
}

Tensor& nonzero_out(KernelRuntimeContext&, const Tensor&, Tensor& out) {
  return out;
}

Tensor& scale_out(KernelRuntimeContext&, const Tensor& self, double factor, Tensor& out) {
  for (ssize_t i = 0; i < self.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = self.const_data_ptr<float>()[i] * static_cast<float>(factor);
  }
  return out;
}

Tensor& outer_out(KernelRuntimeContext&, const Tensor& a, const optional<Tensor>& b, std::string_view mode,
                  Tensor& out) {
  const float addend = (b.has_value() ? b->const_data_ptr<float>()[0] : 0) + (mode == "more" ? 100 : 0);
  for (ssize_t i = 0; i < a.numel(); ++i) {
    out.mutable_data_ptr<float>()[i] = a.const_data_ptr<float>()[i] + addend;
  }
  return out;
}

// Adds self to the total, which may be larger, and gives back the total.
Tensor& accumulate_out(KernelRuntimeContext& ctx, const Tensor& self, Tensor& total, Tensor& out) {
  ET_KERNEL_CHECK(ctx, resize_tensor(out, total.sizes()) == Error::Ok, InvalidArgument, out);
  for (ssize_t i = 0; i < total.numel(); ++i) {
    float& sum = total.mutable_data_ptr<float>()[i];
    sum += i < self.numel() ? self.const_data_ptr<float>()[i] : 0;
    out.mutable_data_ptr<float>()[i] = sum;
  }
  return out;
}

// Batch normalisation of (1, channels) in training, which moves the running mean and nothing else.
std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_out(KernelRuntimeContext&, const Tensor& input,
                                                     const optional<Tensor>&, const optional<Tensor>&,
                                                     const optional<Tensor>& running_mean,
                                                     const optional<Tensor>&, bool, double momentum, double,
                                                     Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  for (ssize_t i = 0; i < input.numel(); ++i) {
    const float value = input.const_data_ptr<float>()[i];
    out.mutable_data_ptr<float>()[i] = 0;
    save_mean.mutable_data_ptr<float>()[i] = value;
    save_invstd.mutable_data_ptr<float>()[i] = 1;
    if (running_mean.has_value()) {
      float& mean = running_mean->mutable_data_ptr<float>()[i];
      mean += static_cast<float>(momentum) * (value - mean);
    }
  }
  return {out, save_mean, save_invstd};
}

// The elements under a mask of the same shape.
Tensor& masked_select_out(KernelRuntimeContext& ctx, const Tensor& self, const Tensor& mask, Tensor& out) {
  const bool* holds = mask.const_data_ptr<bool>();
  const executorch::aten::SizesType count = std::accumulate(holds, holds + mask.numel(), 0);
  ET_KERNEL_CHECK(ctx, resize_tensor(out, {&count, 1}) == Error::Ok, InvalidArgument, out);
  float* to = out.mutable_data_ptr<float>();
  for (ssize_t i = 0; i < self.numel(); ++i) {
    if (holds[i]) {
      *to++ = self.const_data_ptr<float>()[i];
    }
  }
  return out;
}

// Uniform random numbers in the shape of self.
Tensor& noise_out(KernelRuntimeContext& ctx, const Tensor& self, Tensor& out) {
  uint64_t seed = 0;
  uint64_t offset = 0;
  ET_KERNEL_CHECK(ctx, opsmith_take_random_numbers(self.numel(), &seed, &offset) == 1, NotSupported, out);
  for (ssize_t i = 0; i < self.numel(); ++i) {
    const uint32_t number = opsmith::philox(seed, (offset + i) / 4)[i % 4];
    out.mutable_data_ptr<float>()[i] = static_cast<float>(number >> 8) * 0x1p-24f;
  }
  return out;
}

}  // namespace lean_test::native
