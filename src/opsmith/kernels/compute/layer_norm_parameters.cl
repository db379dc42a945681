R"(
// The gradients of layer norm's weight and bias: an item for each place in a row adds up `share` rows.
typedef COMPUTED(IN) C;

KERNEL void run(BUFFER(const STORED(IN), grad), BUFFER(const STORED(IN), in), BUFFER(const STORED(SAVED), saved_mean),
                BUFFER(const STORED(SAVED), saved_rstd), BUFFER(STORED(PARAMETERS), grad_weight),
                BUFFER(STORED(PARAMETERS), grad_bias), const long rows, const long count, const long share) {
  const long k = GLOBAL_ITEM(0);
  if (k >= count) return;
  C for_weight = 0, for_bias = 0;
  const long part = GROUP(1), last = min(rows, (part + 1) * share);
  for (long row = part * share; row < last; ++row) {
    const C d = LOAD(IN, POINTER(const STORED(IN), grad), row * count + k);
    const C mean = LOAD(SAVED, POINTER(const STORED(SAVED), saved_mean), row);
    const C rstd = LOAD(SAVED, POINTER(const STORED(SAVED), saved_rstd), row);
    for_bias += d;
    for_weight += d * ((C)LOAD(IN, POINTER(const STORED(IN), in), row * count + k) - mean) * rstd;
  }
#ifdef WANTS_WEIGHT
  STORE(PARAMETERS, POINTER(STORED(PARAMETERS), grad_weight), part * count + k, for_weight);
#endif
#ifdef WANTS_BIAS
  STORE(PARAMETERS, POINTER(STORED(PARAMETERS), grad_bias), part * count + k, for_bias);
#endif
}
)"
