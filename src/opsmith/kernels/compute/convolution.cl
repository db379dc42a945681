R"(
// Between an image and its columns, the matrix of all its windows. COLUMNS: columns[n][channel, i, j][y, x] from the
// image; else each element of the image is the sum of the columns' elements that were made of it. An item writes a run of
// RUN elements of a row, which saves a CPU most of the divisions; where RUN is 1 neighbours write to neighbouring addresses. COLUMN is the columns'
// dtype. BIASED: each channel of the image has a number added.
typedef COMPUTED(DTYPE) C;
typedef struct {
  long samples, channels, height, width, kernel_height, kernel_width, out_height, out_width;
  long step_height, step_width, pad_height, pad_width, gap_height, gap_width;
} Shape;

KERNEL void run(BUFFER(STORED(DTYPE), image), BUFFER(STORED(COLUMN), columns),
#ifdef BIASED
                BUFFER(const STORED(DTYPE), bias),
#endif
                const Shape s) {
  long rest = GLOBAL_ITEM(0);
  GLOBAL STORED(DTYPE)* pixels = POINTER(STORED(DTYPE), image);
  GLOBAL STORED(COLUMN)* windows = POINTER(STORED(COLUMN), columns);
#ifdef COLUMNS
  const long runs = (s.out_width + RUN - 1) / RUN;
  const long first = rest % runs * RUN;
  rest /= runs;
  if (rest >= s.samples * s.channels * s.kernel_height * s.kernel_width * s.out_height) return;
  GLOBAL STORED(COLUMN)* const to = windows + rest * s.out_width;
  const long y = rest % s.out_height;
  rest /= s.out_height;
  const long j = rest % s.kernel_width;
  rest /= s.kernel_width;
  const long i = rest % s.kernel_height;
  rest /= s.kernel_height;
  const long row = y * s.step_height - s.pad_height + i * s.gap_height;
  GLOBAL const STORED(DTYPE)* const from = pixels + (rest * s.height + row) * s.width;
  const int row_inside = row >= 0 && row < s.height;
  for (long x = first; x < min(first + RUN, s.out_width); ++x) {
    const long column = x * s.step_width - s.pad_width + j * s.gap_width;
    const C value = row_inside && column >= 0 && column < s.width ? (C)LOAD(DTYPE, from, column) : 0;
    STORE(COLUMN, to, x, value);
  }
#else
  const long runs = (s.width + RUN - 1) / RUN;
  const long first = rest % runs * RUN;
  rest /= runs;
  if (rest >= s.samples * s.channels * s.height) return;
  GLOBAL STORED(DTYPE)* const to = pixels + rest * s.width;
  const long row = rest % s.height;
  rest /= s.height;
#ifdef BIASED
  const C start = LOAD(DTYPE, POINTER(const STORED(DTYPE), bias), rest % s.channels);
#else
  const C start = 0;
#endif
  for (long column = first; column < min(first + RUN, s.width); ++column) {
    C sum = start;
    for (long i = 0; i < s.kernel_height; ++i) {
      const long above = row + s.pad_height - i * s.gap_height;
      const long y = s.step_height == 1 ? above : above / s.step_height;
      if (above < 0 || y * s.step_height != above || y >= s.out_height) continue;
      for (long j = 0; j < s.kernel_width; ++j) {
        const long before = column + s.pad_width - j * s.gap_width;
        const long x = s.step_width == 1 ? before : before / s.step_width;
        if (before < 0 || x * s.step_width != before || x >= s.out_width) continue;
        sum += (C)LOAD(COLUMN, windows,
                       (((rest * s.kernel_height + i) * s.kernel_width + j) * s.out_height + y) * s.out_width + x);
      }
    }
    STORE(DTYPE, to, column, sum);
  }
#endif
}
)"
