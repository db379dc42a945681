// Sums of products of int16 with AVX2, of which an instruction multiplies pairs and adds both products.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// 16 bytes as int16.
inline __m256i widened_bytes(const int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// sums += the pairs' products. In assembly: gcc 12 copies every register that it adds to.
inline void add_products(__m256i& sums, __m256i input, __m256i weight) {
  asm("vpaddd %1, %0, %0" : "+x"(sums) : "x"(_mm256_madd_epi16(input, weight)));
}

}  // namespace
}  // namespace opsmith::quantized::OPSMITH_ISA
