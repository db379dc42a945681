R"(
// The negative log likelihood of each row's target class. WEIGHTED: classes have weights. BACKWARD: the gradient.
typedef COMPUTED(DTYPE) C;

DEVICE inline C weight_of(GLOBAL const STORED(DTYPE)* weight, long target) {
#ifdef WEIGHTED
  return LOAD(DTYPE, weight, target);
#else
  return 1;
#endif
}

#ifdef BACKWARD
KERNEL void run(BUFFER(const STORED(DTYPE), grad), BUFFER(const long, target), BUFFER(const STORED(DTYPE), weight),
                BUFFER(const STORED(DTYPE), total_weight), BUFFER(STORED(DTYPE), out), BUFFER(int, fault),
                const long rows, const long classes, const long ignored, const int reduction) {
  const long row = GLOBAL_ITEM(0);
  if (row >= rows) return;
  const long t = POINTER(const long, target)[row];
  if (t == ignored) return;
  if (t < 0 || t >= classes) {
    POINTER(int, fault)[0] = FAULT_TARGET;
    return;
  }
  C factor = -weight_of(POINTER(const STORED(DTYPE), weight), t);
  if (reduction == 1) factor /= (C)LOAD(DTYPE, POINTER(const STORED(DTYPE), total_weight), 0);
  const C g = LOAD(DTYPE, POINTER(const STORED(DTYPE), grad), reduction == 0 ? row : 0);
  STORE(DTYPE, POINTER(STORED(DTYPE), out), row * classes + t, factor * g);
}
#else
// In `losses` and `weights`: each row's loss, and the weight it counts with.
KERNEL void run(BUFFER(const STORED(DTYPE), in), BUFFER(const long, target), BUFFER(const STORED(DTYPE), weight),
                BUFFER(STORED(DTYPE), losses), BUFFER(STORED(DTYPE), weights), BUFFER(int, fault), const long rows,
                const long classes, const long ignored) {
  const long row = GLOBAL_ITEM(0);
  if (row >= rows) return;
  const long t = POINTER(const long, target)[row];
  const int counts = t != ignored;
  if (counts && (t < 0 || t >= classes)) {
    POINTER(int, fault)[0] = FAULT_TARGET;
    return;
  }
  const C w = counts ? weight_of(POINTER(const STORED(DTYPE), weight), t) : 0;
  const C loss = counts ? -w * (C)LOAD(DTYPE, POINTER(const STORED(DTYPE), in), row * classes + t) : 0;
  STORE(DTYPE, POINTER(STORED(DTYPE), losses), row, loss);
  STORE(DTYPE, POINTER(STORED(DTYPE), weights), row, w);
}
#endif
)"
