R"(
// Layer and batch norm. A group normalises what shares its statistics: for LAYER a row of `count` elements, `parts` == 1; else
// a channel: `parts` runs of `count` elements that lie `step` apart. PARAMETERS is the dtype of weights and of saved statistics.
typedef struct { long parts, count, step, stride; } Shape;  // the group's first element lies at GROUP(0) * stride

#define LENGTH (shape.parts * shape.count)
// Weights belong to the place in a row or to the channel.
#ifdef LAYER
#define AT(k) (GROUP(0) * shape.stride + (k))
#define PLACE(k) (k)
#else
#define AT(k) (GROUP(0) * shape.stride + (k) / shape.count * shape.step + (k) % shape.count)
#define PLACE(k) GROUP(0)
#endif

// WEIGHTED, BIASED, RUNNING (statistics), WANTS_OUT, WANTS_WEIGHT and WANTS_BIAS are defined where these are given or wanted.
#ifdef WEIGHTED
#define WEIGHT(i) ((C)LOAD(PARAMETERS, POINTER(const STORED(PARAMETERS), weight), i))
#else
#define WEIGHT(i) ((C)1)
#endif
#ifdef BIASED
#define BIAS(i) ((C)LOAD(PARAMETERS, POINTER(const STORED(PARAMETERS), bias), i))
#else
#define BIAS(i) ((C)0)
#endif

#ifndef BACKWARD
KERNEL void run(BUFFER(const STORED(IN), in), BUFFER(const STORED(PARAMETERS), weight),
                BUFFER(const STORED(PARAMETERS), bias), BUFFER(STORED(PARAMETERS), running_mean),
                BUFFER(STORED(PARAMETERS), running_var), BUFFER(STORED(IN), out), BUFFER(STORED(SAVED), saved_mean),
                BUFFER(STORED(SAVED), saved_rstd), const Shape shape, const C momentum, const C epsilon) {
  LOCAL C shared[ITEMS_OF_GROUP];
  GLOBAL const STORED(IN)* from = POINTER(const STORED(IN), in);
  const C n = (C)LENGTH;
  KEEP(from);
#ifdef TRAINING
    C sum = 0;
    EACH_PART(p) {
      C part = 0;
      EACH_RUN_OF(p, r, k) {
        const Run run = RUN(from, r, k);
        EACH_OF_RUN(j) part += (C)LOAD(IN, run.at, j);
      }
      sum += part;
    }
    const C mean = group_sum(shared, sum) / n;
    C squares = 0;
    EACH_PART(p) {
      C part = 0;
      EACH_RUN_OF(p, r, k) {
        const Run run = RUN(from, r, k);
        EACH_OF_RUN(j) {
          const C d = (C)LOAD(IN, run.at, j) - mean;
          part += d * d;
        }
      }
      squares += part;
    }
    squares = group_sum(shared, squares);
    const C rstd = 1 / sqrt(squares / n + epsilon);
    if (ITEM(0) == 0) {
      STORE(SAVED, POINTER(STORED(SAVED), saved_mean), GROUP(0), mean);
      STORE(SAVED, POINTER(STORED(SAVED), saved_rstd), GROUP(0), rstd);
#ifdef RUNNING
        GLOBAL STORED(PARAMETERS)* rm = POINTER(STORED(PARAMETERS), running_mean);
        GLOBAL STORED(PARAMETERS)* rv = POINTER(STORED(PARAMETERS), running_var);
        const C old_mean = LOAD(PARAMETERS, rm, GROUP(0)), old_var = LOAD(PARAMETERS, rv, GROUP(0));
        STORE(PARAMETERS, rm, GROUP(0), (1 - momentum) * old_mean + momentum * mean);
        STORE(PARAMETERS, rv, GROUP(0), (1 - momentum) * old_var + momentum * (squares / (n - 1)));
#endif
    }
#else
    const C mean = LOAD(PARAMETERS, POINTER(STORED(PARAMETERS), running_mean), GROUP(0));
    const C rstd = 1 / sqrt((C)LOAD(PARAMETERS, POINTER(STORED(PARAMETERS), running_var), GROUP(0)) + epsilon);
#endif
  EACH_RUN(r, k) {
    const Run run = RUN(from, r, k);
    Run results;
    EACH_OF_RUN(j) {
      const C x = ((C)LOAD(IN, run.at, j) - mean) * rstd;
      STORE(IN, results.at, j, x * WEIGHT(PLACE(k + j)) + BIAS(PLACE(k + j)));
    }
    STORE_VECTOR(POINTER(STORED(IN), out) + AT(k), results, RUN_BYTES);
  }
}
#else
// Gradients of the elements, and of a channel's weight and bias. Statistics are saved ones, or, where not `training`, running
// ones, that do not depend on the elements.
KERNEL void run(BUFFER(const STORED(IN), grad), BUFFER(const STORED(IN), in), BUFFER(const STORED(PARAMETERS), weight),
                BUFFER(const STORED(SAVED), saved_mean), BUFFER(const STORED(SAVED), saved_rstd),
                BUFFER(STORED(IN), out), BUFFER(STORED(PARAMETERS), grad_weight), BUFFER(STORED(PARAMETERS), grad_bias),
                const Shape shape, const C epsilon) {
  LOCAL C shared[ITEMS_OF_GROUP];
  GLOBAL const STORED(IN)* from = POINTER(const STORED(IN), in);
  GLOBAL const STORED(IN)* g = POINTER(const STORED(IN), grad);
  const C n = (C)LENGTH;
  KEEP(from);
  KEEP(g);
  const C mean = LOAD(SAVED, POINTER(const STORED(SAVED), saved_mean), GROUP(0));
#ifdef TRAINING
  const C rstd = LOAD(SAVED, POINTER(const STORED(SAVED), saved_rstd), GROUP(0));
#else
  const C rstd = 1 / sqrt((C)LOAD(SAVED, POINTER(const STORED(SAVED), saved_rstd), GROUP(0)) + epsilon);  // of a variance
#endif
  C sum = 0, product = 0;
  EACH_PART(p) {
    C sum_part = 0, product_part = 0;
    EACH_RUN_OF(p, r, k) {
      const Run run = RUN(from, r, k), grads = RUN(g, r, k);
      EACH_OF_RUN(j) {
#ifdef LAYER
        const C d = (C)LOAD(IN, grads.at, j) * WEIGHT(PLACE(k + j));
#else
        const C d = LOAD(IN, grads.at, j);
#endif
        sum_part += d;
        product_part += d * ((C)LOAD(IN, run.at, j) - mean) * rstd;
      }
    }
    sum += sum_part;
    product += product_part;
  }
  sum = group_sum(shared, sum);
  product = group_sum(shared, product);
#ifndef LAYER
  if (ITEM(0) == 0) {
#ifdef WANTS_WEIGHT
    STORE(PARAMETERS, POINTER(STORED(PARAMETERS), grad_weight), GROUP(0), product);
#endif
#ifdef WANTS_BIAS
    STORE(PARAMETERS, POINTER(STORED(PARAMETERS), grad_bias), GROUP(0), sum);
#endif
  }
#endif
#ifdef WANTS_OUT
  EACH_RUN(r, k) {
    const Run run = RUN(from, r, k), grads = RUN(g, r, k);
    Run results;
    EACH_OF_RUN(j) {
      const C w = WEIGHT(PLACE(k + j));
      const C x = ((C)LOAD(IN, run.at, j) - mean) * rstd;
      const C d = LOAD(IN, grads.at, j);
#ifdef LAYER
      const C slope = (d * w - sum / n - x * product / n) * rstd;
#else
#ifdef TRAINING
      const C slope = (d - sum / n - x * product / n) * rstd * w;
#else
      const C slope = d * rstd * w;
#endif
#endif
      STORE(IN, results.at, j, slope);
    }
    STORE_VECTOR(POINTER(STORED(IN), out) + AT(k), results, RUN_BYTES);
  }
#endif
}
#endif
)"
