// 16 lanes in plain C++: what the products need of a machine that we know nothing of. fma is a product and a sum, two
// roundings: a fused one without hardware is a library call.
#pragma once

#include <cstdint>
#include <cstring>

#include "octavo/packed.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct Floats { float at[16]; };
struct Ints { int32_t at[16]; };
struct Line { uint8_t at[64]; };

constexpr int kMaxRows = 4;      // of a block of registers: one panel, unpacked on the way
constexpr int kWideRows = 4;     // of a block of registers: panels unpacked before
constexpr int kUnpackRows = 8;   // from here on it pays to unpack once for all rows
constexpr int kByteZero = 128;   // that dot_quads leaves in 8-bit quants

template <class F>
inline Floats floats_of(F f) {
  Floats result;
  for (int i = 0; i < 16; ++i) result.at[i] = f(i);
  return result;
}

inline float bits_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline float half_as_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude < 0x400) {  // subnormal or zero: units of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t rebias = 112u << 23;
  return bits_as_float(sign | ((magnitude << 13) + (magnitude < 0x7c00 ? rebias : 2 * rebias)));  // 2: infinity and NaN
}

inline Floats zero_floats() { return {}; }
inline Floats load_floats(const float* p) { return floats_of([=](int i) { return p[i]; }); }
inline void store_floats(float* p, Floats x) { std::memcpy(p, x.at, 64); }
inline Floats broadcast(float x) { return floats_of([=](int) { return x; }); }
inline Floats add(Floats x, Floats y) { return floats_of([&](int i) { return x.at[i] + y.at[i]; }); }
inline Floats multiply(Floats x, Floats y) { return floats_of([&](int i) { return x.at[i] * y.at[i]; }); }
inline Floats fma(Floats x, Floats y, Floats z) { return floats_of([&](int i) { return x.at[i] * y.at[i] + z.at[i]; }); }
inline Floats to_floats(Ints x) { return floats_of([&](int i) { return static_cast<float>(x.at[i]); }); }

inline Floats load_halves(const uint8_t* p) {
  uint16_t half[16];
  std::memcpy(half, p, 32);
  return floats_of([&](int i) { return half_as_float(half[i]); });
}
inline Floats load_unsigned(const uint8_t* p) { return floats_of([=](int i) { return static_cast<float>(p[i]); }); }
inline Floats load_signed(const uint8_t* p) { return floats_of([=](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); }); }

template <class F>
inline Line line_of(F f) {
  Line result;
  for (int i = 0; i < 64; ++i) result.at[i] = static_cast<uint8_t>(f(i));
  return result;
}

inline Line load_line(const uint8_t* p) { return line_of([=](int i) { return p[i]; }); }
inline void store_line(uint8_t* p, Line x) { std::memcpy(p, x.at, 64); }
inline Line low_nibbles(Line x) { return line_of([&](int i) { return x.at[i] & 15; }); }
inline Line high_nibbles(Line x) { return line_of([&](int i) { return x.at[i] >> 4; }); }

// low | the `Count` bits of `high` from bit `From`, moved to bit 4.
template <int From, int Count>
inline Line with_high_bits(Line low, Line high) {
  return line_of([&](int i) { return low.at[i] | ((high.at[i] >> From) & ((1 << Count) - 1)) << 4; });
}

// sums[0] * First + sums[1] * Last, in all lanes.
template <int First, int Last>
inline Ints weighted_sums(const ActGroup& x) {
  Ints result;
  for (int i = 0; i < 16; ++i) result.at[i] = x.sums[0] * First + x.sums[1] * Last;
  return result;
}

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) {
  for (int r = 0; r < R; ++r) {
    int8_t quants[kGroup];
    std::memcpy(quants, x + r * stride, kGroup);
    for (int p = 0; p < P; ++p) {
      for (int q = First; q < First + Quads; ++q) {
        for (int i = 0; i < 64; ++i) acc[p][r].at[i / 4] += w[p].quads[q].at[i] * quants[q * 4 + i % 4];
      }
    }
  }
}

// acc + the pairs of bf16 at `line` times the pair at x.
inline Floats dot_bf16(Floats acc, const uint8_t* line, const uint8_t* x) {
  uint32_t w[16], pair;
  std::memcpy(w, line, 64);
  std::memcpy(&pair, x, 4);
  const float even = bits_as_float(pair << 16), odd = bits_as_float(pair & 0xffff0000);
  return floats_of([&](int i) {
    return acc.at[i] + bits_as_float(w[i] << 16) * even + bits_as_float(w[i] & 0xffff0000) * odd;
  });
}

// The largest magnitude of 32 values as bits of a float: infinity or more when one of them is not finite.
inline uint32_t largest_magnitude(const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < kGroup; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// quants = x * inverse rounded to nearest even; sums of both halves.
inline void quantise(const float* x, float inverse, int8_t* quants, int (&sums)[2]) {
  sums[0] = sums[1] = 0;
  for (int i = 0; i < kGroup; ++i) {
    const int quant = static_cast<int>((x[i] * inverse + 0x1.8p23f) - 0x1.8p23f);
    quants[i] = static_cast<int8_t>(quant);
    sums[i / 16] += quant;
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
