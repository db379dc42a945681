R"(
// Reduces elements of IN to results. STATE are the fields of what is known of some elements, START sets it for none,
// STEP(s, x, at) takes in the element x at position `at`, MERGE(s, o) takes in what `o` knows, RESULT(s) and, where OUT1
// is defined, RESULT1(s) are the results. KEPT and GONE are numbers of dimensions. GROUPED: so many items of a group share a
// result, else each item has its own. COLUMNS: a group has so many results, whose elements lie side by side. WIDTH: of elements
// in order, one load brings so many, VECTOR_BYTES. PARTS: the elements of each result are shared by several groups, whose states
// are stored; a second launch (FINISH) merges these.
typedef COMPUTED(COMPUTE) C;
typedef VECTOR(IN, WIDTH, VECTOR_BYTES) Vector;
typedef struct { STATE } State;
typedef struct {
  long outputs, length, parts;
  long kept_size[KEPT], kept_in[KEPT], kept_out[KEPT], kept_out1[KEPT];
  long gone_size[GONE], gone_in[GONE];
} Layout;

DEVICE inline void place(const Layout* layout, long output, long* in, long* out, long* out1) {
  *in = *out = *out1 = 0;
  for (int d = KEPT - 1; d >= 0; --d) {
    const long at = output % layout->kept_size[d];
    output /= layout->kept_size[d];
    *in += at * layout->kept_in[d];
    *out += at * layout->kept_out[d];
    *out1 += at * layout->kept_out1[d];
  }
}

DEVICE inline long element(const Layout* layout, long position) {
  if (GONE == 1) return position * layout->gone_in[0];
  long in = 0;
  for (int d = GONE - 1; d >= 0; --d) {
    in += position % layout->gone_size[d] * layout->gone_in[d];
    position /= layout->gone_size[d];
  }
  return in;
}

KERNEL void run(const Layout layout, BUFFER(const STORED(IN), in), BUFFER(State, states), BUFFER(STORED(OUT), out),
#ifdef OUT1
                BUFFER(STORED(OUT1), out1),
#endif
                const C x, const C y) {
  const long length = layout.length;
  GLOBAL const STORED(IN)* elements = POINTER(const STORED(IN), in);
  long first = 0, last = length, step = 1;
#if COLUMNS > 1
  const int lane = ITEM(1), column = ITEM(0);
#else
  const int lane = ITEM(0), column = 0;
#endif
#ifdef GROUPED
  const long output = GROUP(0) * COLUMNS + column;
#else
  const long output = GLOBAL_ITEM(0);
  if (output >= layout.outputs) return;
#endif
  long from, to, to1;
  place(&layout, min(output, layout.outputs - 1), &from, &to, &to1);
  State s;
  START(s);
#ifdef FINISH
  for (long part = 0; part < layout.parts; ++part) {
    const State o = POINTER(State, states)[output * layout.parts + part];
    MERGE(s, o);
  }
#else
#ifdef GROUPED
  const long share = (length + layout.parts * WIDTH - 1) / (layout.parts * WIDTH) * WIDTH;
  first = GROUP(1) * share + lane * WIDTH;
  last = min(length, (GROUP(1) + 1) * share);
  step = GROUPED * WIDTH;
#endif
  // In parts, so that no sum is a long chain of roundings.
  for (long at = first; at < last;) {
    State part;
    START(part);
    for (const long end = min(last, at + 64 * step); at < end; at += step) {
      Vector vector;
      LOAD_VECTOR(elements + from + element(&layout, at), vector, VECTOR_BYTES);
      UNROLLED for (int j = 0; j < WIDTH; ++j) {
        const C value = (C)LOAD(IN, vector.at, j);
        STEP(part, value, at + j);
      }
    }
    MERGE(s, part);
  }
#ifdef GROUPED
  LOCAL State shared[GROUPED * COLUMNS];
  const int mine = lane * COLUMNS + column;
  shared[mine] = s;
  for (int half_of = GROUPED / 2; half_of > 0; half_of /= 2) {
    BARRIER();
    if (lane < half_of) {
      State merged = shared[mine];
      const State o = shared[mine + half_of * COLUMNS];
      MERGE(merged, o);
      shared[mine] = merged;
    }
  }
  if (lane != 0 || output >= layout.outputs) return;
  s = shared[column];
#endif
#ifdef PARTS
  POINTER(State, states)[output * layout.parts + GROUP(1)] = s;
  return;
#endif
#endif
#ifndef PARTS
  STORE(OUT, POINTER(STORED(OUT), out), to, (RESULT(s)));
#ifdef OUT1
  STORE(OUT1, POINTER(STORED(OUT1), out1), to1, (RESULT1(s)));
#endif
#endif
}
)"
