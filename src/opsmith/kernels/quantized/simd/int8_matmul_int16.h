// Int8Product of an input that has been shifted to int16: the compiler makes pmaddwd, or its like, of the
// loop. Included by int8_matmul.cpp alone.

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

void shifted_product(const Int8Product& p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const int8_t* const weight = p.weight + n * p.k;
    for (int64_t m = 0; m < p.m; ++m) {
      const int16_t* const input = p.shifted + m * p.k;
      int32_t sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const int16_t factor = weight[k];
        sum += static_cast<int32_t>(input[k]) * static_cast<int32_t>(factor);
      }
      store(p, m, n, sum);
    }
  }
}

}  // namespace
}  // namespace opsmith::quantized::OPSMITH_ISA
