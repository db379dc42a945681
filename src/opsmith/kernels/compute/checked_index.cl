R"(
typedef COMPUTED(DTYPE) C;

// The index as one from 0; -1 where it is out of range, which is left as a fault.
DEVICE inline long checked(long index, long size, int wraps, GLOBAL int* fault) {
  if (wraps && index < 0) index += size;
  if (index >= 0 && index < size) return index;
  fault[0] = FAULT_INDEX;
  return -1;
}
)"
