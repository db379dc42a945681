R"(
// Two-dimensional pools over planes of a contiguous tensor, an item for each element of what is written. MAX, MAX_BACKWARD,
// AVERAGE, AVERAGE_BACKWARD, ADAPTIVE or ADAPTIVE_BACKWARD is defined; or MAX_BACKWARD_APART, for windows that do not overlap:
// an item for each of these, whose `out` is 0 before.
typedef COMPUTED(DTYPE) C;
typedef struct {
  long planes, height, width, out_height, out_width;
  long kernel_height, kernel_width, step_height, step_width, pad_height, pad_width, gap_height, gap_width;
  long with_padding, divisor;
} Shape;

// The first window that covers a place, and one past the last; along one dimension.
DEVICE inline long first_window(long at, long window, long step, long pad, long gap) {
  const long reach = (window - 1) * gap + 1;
  return at + pad < reach ? 0 : (at + pad - reach) / step + 1;
}

DEVICE inline long last_window(long at, long step, long pad, long count) { return min((at + pad) / step + 1, count); }

// The first place of a window that is not before the plane; along one dimension.
DEVICE inline long first_inside(long begin, long gap) { return begin < 0 ? begin + (-begin + gap - 1) / gap * gap : begin; }

// The adaptive pool's window of an output place.
DEVICE inline long start_of(long at, long out, long in) { return at * in / out; }
DEVICE inline long end_of(long at, long out, long in) { return ((at + 1) * in + out - 1) / out; }

// By how much an average's sum is divided.
DEVICE inline C divisor_of(const Shape* s, long y, long x) {
  if (s->divisor != 0) return (C)s->divisor;
  const long top = y * s->step_height - s->pad_height, left = x * s->step_width - s->pad_width;
  const long bottom = min(top + s->kernel_height, s->height + s->pad_height);
  const long right = min(left + s->kernel_width, s->width + s->pad_width);
  if (s->with_padding) return (C)((bottom - top) * (right - left));
  return (C)((min(bottom, s->height) - max(top, 0L)) * (min(right, s->width) - max(left, 0L)));
}

KERNEL void run(BUFFER(const STORED(DTYPE), in), BUFFER(long, indices), BUFFER(STORED(DTYPE), out), const Shape s) {
  const long item = GLOBAL_ITEM(0);
  GLOBAL const STORED(DTYPE)* from = POINTER(const STORED(DTYPE), in);
  GLOBAL STORED(DTYPE)* to = POINTER(STORED(DTYPE), out);
#if defined(MAX) || defined(AVERAGE) || defined(ADAPTIVE) || defined(MAX_BACKWARD_APART)
  if (item >= s.planes * s.out_height * s.out_width) return;
  const long x = item % s.out_width, y = item / s.out_width % s.out_height, plane = item / s.out_width / s.out_height;
  const long base = plane * s.height * s.width;
#else
  if (item >= s.planes * s.height * s.width) return;
  const long x = item % s.width, y = item / s.width % s.height, plane = item / s.width / s.height;
  const long base = plane * s.out_height * s.out_width;
  C sum = 0;
#endif
#ifdef MAX
  const long top = first_inside(y * s.step_height - s.pad_height, s.gap_height);
  const long left = first_inside(x * s.step_width - s.pad_width, s.gap_width);
  const long bottom = min(y * s.step_height - s.pad_height + (s.kernel_height - 1) * s.gap_height + 1, s.height);
  const long right = min(x * s.step_width - s.pad_width + (s.kernel_width - 1) * s.gap_width + 1, s.width);
  C largest = -INFINITY;
  // ATen's, where dilation takes the whole window beyond the plane's edges.
  long position = top * s.width + left;
  for (long row = top; row < bottom; row += s.gap_height) {
    for (long column = left; column < right; column += s.gap_width) {
      const C value = LOAD(DTYPE, from, base + row * s.width + column);
      if (value > largest || value != value) {
        largest = value;
        position = row * s.width + column;
      }
    }
  }
  STORE(DTYPE, to, item, largest);
  POINTER(long, indices)[item] = position;
#endif
#ifdef MAX_BACKWARD_APART
  const long at = POINTER(long, indices)[item];
  if (at < 0 || at >= s.height * s.width) return;
  const long i = at / s.width - (y * s.step_height - s.pad_height), j = at % s.width - (x * s.step_width - s.pad_width);
  if (i >= 0 && i <= (s.kernel_height - 1) * s.gap_height && j >= 0 && j <= (s.kernel_width - 1) * s.gap_width)
    STORE(DTYPE, to, base + at, (C)LOAD(DTYPE, from, item));
#endif
#ifdef MAX_BACKWARD
  const long last_y = last_window(y, s.step_height, s.pad_height, s.out_height);
  const long last_x = last_window(x, s.step_width, s.pad_width, s.out_width);
  for (long i = first_window(y, s.kernel_height, s.step_height, s.pad_height, s.gap_height); i < last_y; ++i) {
    for (long j = first_window(x, s.kernel_width, s.step_width, s.pad_width, s.gap_width); j < last_x; ++j) {
      const long at = base + i * s.out_width + j;
      if (POINTER(long, indices)[at] == y * s.width + x) sum += (C)LOAD(DTYPE, from, at);
    }
  }
#endif
#ifdef AVERAGE
  C sum = 0;
  for (long i = 0; i < s.kernel_height; ++i) {
    const long row = y * s.step_height - s.pad_height + i;
    if (row < 0 || row >= s.height) continue;
    for (long j = 0; j < s.kernel_width; ++j) {
      const long column = x * s.step_width - s.pad_width + j;
      if (column >= 0 && column < s.width) sum += (C)LOAD(DTYPE, from, base + row * s.width + column);
    }
  }
  STORE(DTYPE, to, item, sum / divisor_of(&s, y, x));
#endif
#ifdef AVERAGE_BACKWARD
  const long last_y = last_window(y, s.step_height, s.pad_height, s.out_height);
  const long last_x = last_window(x, s.step_width, s.pad_width, s.out_width);
  for (long i = first_window(y, s.kernel_height, s.step_height, s.pad_height, 1); i < last_y; ++i) {
    for (long j = first_window(x, s.kernel_width, s.step_width, s.pad_width, 1); j < last_x; ++j) {
      sum += (C)LOAD(DTYPE, from, base + i * s.out_width + j) / divisor_of(&s, i, j);
    }
  }
#endif
#ifdef ADAPTIVE
  const long top = start_of(y, s.out_height, s.height), bottom = end_of(y, s.out_height, s.height);
  const long left = start_of(x, s.out_width, s.width), right = end_of(x, s.out_width, s.width);
  C sum = 0;
  for (long row = top; row < bottom; ++row) {
    for (long column = left; column < right; ++column) sum += (C)LOAD(DTYPE, from, base + row * s.width + column);
  }
  STORE(DTYPE, to, item, sum / (C)((bottom - top) * (right - left)));
#endif
#ifdef ADAPTIVE_BACKWARD
  for (long i = 0; i < s.out_height; ++i) {
    const long top = start_of(i, s.out_height, s.height), bottom = end_of(i, s.out_height, s.height);
    if (y < top || y >= bottom) continue;
    for (long j = 0; j < s.out_width; ++j) {
      const long left = start_of(j, s.out_width, s.width), right = end_of(j, s.out_width, s.width);
      if (x < left || x >= right) continue;
      sum += (C)LOAD(DTYPE, from, base + i * s.out_width + j) / (C)((bottom - top) * (right - left));
    }
  }
#endif
#if defined(MAX_BACKWARD) || defined(AVERAGE_BACKWARD) || defined(ADAPTIVE_BACKWARD)
  STORE(DTYPE, to, item, sum);
#endif
}
)"
