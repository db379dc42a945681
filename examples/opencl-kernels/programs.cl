R"(
// Between the quotes of a string of C++, in the dialect of opsmith_compute.h. A row is contiguous.
#define GROUP_ITEMS 64

// A work-group for each row: each item takes every 64th element, then half of the items add up two of their sums.
KERNEL void softmax(BUFFER(const float, from), BUFFER(float, to), const long columns) {
  LOCAL float shared[GROUP_ITEMS];
  GLOBAL const float* x = POINTER(const float, from) + GROUP(0) * columns;
  GLOBAL float* out = POINTER(float, to) + GROUP(0) * columns;
  const int item = ITEM(0);

  float largest = -INFINITY;
  for (long i = item; i < columns; i += GROUP_ITEMS) largest = fmax(largest, x[i]);
  shared[item] = largest;
  for (int left = GROUP_ITEMS / 2; left > 0; left /= 2) {
    BARRIER();
    if (item < left) shared[item] = fmax(shared[item], shared[item + left]);
  }
  BARRIER();
  largest = shared[0];
  BARRIER();

  float sum = 0;
  for (long i = item; i < columns; i += GROUP_ITEMS) sum += exp(x[i] - largest);
  shared[item] = sum;
  for (int left = GROUP_ITEMS / 2; left > 0; left /= 2) {
    BARRIER();
    if (item < left) shared[item] += shared[item + left];
  }
  BARRIER();
  for (long i = item; i < columns; i += GROUP_ITEMS) out[i] = exp(x[i] - largest) / shared[0];
}

// A work-item for each element.
KERNEL void leaky_relu(BUFFER(const float, from), BUFFER(float, to), const long count, const float slope) {
  const long i = GLOBAL_ITEM(0);
  if (i >= count) return;
  const float x = POINTER(const float, from)[i];
  POINTER(float, to)[i] = x > 0 ? x : x * slope;
}
)"
