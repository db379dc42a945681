R"(
// Numbers 4·counter to 4·counter + 3 of the stream of the seed `key`: opsmith/philox.h says which they are. Philox
// 4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011).
DEVICE inline uint4 philox(ulong counter, ulong key) {
  uint c0 = (uint)counter, c1 = (uint)(counter >> 32), c2 = 0, c3 = 0;
  uint k0 = (uint)key, k1 = (uint)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint high0 = MULTIPLY_HIGH(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint high1 = MULTIPLY_HIGH(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint4 numbers;
  numbers.x = c0;
  numbers.y = c1;
  numbers.z = c2;
  numbers.w = c3;
  return numbers;
}
)"
