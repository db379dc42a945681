R"(
// Softmax, its logarithm (LOG) and their gradients (GRADIENT) along lines of `length` elements that lie `inner` apart, a
// group for each line.
#define LENGTH length
#define AT(k) (start + (k) * inner)
typedef VECTOR(OUT, WIDTH, OUT_BYTES) Result;

KERNEL void run(BUFFER(const STORED(IN), in), BUFFER(const STORED(IN), result), BUFFER(STORED(OUT), out),
                const long length, const long inner) {
  LOCAL C shared[ITEMS_OF_GROUP];
  const long line = GROUP(0), start = line / inner * length * inner + line % inner;
  GLOBAL const STORED(IN)* from = POINTER(const STORED(IN), in);
  GLOBAL STORED(OUT)* to = POINTER(STORED(OUT), out);
  KEEP(from);
#ifdef GRADIENT
  GLOBAL const STORED(IN)* known = POINTER(const STORED(IN), result);
  KEEP(known);
  C sum = 0;
  EACH_PART(p) {
    C part = 0;
    EACH_RUN_OF(p, r, k) {
      const Run grads = RUN(from, r, k), ys = RUN(known, r, k);
      EACH_OF_RUN(j) {
#ifdef LOG
        part += (C)LOAD(IN, grads.at, j);
#else
        part += (C)LOAD(IN, grads.at, j) * (C)LOAD(IN, ys.at, j);
#endif
      }
    }
    sum += part;
  }
  sum = group_sum(shared, sum);
  EACH_RUN(r, k) {
    const Run grads = RUN(from, r, k), ys = RUN(known, r, k);
    Result results;
    EACH_OF_RUN(j) {
      const C grad = LOAD(IN, grads.at, j), y = LOAD(IN, ys.at, j);
#ifdef LOG
      STORE(OUT, results.at, j, grad - exp(y) * sum);
#else
      STORE(OUT, results.at, j, y * (grad - sum));
#endif
    }
    STORE_VECTOR(to + AT(k), results, OUT_BYTES);
  }
#else
  C largest = -INFINITY;
  EACH_RUN(r, k) {
    const Run run = RUN(from, r, k);
    EACH_OF_RUN(j) {
      const C value = LOAD(IN, run.at, j);
      if (value > largest || value != value) largest = value;
    }
  }
  largest = group_max(shared, largest);
  C sum = 0;
  EACH_PART(p) {
    C part = 0;
    EACH_RUN_OF(p, r, k) {
      const Run run = RUN(from, r, k);
      EACH_OF_RUN(j) part += exp((C)LOAD(IN, run.at, j) - largest);
    }
    sum += part;
  }
  sum = group_sum(shared, sum);
#ifdef LOG
  const C shift = log(sum);
#endif
  EACH_RUN(r, k) {
    const Run run = RUN(from, r, k);
    Result results;
    EACH_OF_RUN(j) {
      const C value = (C)LOAD(IN, run.at, j) - largest;
#ifdef LOG
      STORE(OUT, results.at, j, value - shift);
#else
      STORE(OUT, results.at, j, exp(value) / sum);
#endif
    }
    STORE_VECTOR(to + AT(k), results, OUT_BYTES);
  }
#endif
}
)"
