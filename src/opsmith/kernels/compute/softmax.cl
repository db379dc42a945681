R"(
// Softmax, its logarithm (LOG) and their gradients (GRADIENT) along lines of `length` elements that lie `inner` apart, a
// group for each line.
KERNEL void run(BUFFER(const STORED(IN), in), BUFFER(const STORED(IN), result), BUFFER(STORED(OUT), out),
                const long length, const long inner) {
  LOCAL C shared[ITEMS_OF_GROUP];
  const long line = GROUP(0), start = line / inner * length * inner + line % inner;
  GLOBAL const STORED(IN)* from = POINTER(const STORED(IN), in);
  GLOBAL STORED(OUT)* to = POINTER(STORED(OUT), out);
#ifdef GRADIENT
  GLOBAL const STORED(IN)* known = POINTER(const STORED(IN), result);
  C sum = 0;
  for (long k = ITEM(0); k < length; k += ITEMS_OF_GROUP) {
    const C grad = LOAD(IN, from, start + k * inner);
#ifdef LOG
    sum += grad;
#else
    sum += grad * (C)LOAD(IN, known, start + k * inner);
#endif
  }
  sum = group_sum(shared, sum);
  for (long k = ITEM(0); k < length; k += ITEMS_OF_GROUP) {
    const C grad = LOAD(IN, from, start + k * inner), y = LOAD(IN, known, start + k * inner);
#ifdef LOG
    STORE(OUT, to, start + k * inner, grad - exp(y) * sum);
#else
    STORE(OUT, to, start + k * inner, y * (grad - sum));
#endif
  }
#else
  C largest = -INFINITY;
  for (long k = ITEM(0); k < length; k += ITEMS_OF_GROUP) {
    const C value = LOAD(IN, from, start + k * inner);
    if (value > largest || value != value) largest = value;
  }
  largest = group_max(shared, largest);
  C sum = 0;
  for (long k = ITEM(0); k < length; k += ITEMS_OF_GROUP) sum += exp((C)LOAD(IN, from, start + k * inner) - largest);
  sum = group_sum(shared, sum);
#ifdef LOG
  const C shift = log(sum);
#endif
  for (long k = ITEM(0); k < length; k += ITEMS_OF_GROUP) {
    const C value = (C)LOAD(IN, from, start + k * inner) - largest;
#ifdef LOG
    STORE(OUT, to, start + k * inner, value - shift);
#else
    STORE(OUT, to, start + k * inner, exp(value) / sum);
#endif
  }
#endif
}
)"
