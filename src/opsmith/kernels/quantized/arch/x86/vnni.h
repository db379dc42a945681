// VNNI's products of unsigned bytes by signed ones, added up by fours. Included by sources of one instruction
// set alone.

#include <cstring>

#include <immintrin.h>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// lanes += products of fours. In assembly: around the intrinsic, gcc 12 copies every register that it adds
// to.
inline void add_products(__m512i& lanes, __m512i unsigned_bytes, __m512i signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(lanes) : "v"(unsigned_bytes), "v"(signed_bytes));
}

// Four bytes, in each of the lanes.
inline __m512i four_times_16(const void* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

}  // namespace
}  // namespace opsmith::quantized::OPSMITH_ISA
