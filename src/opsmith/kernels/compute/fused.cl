R"(
// The macros and functions that the sources of fused kernels call: docs/kernels/fused.md. GROUP_ITEMS items
// share a result; where that is 1, each has one of its own.
#if GROUP_ITEMS > 1
#define RESULT_OF_GROUP GROUP(0)
#define ITEM_OF_GROUP ITEM(0)
#define FIRST_OF_GROUP (ITEM(0) == 0)
#define SHARED_OF_GROUP(T, name) LOCAL T name[GROUP_ITEMS]
DEVICE inline int after_barrier(int is_first) {
  BARRIER();
  return is_first;
}
#define ALL_HAVE_READ() after_barrier(FIRST_OF_GROUP)
#else
#define RESULT_OF_GROUP GLOBAL_ITEM(0)
#define ITEM_OF_GROUP 0
#define FIRST_OF_GROUP 1
#define SHARED_OF_GROUP(T, name)
#define ALL_HAVE_READ() 1
#endif

#ifndef NAN
#define NAN AS_FLOAT(0x7FC00000u)
#endif

// NaN is more than all, and less than all.
#define MAXIMUM(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MINIMUM(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
// Whether `a` at place i comes before `b` at place j: the first of several that are equal, the first NaN.
#define FIRST_MAXIMUM(a, i, b, j) \
  ((a) != (a) ? (b) == (b) || (i) < (j) : (b) == (b) && ((a) > (b) || ((a) == (b) && (i) < (j))))
#define FIRST_MINIMUM(a, i, b, j) \
  ((a) != (a) ? (b) == (b) || (i) < (j) : (b) == (b) && ((a) < (b) || ((a) == (b) && (i) < (j))))
#define RELU(x) ((x) <= 0 ? 0 : (x))
#define ABSOLUTE(x) ((x) < 0 ? -(x) : (x) == 0 ? 0 : (x))
#define SIGN(x) (((x) > 0) - ((x) < 0))
#define SIGN_BIT(x) ((x) < 0 || ((x) == 0 && 1 / ((x) + 0.0f) < 0))
#define IS_NAN(x) ((x) != (x))
#define IS_INF(x) ((x) == INFINITY || (x) == -INFINITY)
#define SIGMOID(x) (1 / (1 + exp(-(x))))

// Of indices.
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define FLOOR_DIVIDED(a, b) ((a) / (b) - ((a) % (b) != 0 && ((a) < 0) != ((b) < 0)))
#define POSITIVE_REST(a, b) (((a) % (b) + (b)) % (b))

// Of numbers of each type, as PyTorch has them.
#define OF_FLOATS(D, T)                                                               \
  DEVICE inline T rest_##D(T a, T b) { return fmod(a, b); }                           \
  DEVICE inline T remainder_##D(T a, T b) {                                           \
    const T rest = fmod(a, b);                                                        \
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;                      \
  }                                                                                   \
  DEVICE inline T divided_##D(T a, T b) { return trunc(a / b); }                      \
  DEVICE inline T floor_divided_##D(T a, T b) {                                       \
    if (b == 0) return a / b;                                                         \
    const T rest = fmod(a, b);                                                        \
    T quotient = (a - rest) / b;                                                      \
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;                            \
    if (quotient == 0) return copysign((T)0, a / b);                                  \
    const T below = floor(quotient);                                                  \
    return quotient - below > (T)0.5f ? below + 1 : below;                            \
  }                                                                                   \
  DEVICE inline T power_##D(T a, T b) { return pow(a, b); }                           \
  DEVICE inline void add_to_moments_##D(T* mean, T* squares, T* count, T value) {     \
    *count += 1;                                                                      \
    const T difference = value - *mean;                                               \
    *mean += difference / *count;                                                     \
    *squares += difference * (value - *mean);                                         \
  }                                                                                   \
  DEVICE inline void merge_moments_##D(T* mean, T* squares, T* count, T m, T q, T n) { \
    if (n == 0) return;                                                               \
    const T difference = m - *mean, all = *count + n;                                 \
    *mean += difference * (n / all);                                                  \
    *squares += q + difference * difference * (*count * (n / all));                   \
    *count = all;                                                                     \
  }

// A division by zero, for which PyTorch raises on a CPU, is 0.
#define OF_INTEGERS(D, T)                                                             \
  DEVICE inline T rest_##D(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; }        \
  DEVICE inline T remainder_##D(T a, T b) {                                           \
    const T rest = rest_##D(a, b);                                                    \
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;                      \
  }                                                                                   \
  DEVICE inline T divided_##D(T a, T b) { return b == 0 ? 0 : b == -1 ? -a : a / b; } \
  DEVICE inline T floor_divided_##D(T a, T b) {                                       \
    return divided_##D(a, b) - (rest_##D(a, b) != 0 && (a < 0) != (b < 0));           \
  }                                                                                   \
  DEVICE inline T power_##D(T a, T b) {                                               \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;               \
    T result = 1;                                                                     \
    for (; b != 0; b /= 2, a *= a) {                                                  \
      if (b % 2 != 0) result *= a;                                                    \
    }                                                                                 \
    return result;                                                                    \
  }

OF_FLOATS(Float, float)
#ifdef HAS_DOUBLE
OF_FLOATS(Double, double)
#endif
OF_INTEGERS(Long, long)
OF_INTEGERS(Int, int)
OF_INTEGERS(Short, short)
OF_INTEGERS(Char, char)

DEVICE inline uchar rest_Byte(uchar a, uchar b) { return b == 0 ? 0 : a % b; }
DEVICE inline uchar remainder_Byte(uchar a, uchar b) { return rest_Byte(a, b); }
DEVICE inline uchar divided_Byte(uchar a, uchar b) { return b == 0 ? 0 : a / b; }
DEVICE inline uchar floor_divided_Byte(uchar a, uchar b) { return divided_Byte(a, b); }
DEVICE inline uchar power_Byte(uchar a, uchar b) { return (uchar)power_Int(a, b); }

// Number `offset` of the stream of `seed`.
DEVICE inline float UNIFORM(long seed, long offset) {
  return (philox((ulong)offset, (ulong)seed).x >> 8) * 5.9604644775390625e-8f;
}
// Box and Muller, A note on the generation of random normal deviates, 1958.
DEVICE inline float NORMAL(long seed, long offset) {
  const uint4 bits = philox((ulong)offset, (ulong)seed);
  const float radius = sqrt(-2 * log(((bits.x >> 8) + 1) * 5.9604644775390625e-8f));
  return radius * cos(6.28318530717958647692f * ((bits.y >> 8) * 5.9604644775390625e-8f));
}
DEVICE inline long INTEGER_FROM(long seed, long offset, long low, long high) {
  const uint4 bits = philox((ulong)offset, (ulong)seed);
  return low + (long)((((ulong)bits.x << 32) | bits.y) % (ulong)(high - low));
}
)"
