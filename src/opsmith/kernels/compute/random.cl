R"(
// Random numbers: an item makes the elements of one block of Philox's numbers (philox.cl), as the library `random`
// does on the host. UNIFORM: in [x, y), in as many steps as COMPUTE holds. NORMAL: mean x and deviation y, by Box
// and Muller. BERNOULLI: whether the number is below x, which counts in 2^-32.
typedef COMPUTED(COMPUTE) C;

#if defined(WIDE)
#define ELEMENTS 2
#define FROM_ZERO(high, low) ((double)((((ulong)(high) << 32) | (low)) >> 11) * 0x1p-53)
#define ABOVE_ZERO(high, low) ((double)(((((ulong)(high) << 32) | (low)) >> 11) + 1) * 0x1p-53)
#else
#define ELEMENTS 4
#endif

KERNEL void run(BUFFER(STORED(DTYPE), out), const long count, const ulong seed, const ulong first_block, const C x,
                const C y, const ulong below) {
  const long block = GLOBAL_ITEM(0);
  const long first = ELEMENTS * block;
  if (first >= count) return;
  const uint4 numbers = philox(first_block + (ulong)block, seed);
  C values[4];
#if defined(BERNOULLI)
  values[0] = numbers.x < below;
  values[1] = numbers.y < below;
  values[2] = numbers.z < below;
  values[3] = numbers.w < below;
#elif defined(UNIFORM) && defined(WIDE)
  values[0] = x + FROM_ZERO(numbers.x, numbers.y) * (y - x);
  values[1] = x + FROM_ZERO(numbers.z, numbers.w) * (y - x);
#elif defined(UNIFORM)
  const C step = (y - x) * (C)0x1p-24f;
  values[0] = x + (C)(numbers.x >> 8) * step;
  values[1] = x + (C)(numbers.y >> 8) * step;
  values[2] = x + (C)(numbers.z >> 8) * step;
  values[3] = x + (C)(numbers.w >> 8) * step;
#elif defined(WIDE)
  const C length = y * sqrt(-2 * log(ABOVE_ZERO(numbers.x, numbers.y)));
  const C angle = 6.28318530717958647692 * FROM_ZERO(numbers.z, numbers.w);
  values[0] = x + length * cos(angle);
  values[1] = x + length * sin(angle);
#else
  const C first_length = y * sqrt(-2 * log((C)(numbers.x >> 1) * 0x1p-31f + 0x1p-32f));
  const C first_angle = (C)(int)numbers.y * (6.28318531f * 0x1p-32f);
  values[0] = x + first_length * cos(first_angle);
  values[1] = x + first_length * sin(first_angle);
  const C second_length = y * sqrt(-2 * log((C)(numbers.z >> 1) * 0x1p-31f + 0x1p-32f));
  const C second_angle = (C)(int)numbers.w * (6.28318531f * 0x1p-32f);
  values[2] = x + second_length * cos(second_angle);
  values[3] = x + second_length * sin(second_angle);
#endif
  for (int k = 0; k < ELEMENTS && first + k < count; ++k) {
    STORE(DTYPE, POINTER(STORED(DTYPE), out), first + k, values[k]);
#if defined(UNIFORM)
    // Rounding may reach the end that does not belong to the range.
    if (!(LOAD(DTYPE, POINTER(const STORED(DTYPE), out), first + k) < y)) {
      STORE(DTYPE, POINTER(STORED(DTYPE), out), first + k, x);
    }
#endif
  }
}
)"
