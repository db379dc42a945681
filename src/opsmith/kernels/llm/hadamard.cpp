// fast_hadamard_transform: each row times a Hadamard matrix, Sylvester's of 2^k over √2^k or, for rows of
// 28·2^k elements, its product with the one of order 28 below, which the runtime does not scale.
#include <cmath>

#include "../common/dtypes.h"
#include "../common/resize.h"
#include "../common/tasks.h"

namespace opsmith::llm::native {
namespace {

constexpr char kName[] = "llama::fast_hadamard_transform.out";
constexpr int64_t kOrder = 28;

// The runtime's matrix of order 28: bit j of row i says that its element is -1.
constexpr uint32_t kNegative[kOrder] = {
    0xcd69e7e, 0x9ad7c7d, 0x37ab8fb, 0x6d571f7, 0xd8ae3ef, 0xb3587df, 0x66b4f3f,
    0xb467f43, 0x6acbe87, 0xd593d8e, 0xab27b9c, 0x564f7b8, 0xac9aff0, 0x5b31fe1,
    0x87fb325, 0x0ff66ca, 0x1decd95, 0x39ddb2a, 0x71bf654, 0xe17eca9, 0xc2fd9d2,
    0xfcf1299, 0xfbe2532, 0xf7c4ae4, 0xef8d549, 0xdf1ea13, 0xbe3d4a6, 0x7e7a94c,
};

// By Sylvester's matrix of order n, in place.
template <class C>
void transform(C* x, int64_t n) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t block = 0; block < n; block += 2 * half) {
      for (int64_t i = block; i < block + half; ++i) {
        const C a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

template <class T>
void transform_row(const T* from, T* to, int64_t groups, int64_t n, compute_t<T>* row) {
  using C = compute_t<T>;
  const C scale = C(1) / std::sqrt(static_cast<C>(n));
  for (int64_t i = 0; i < groups * n; ++i) {
    row[i] = load_element(from + i);
  }
  for (int64_t group = 0; group < groups; ++group) {
    transform(row + group * n, n);
  }
  if (groups == 1) {
    for (int64_t i = 0; i < n; ++i) {
      store_element(to + i, row[i] * scale);
    }
    return;
  }
  for (int64_t group = 0; group < kOrder; ++group) {
    for (int64_t i = 0; i < n; ++i) {
      C sum = 0;
      for (int64_t j = 0; j < kOrder; ++j) {
        sum += (kNegative[group] >> j & 1) != 0 ? -row[j * n + i] : row[j * n + i];
      }
      store_element(to + group * n + i, sum * scale);
    }
  }
}

}  // namespace

Tensor& fast_hadamard_transform_out(KernelRuntimeContext& context, const Tensor& mat, Tensor& out) {
  OPSMITH_CHECK(context, mat.dim() >= 1, InvalidArgument, out,
                "fast_hadamard_transform: a number without dimensions has no rows");
  const int64_t length = mat.sizes()[mat.dim() - 1];
  const int64_t groups = length % kOrder == 0 ? kOrder : 1, n = length / groups;
  OPSMITH_CHECK(context, (n & (n - 1)) == 0, InvalidArgument, out,
                "fast_hadamard_transform: rows have 2^k or 28·2^k elements, not %" PRId64, length);
  if (!same_dtype(context, mat, out) || !resize_like(context, out, mat) ||
      !are_contiguous(context, {&mat, &out}) || mat.numel() == 0) {
    return out;
  }
  with_dtype<kName>(context, Floating{}, mat.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* const from = mat.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    run_tasks<C>(context, mat.numel() / length, grain_size(8 * length), length, [&](int64_t row, C* memory) {
      transform_row(from + row * length, to + row * length, groups, n, memory);
    });
  });
  return out;
}

}  // namespace opsmith::llm::native
