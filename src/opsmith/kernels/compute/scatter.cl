R"(
// Gathers and scatters along one dimension. A line is what has the same place in all others, of which there are RANK. GATHER: an
// item for each index; else one for each line, which takes the indices in their order, so that results do not depend on
// chance. FROM_NUMBER: `number` is scattered; ADDS: it is added.
typedef struct {
  long lines, length, size[RANK], index[RANK], value[RANK], target[RANK];
  long index_step, value_step, target_step, target_size;
} Layout;

KERNEL void run(const Layout l, BUFFER(const long, index), BUFFER(STORED(DTYPE), value), BUFFER(STORED(DTYPE), target),
                BUFFER(int, fault_buffer), const C number) {
  const long item = GLOBAL_ITEM(0);
  GLOBAL const long* chosen = POINTER(const long, index);
  GLOBAL STORED(DTYPE)* values = POINTER(STORED(DTYPE), value);
  GLOBAL STORED(DTYPE)* targets = POINTER(STORED(DTYPE), target);
  GLOBAL int* const fault = POINTER(int, fault_buffer);
#ifdef GATHER
  if (item >= l.lines * l.length) return;
  long rest = item / l.length;
#else
  if (item >= l.lines) return;
  long rest = item;
#endif
  for (int d = RANK - 1; d >= 0; --d) {
    const long at = rest % l.size[d];
    rest /= l.size[d];
    chosen += at * l.index[d];
    values += at * l.value[d];
    targets += at * l.target[d];
  }
#ifdef GATHER
  const long k = item % l.length;
  const long at = checked(chosen[k * l.index_step], l.target_size, fault);
  const C found = at < 0 ? (C)0 : (C)LOAD(DTYPE, targets, at * l.target_step);
  STORE(DTYPE, values, k * l.value_step, found);
#else
  for (long k = 0; k < l.length; ++k) {
    const long at = checked(chosen[k * l.index_step], l.target_size, fault);
    if (at < 0) continue;
#ifdef FROM_NUMBER
    const C given = number;
#else
    const C given = LOAD(DTYPE, values, k * l.value_step);
#endif
#ifdef ADDS
    STORE(DTYPE, targets, at * l.target_step, given + (C)LOAD(DTYPE, targets, at * l.target_step));
#else
    STORE(DTYPE, targets, at * l.target_step, given);
#endif
  }
#endif
}
)"
