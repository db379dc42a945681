// Rows of quantized embeddings, as floats: of bytes, and of 4 or 2 bits, whose first value lies in a byte's
// upper half, and in its lowest bits.
//
// Each row has a scale and, at will, a zero point, or one for each of its groups: (value - zero point)·scale
// is calculated in float and rounded once. Source:
// executorch/exir/passes/_quant_patterns_and_replacements.py.
#include <optional>

#include "../common/dtypes.h"
#include "../common/parallel.h"
#include "../common/resize.h"

namespace opsmith::llm::native {
namespace {

using OptionalTensor = std::optional<Tensor>;

struct Table {
  const char* name;
  int bits;
  int64_t rows = 0;
  int64_t width = 0;  // values of a row
  int64_t groups = 0;
};

bool is_float(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Float || is_half_precision(tensor.scalar_type());
}

// Rejects what does not belong together; else resizes `out`.
bool prepare(KernelRuntimeContext& context, Table& table, const Tensor& weight, const Tensor& scales,
             const OptionalTensor& zero_points, int64_t quant_min, int64_t quant_max, const Tensor& indices,
             std::optional<ScalarType> dtype, Tensor& out) {
  const char* const name = table.name;
  OPSMITH_CHECK(context,
                weight.scalar_type() == ScalarType::Byte ||
                    (table.bits == 8 && weight.scalar_type() == ScalarType::Char),
                NotSupported, false, "%s: `weight` is %s, and has to be %s", name,
                name_of(weight.scalar_type()), table.bits == 8 ? "Char or Byte" : "Byte");
  OPSMITH_CHECK(context, is_float(scales) && is_float(out), NotSupported, false,
                "%s: scales and out are Float, Half or BFloat16, not %s and %s", name,
                name_of(scales.scalar_type()), name_of(out.scalar_type()));
  OPSMITH_CHECK(context, !dtype.has_value() || *dtype == out.scalar_type(), InvalidArgument, false,
                "%s: out has to have the dtype that is given, %s, but has %s", name, name_of(*dtype),
                name_of(out.scalar_type()));
  OPSMITH_CHECK(
      context,
      weight.dim() == 2 && (scales.dim() == 1 || scales.dim() == 2) && scales.sizes()[0] == weight.sizes()[0],
      InvalidArgument, false, "%s: `weight` has 2 dimensions, and `weight_scales` 1 or 2, with as many rows",
      name);
  table.rows = weight.sizes()[0];
  table.width = weight.sizes()[1] * (8 / table.bits);
  table.groups = scales.dim() == 2 ? scales.sizes()[1] : 1;
  OPSMITH_CHECK(context, table.groups > 0 && table.width % table.groups == 0, InvalidArgument, false,
                "%s: %" PRId64 " scales do not divide a row of %" PRId64 " values", name, table.groups,
                table.width);
  OPSMITH_CHECK(context,
                !zero_points.has_value() || (zero_points->scalar_type() == scales.scalar_type() &&
                                             sizes_of(*zero_points) == sizes_of(scales)),
                InvalidArgument, false, "%s: zero points have the scales' dtype and shape", name);
  const int64_t half = int64_t{1} << (table.bits - 1);
  OPSMITH_CHECK(context,
                table.bits == 8 ? quant_min <= quant_max : quant_min == -half && quant_max == half - 1,
                InvalidArgument, false, "%s: values from %" PRId64 " to %" PRId64 " are not of %d bits", name,
                quant_min, quant_max, table.bits);
  OPSMITH_CHECK(
      context, indices.scalar_type() == ScalarType::Long || indices.scalar_type() == ScalarType::Int,
      NotSupported, false, "%s: indices are Long or Int, not %s", name, name_of(indices.scalar_type()));
  OPSMITH_CHECK(context, indices.dim() < kMaxDims, NotSupported, false, "%s: indices of %d dimensions", name,
                static_cast<int>(indices.dim()));
  Dims sizes = sizes_of(indices);
  sizes.push_back(table.width);
  return resize(context, out, sizes) && are_contiguous(context, {&weight, &scales, &indices, &out}) &&
         (!zero_points.has_value() || are_contiguous(context, {&*zero_points}));
}

// The values of a row, as integers; `bytes` are its memory.
template <int Bits, bool Signed>
int32_t value_at(const uint8_t* bytes, int64_t i) {
  if constexpr (Bits == 8) {
    return Signed ? static_cast<int8_t>(bytes[i]) : bytes[i];
  } else if constexpr (Bits == 4) {
    return (i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15) - 8;
  } else {
    return ((bytes[i / 4] >> (i % 4 * 2)) & 3) - 2;
  }
}

template <int Bits, bool Signed, class S, class O>
void fill(const Table& table, const Tensor& weight, const Tensor& scales, const OptionalTensor& zero_points,
          const Tensor& indices, Tensor& out) {
  const auto* const bytes = static_cast<const uint8_t*>(weight.const_data_ptr());
  const S* const factors = scales.const_data_ptr<S>();
  const S* const zeros = zero_points.has_value() ? zero_points->const_data_ptr<S>() : nullptr;
  const bool is_long = indices.scalar_type() == ScalarType::Long;
  const int64_t group = table.width / table.groups, pitch = weight.sizes()[1];
  parallel(indices.numel(), grain_size(table.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row =
          is_long ? indices.const_data_ptr<int64_t>()[i] : indices.const_data_ptr<int32_t>()[i];
      O* to = out.mutable_data_ptr<O>() + i * table.width;
      for (int64_t g = 0; g < table.groups; ++g) {
        const float factor = load_element(factors + row * table.groups + g);
        const float zero = zeros != nullptr ? load_element(zeros + row * table.groups + g) : 0.0f;
        for (int64_t j = g * group; j < (g + 1) * group; ++j) {
          const auto value = static_cast<float>(value_at<Bits, Signed>(bytes + row * pitch, j));
          store_element(to + j, (value - zero) * factor);
        }
      }
    }
  });
}

bool are_in_range(KernelRuntimeContext& context, const Table& table, const Tensor& indices) {
  const bool is_long = indices.scalar_type() == ScalarType::Long;
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t row = is_long ? indices.const_data_ptr<int64_t>()[i] : indices.const_data_ptr<int32_t>()[i];
    OPSMITH_CHECK(context, row >= 0 && row < table.rows, NotFound, false,
                  "%s: the index %" PRId64 " is out of bounds for %" PRId64 " embeddings", table.name, row,
                  table.rows);
  }
  return true;
}

template <const char* Name, int Bits>
Tensor& embed(KernelRuntimeContext& context, const Tensor& weight, const Tensor& scales,
              const OptionalTensor& zero_points, int64_t quant_min, int64_t quant_max, const Tensor& indices,
              std::optional<ScalarType> dtype, Tensor& out) {
  Table table{Bits == 8 ? "embedding_byte" : Bits == 4 ? "embedding_4bit" : "embedding_2bit", Bits};
  if (!prepare(context, table, weight, scales, zero_points, quant_min, quant_max, indices, dtype, out) ||
      !are_in_range(context, table, indices) || out.numel() == 0) {
    return out;
  }
  using Real = Types<float, Half, BFloat16>;
  with_dtype<Name>(context, Real{}, scales.scalar_type(), [&](auto scale) {
    using S = typename decltype(scale)::type;
    with_dtype<Name>(context, Real{}, out.scalar_type(), [&](auto result) {
      using O = typename decltype(result)::type;
      if (Bits == 8 && weight.scalar_type() == ScalarType::Char) {
        fill<Bits, true, S, O>(table, weight, scales, zero_points, indices, out);
      } else {
        fill<Bits, false, S, O>(table, weight, scales, zero_points, indices, out);
      }
    });
  });
  return out;
}

constexpr char kByte[] = "quantized_decomposed::embedding_byte.out";
constexpr char kByteDtype[] = "quantized_decomposed::embedding_byte.dtype_out";
constexpr char kFourBits[] = "quantized_decomposed::embedding_4bit.out";
constexpr char kFourBitsDtype[] = "quantized_decomposed::embedding_4bit.dtype_out";
constexpr char kTwoBits[] = "quantized_decomposed::embedding_2bit.out";
constexpr char kTwoBitsDtype[] = "quantized_decomposed::embedding_2bit.dtype_out";

}  // namespace

#define OPSMITH_EMBEDDING(name, Name, bits)                                                                  \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& weight, const Tensor& weight_scales,       \
                     const OptionalTensor& weight_zero_points, int64_t weight_quant_min,                     \
                     int64_t weight_quant_max, const Tensor& indices, Tensor& out) {                         \
    return embed<Name, bits>(context, weight, weight_scales, weight_zero_points, weight_quant_min,           \
                             weight_quant_max, indices, std::nullopt, out);                                  \
  }                                                                                                          \
  Tensor& name##_dtype_out(KernelRuntimeContext& context, const Tensor& weight, const Tensor& weight_scales, \
                           const OptionalTensor& weight_zero_points, int64_t weight_quant_min,               \
                           int64_t weight_quant_max, const Tensor& indices, std::optional<ScalarType> dtype, \
                           Tensor& out) {                                                                    \
    return embed<Name##Dtype, bits>(context, weight, weight_scales, weight_zero_points, weight_quant_min,    \
                                    weight_quant_max, indices, dtype, out);                                  \
  }
OPSMITH_EMBEDDING(embedding_byte, kByte, 8)
OPSMITH_EMBEDDING(embedding_4bit, kFourBits, 4)
OPSMITH_EMBEDDING(embedding_2bit, kTwoBits, 2)
#undef OPSMITH_EMBEDDING

}  // namespace opsmith::llm::native
