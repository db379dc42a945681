// See quantized_dtypes.h.
#include "quantized_dtypes.h"

#include "quantization_functions.h"

#include <algorithm>
#include <cstring>

namespace opsmith::quantized {

// Returns `block` with the elements widened, where the tensor is of the dtype.
#define OPSMITH_WIDEN(dtype, From, name)                                                       \
  if constexpr (kIsUsed<ScalarType::dtype>) {                                                  \
    if (tensor.scalar_type() == ScalarType::dtype) {                                           \
      OPSMITH_BEST(name)(static_cast<const From*>(tensor.const_data_ptr()) + begin, block, n); \
      return block;                                                                            \
    }                                                                                          \
  }

const float* floats(const Tensor& tensor, int64_t begin, int64_t n, float* block) {
  OPSMITH_WIDEN(Half, uint16_t, widen_half)
  OPSMITH_WIDEN(BFloat16, uint16_t, widen_bfloat16)
  if constexpr (kIsUsed<ScalarType::Double>) {
    if (tensor.scalar_type() == ScalarType::Double) {
      std::copy_n(static_cast<const double*>(tensor.const_data_ptr()) + begin, n, block);
      return block;
    }
  }
  return static_cast<const float*>(tensor.const_data_ptr()) + begin;
}

const int32_t* integers(const Tensor& tensor, int64_t begin, int64_t n, int32_t* block) {
  OPSMITH_WIDEN(Byte, uint8_t, widen_uint8)
  OPSMITH_WIDEN(Char, int8_t, widen_int8)
  OPSMITH_WIDEN(UInt16, uint16_t, widen_uint16)
  OPSMITH_WIDEN(Short, int16_t, widen_int16)
  return static_cast<const int32_t*>(tensor.const_data_ptr()) + begin;
}

#undef OPSMITH_WIDEN

int32_t* place_for(const Tensor& out, int64_t begin, int32_t* block) {
  return out.scalar_type() == ScalarType::Int ? static_cast<int32_t*>(out.mutable_data_ptr()) + begin : block;
}

void put(const Tensor& out, int64_t begin, int64_t n, const int32_t* from) {
  const int bits = integers_of(out.scalar_type()).bits;
  if constexpr (kIsUsed<ScalarType::Byte> || kIsUsed<ScalarType::Char>) {
    if (bits == 8) {
      OPSMITH_BEST(narrow_8)(from, static_cast<uint8_t*>(out.mutable_data_ptr()) + begin, n);
    }
  }
  if constexpr (kIsUsed<ScalarType::UInt16> || kIsUsed<ScalarType::Short>) {
    if (bits == 16) {
      OPSMITH_BEST(narrow_16)(from, static_cast<uint16_t*>(out.mutable_data_ptr()) + begin, n);
    }
  }
  // Those of 32 bits are there already: place_for.
}

namespace {

template <class To, class From>
void store(const Tensor& out, int64_t begin, int64_t n, const From* from) {
  To* const to = static_cast<To*>(out.mutable_data_ptr()) + begin;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(To) == 2) {
      to[i] = To(static_cast<float>(from[i]));
    } else {
      to[i] = static_cast<To>(from[i]);
    }
  }
}

template <class From>
void store_as(const Tensor& out, int64_t begin, int64_t n, const From* from) {
  const ScalarType dtype = out.scalar_type();
  if constexpr (kIsUsed<ScalarType::Half>) {
    if (dtype == ScalarType::Half) {
      return store<Half>(out, begin, n, from);
    }
  }
  if constexpr (kIsUsed<ScalarType::BFloat16>) {
    if (dtype == ScalarType::BFloat16) {
      return store<BFloat16>(out, begin, n, from);
    }
  }
  if constexpr (kIsUsed<ScalarType::Double>) {
    if (dtype == ScalarType::Double) {
      return store<double>(out, begin, n, from);
    }
  }
  store<float>(out, begin, n, from);
}

}  // namespace

void put_floats(const Tensor& out, int64_t begin, int64_t n, const float* from) {
  store_as(out, begin, n, from);
}
void put_floats(const Tensor& out, int64_t begin, int64_t n, const double* from) {
  store_as(out, begin, n, from);
}

float rounded(float value, ScalarType dtype) {
  return dtype == ScalarType::Half       ? static_cast<float>(Half(value))
         : dtype == ScalarType::BFloat16 ? static_cast<float>(BFloat16(value))
                                         : value;
}

double number_at(const Tensor& tensor, int64_t index) {
  switch (tensor.scalar_type()) {
    case ScalarType::Double:
      return static_cast<const double*>(tensor.const_data_ptr())[index];
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16: {
      float converted;
      return *floats(tensor, index, 1, &converted);
    }
    default:
      return static_cast<double>(integer_at(tensor, index));
  }
}

int64_t integer_at(const Tensor& tensor, int64_t index) {
  switch (tensor.scalar_type()) {
    case ScalarType::Long:
      return static_cast<const int64_t*>(tensor.const_data_ptr())[index];
    case ScalarType::Double:
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return static_cast<int64_t>(number_at(tensor, index));
    default: {
      int32_t converted;
      return *integers(tensor, index, 1, &converted);
    }
  }
}

bool check_range(KernelRuntimeContext& context, const char* name, int64_t quant_min, int64_t quant_max,
                 ScalarType dtype) {
  const Integers range = integers_of(dtype);
  OPSMITH_CHECK(context, range.bits != 0, NotSupported, false,
                "%s: values are quantized to Byte, Char, UInt16, Short or Int, not to %s", name,
                name_of(dtype));
  OPSMITH_CHECK(context, quant_min >= range.least && quant_max <= range.greatest, InvalidArgument, false,
                "%s: quant_min %" PRId64 " and quant_max %" PRId64 " are not within %" PRId64 "…%" PRId64
                ", which %s holds",
                name, quant_min, quant_max, range.least, range.greatest, name_of(dtype));
  return true;
}

bool check_dtype(KernelRuntimeContext& context, const char* name, const char* argument, const Tensor& tensor,
                 ScalarType wanted) {
  OPSMITH_CHECK(context, tensor.scalar_type() == wanted, InvalidArgument, false,
                "%s: `%s` is %s and has to be %s", name, argument, name_of(tensor.scalar_type()),
                name_of(wanted));
  return true;
}

bool check_numbers(KernelRuntimeContext& context, const char* name, const char* argument,
                   const Tensor& tensor) {
  const ScalarType dtype = tensor.scalar_type();
  OPSMITH_CHECK(context,
                integers_of(dtype).bits != 0 || dtype == ScalarType::Long || dtype == ScalarType::Float ||
                    dtype == ScalarType::Double || is_half_precision(dtype),
                InvalidArgument, false, "%s: `%s` is %s and has to be of numbers that are not complex", name,
                argument, name_of(dtype));
  return true;
}

bool check_one(KernelRuntimeContext& context, const char* name, const char* argument, const Tensor& tensor) {
  OPSMITH_CHECK(context, tensor.numel() == 1, InvalidArgument, false,
                "%s: `%s` has %" PRId64 " elements and has to have 1", name, argument,
                static_cast<int64_t>(tensor.numel()));
  return check_numbers(context, name, argument, tensor);
}

bool resize_as(KernelRuntimeContext& context, const char* name, const Tensor& like, Tensor& out) {
  if (!resize_like(context, out, like)) {
    return false;
  }
  OPSMITH_CHECK(context, like.numel() == 0 || same_layout(like, out), InvalidArgument, false,
                "%s: the elements of `out` are in another order than those of `input`", name);
  return true;
}

}  // namespace opsmith::quantized
