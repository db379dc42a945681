R"(
// The sum and the maximum over the items of a group: ITEMS_OF_GROUP of them, a power of two. They compute as
// for elements of COMPUTE.
typedef COMPUTED(COMPUTE) C;

DEVICE inline C group_sum(SHARED C* shared, C value) {
  BARRIER();
  shared[ITEM(0)] = value;
  for (int half_of = ITEMS_OF_GROUP / 2; half_of > 0; half_of /= 2) {
    BARRIER();
    if ((int)ITEM(0) < half_of) shared[ITEM(0)] += shared[ITEM(0) + half_of];
  }
  BARRIER();
  return shared[0];
}

// NaN wins.
DEVICE inline C group_max(SHARED C* shared, C value) {
  BARRIER();
  shared[ITEM(0)] = value;
  for (int half_of = ITEMS_OF_GROUP / 2; half_of > 0; half_of /= 2) {
    BARRIER();
    if ((int)ITEM(0) < half_of) {
      const C other = shared[ITEM(0) + half_of];
      if (other > shared[ITEM(0)] || other != other) shared[ITEM(0)] = other;
    }
  }
  BARRIER();
  return shared[0];
}

// A line of LENGTH elements in runs of WIDTH, each of which a load or store moves; element k of the line lies at AT(k). Where
// RUNS is defined, an item keeps its runs of `in`, of which it has at most RUNS, in registers, and reads memory once. Sums are
// taken part by part, so that neither they nor those of the parts are long chains of roundings.
typedef VECTOR(IN, WIDTH, RUN_BYTES) Run;

DEVICE inline Run run_at(GLOBAL const STORED(IN)* p) {
  Run run;
  LOAD_VECTOR(p, run, RUN_BYTES);
  return run;
}

#define EACH_OF_RUN(j) UNROLLED for (int j = 0; j < WIDTH; ++j)
#ifdef RUNS
#define EACH_RUN(r, k) \
  UNROLLED for (int r = 0, k = ITEM(0) * WIDTH; r < RUNS; ++r, k += ITEMS_OF_GROUP * WIDTH) if (k < LENGTH)
#define KEEP(in) Run in##_kept[RUNS]; EACH_RUN(r_, k_) in##_kept[r_] = run_at(in + AT(k_))
#define RUN(in, r, k) in##_kept[r]
#define EACH_PART(p) for (int p = 0; p < 1; ++p)
#define EACH_RUN_OF(p, r, k) EACH_RUN(r, k)
#else
#define EACH_RUN(r, k) for (long r = 0, k = ITEM(0) * WIDTH; k < LENGTH; ++r, k += ITEMS_OF_GROUP * WIDTH)
#define KEEP(in)
#define RUN(in, r, k) run_at(in + AT(k))
#define EACH_PART(p) for (long p = 0; p < LENGTH; p += PART)
#define PART (32 * ITEMS_OF_GROUP * WIDTH)
#define EACH_RUN_OF(p, r, k) \
  for (long k = p + ITEM(0) * WIDTH, end_ = min(p + PART, (long)LENGTH); k < end_; k += ITEMS_OF_GROUP * WIDTH)
#endif
)"
