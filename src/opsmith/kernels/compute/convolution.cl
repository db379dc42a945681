R"(
// Between an image and its columns, the matrix of all its windows. COLUMNS: columns[n][channel, i, j][y, x] from the
// image; else each element of the image is the sum of the columns' elements that were made of it.
typedef COMPUTED(DTYPE) C;
typedef struct {
  long samples, channels, height, width, kernel_height, kernel_width, out_height, out_width;
  long step_height, step_width, pad_height, pad_width, gap_height, gap_width;
} Shape;

KERNEL void run(BUFFER(STORED(DTYPE), image), BUFFER(STORED(DTYPE), columns), const Shape s) {
  long rest = GLOBAL_ITEM(0);
  GLOBAL STORED(DTYPE)* pixels = POINTER(STORED(DTYPE), image);
  GLOBAL STORED(DTYPE)* windows = POINTER(STORED(DTYPE), columns);
#ifdef COLUMNS
  if (rest >= s.samples * s.channels * s.kernel_height * s.kernel_width * s.out_height * s.out_width) return;
  const long at = rest;
  const long x = rest % s.out_width;
  rest /= s.out_width;
  const long y = rest % s.out_height;
  rest /= s.out_height;
  const long j = rest % s.kernel_width;
  rest /= s.kernel_width;
  const long i = rest % s.kernel_height;
  rest /= s.kernel_height;
  const long row = y * s.step_height - s.pad_height + i * s.gap_height;
  const long column = x * s.step_width - s.pad_width + j * s.gap_width;
  const int inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
  const C value = inside ? (C)LOAD(DTYPE, pixels, (rest * s.height + row) * s.width + column) : 0;
  STORE(DTYPE, windows, at, value);
#else
  if (rest >= s.samples * s.channels * s.height * s.width) return;
  const long at = rest;
  const long column = rest % s.width;
  rest /= s.width;
  const long row = rest % s.height;
  rest /= s.height;
  C sum = 0;
  for (long i = 0; i < s.kernel_height; ++i) {
    const long above = row + s.pad_height - i * s.gap_height, y = above / s.step_height;
    if (above < 0 || above % s.step_height != 0 || y >= s.out_height) continue;
    for (long j = 0; j < s.kernel_width; ++j) {
      const long before = column + s.pad_width - j * s.gap_width, x = before / s.step_width;
      if (before < 0 || before % s.step_width != 0 || x >= s.out_width) continue;
      sum += (C)LOAD(DTYPE, windows,
                     (((rest * s.kernel_height + i) * s.kernel_width + j) * s.out_height + y) * s.out_width + x);
    }
  }
  STORE(DTYPE, pixels, at, sum);
#endif
}
)"
