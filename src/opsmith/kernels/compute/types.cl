R"(
// Elements of each dtype of PyTorch: how they are stored, in which type they are computed, how they are read and
// written. LOAD(Half, p, i) is LOAD_Half(p, i).
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STORED(D) JOIN(STORED_, D)
#define COMPUTED(D) JOIN(COMPUTED_, D)
#define LOAD(D, p, i) JOIN(LOAD_, D)(p, i)
#define STORE(D, p, i, x) JOIN(STORE_, D)(p, i, x)

// `n` elements as they are stored, in words of `bytes` together, which one load or store moves.
#define VECTOR(D, n, bytes) union { STORED(D) at[n]; JOIN(WORDS_, bytes) words; }
#define LOAD_VECTOR(p, vector, bytes) (vector).words = *(GLOBAL const JOIN(WORDS_, bytes)*)(p)
#define STORE_VECTOR(p, vector, bytes) *(GLOBAL JOIN(WORDS_, bytes)*)(p) = (vector).words
#define WORDS_1 uchar
#define WORDS_2 ushort
#define WORDS_4 uint
#define WORDS_8 uint2
#define WORDS_16 uint4
#define UNROLLED _Pragma("unroll")

#define STORED_Float float
#define COMPUTED_Float float
#define LOAD_Float(p, i) ((p)[i])
#define STORE_Float(p, i, x) ((p)[i] = (float)(x))

#define STORED_Double double
#define COMPUTED_Double double
#define LOAD_Double(p, i) ((p)[i])
#define STORE_Double(p, i, x) ((p)[i] = (double)(x))

#define STORED_Half ushort
#define COMPUTED_Half float
#define LOAD_Half(p, i) float_of_half((p)[i])
#define STORE_Half(p, i, x) ((p)[i] = half_of_float((float)(x)))

#define STORED_BFloat16 ushort
#define COMPUTED_BFloat16 float
#define LOAD_BFloat16(p, i) AS_FLOAT((uint)((p)[i]) << 16)
#define STORE_BFloat16(p, i, x) ((p)[i] = BFLOAT16_BITS((float)(x)))

#define STORED_Long long
#define COMPUTED_Long long
#define LOAD_Long(p, i) ((p)[i])
#define STORE_Long(p, i, x) ((p)[i] = (long)(x))

#define STORED_Int int
#define COMPUTED_Int int
#define LOAD_Int(p, i) ((p)[i])
#define STORE_Int(p, i, x) ((p)[i] = (int)(x))

#define STORED_Short short
#define COMPUTED_Short int
#define LOAD_Short(p, i) ((p)[i])
#define STORE_Short(p, i, x) ((p)[i] = (short)(long)(x))

#define STORED_Char char
#define COMPUTED_Char int
#define LOAD_Char(p, i) ((p)[i])
#define STORE_Char(p, i, x) ((p)[i] = (char)(long)(x))

#define STORED_Byte uchar
#define COMPUTED_Byte int
#define LOAD_Byte(p, i) ((p)[i])
#define STORE_Byte(p, i, x) ((p)[i] = (uchar)(long)(x))

// Nothing is computed in these; an out= may have them.
#define STORED_UInt16 ushort
#define COMPUTED_UInt16 int
#define LOAD_UInt16(p, i) ((p)[i])
#define STORE_UInt16(p, i, x) ((p)[i] = (ushort)(long)(x))

#define STORED_UInt32 uint
#define COMPUTED_UInt32 long
#define LOAD_UInt32(p, i) ((p)[i])
#define STORE_UInt32(p, i, x) ((p)[i] = (uint)(long)(x))

#define STORED_UInt64 ulong
#define COMPUTED_UInt64 ulong
#define LOAD_UInt64(p, i) ((p)[i])
#define STORE_UInt64(p, i, x) ((p)[i] = (ulong)(long)(x))

// Nor in these, of what was computed in the dtype of their real part.
#define STORED_ComplexHalf ushort2
#define COMPUTED_ComplexHalf float
#define STORE_ComplexHalf(p, i, real) ((p)[i].x = half_of_float((float)(real)), (p)[i].y = 0)

#define STORED_ComplexFloat float2
#define COMPUTED_ComplexFloat float
#define STORE_ComplexFloat(p, i, real) ((p)[i].x = (float)(real), (p)[i].y = 0)

#define STORED_ComplexDouble double2
#define COMPUTED_ComplexDouble double
#define STORE_ComplexDouble(p, i, real) ((p)[i].x = (double)(real), (p)[i].y = 0)

#define STORED_Bool uchar
#define COMPUTED_Bool int
#define LOAD_Bool(p, i) ((p)[i] != 0)
#define STORE_Bool(p, i, x) ((p)[i] = (x) != 0)

// To the nearest, to the even one of two.
#ifndef BFLOAT16_BITS
#define BFLOAT16_BITS(x) bfloat16_bits(x)
DEVICE inline ushort bfloat16_bits(float x) {
  if (x != x) {
    return 0x7FC0;
  }
  const uint bits = AS_UINT(x);
  return (ushort)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
#endif

// A value rounded to a dtype that is not computed in itself.
#define ROUNDED(D, x) JOIN(ROUNDED_, D)(x)
#define ROUNDED_Float(x) (x)
#define ROUNDED_Double(x) (x)
#define ROUNDED_Half(x) float_of_half(half_of_float(x))
#define ROUNDED_BFloat16(x) AS_FLOAT((uint)BFLOAT16_BITS(x) << 16)
#define ROUNDED_Long(x) (x)
#define ROUNDED_Int(x) (x)
#define ROUNDED_Short(x) ((short)(x))
#define ROUNDED_Char(x) ((char)(x))
#define ROUNDED_Byte(x) ((uchar)(x))
#define ROUNDED_Bool(x) ((x) != 0)

)"
