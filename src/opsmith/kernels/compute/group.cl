R"(
// What the items of a group know together; ITEMS_OF_GROUP of them, a power of two. They compute as for elements of COMPUTE.
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
)"
