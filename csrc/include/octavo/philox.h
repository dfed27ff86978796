// Random numbers by counter: a pure function of seed and position, so a request can be resumed anywhere. Philox4x32-10
// (Salmon, Moraes, Dror, Shaw 2011, section 3.3); octavo.ops.rng is its definition in NumPy.
#pragma once

#include <cstdint>

namespace octavo {

// Returns a number in [0, 1) with 53 random bits. Key: seed's low and high word; counter: position's, stream, 0.
inline double uniform(uint64_t seed, uint64_t position, uint32_t stream = 0) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t c0 = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], c2 = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1];
    c[1] = static_cast<uint32_t>(b);
    c[3] = static_cast<uint32_t>(a);
    c[0] = c0;
    c[2] = c2;
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return static_cast<double>((uint64_t{c[0]} << 32 | c[1]) >> 11) * 0x1p-53;
}

}  // namespace octavo
