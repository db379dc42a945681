R"(
typedef COMPUTED(DTYPE) C;

// The index; -1 where it is out of range, which is left as a fault.
DEVICE inline long checked(long index, long size, GLOBAL int* fault) {
  if (index >= 0 && index < size) return index;
  fault[0] = FAULT_INDEX;
  return -1;
}
)"
