// 16 lanes in plain C++: what the products need of a machine that we know nothing of. fma is a product and a sum, two
// roundings: a fused one without hardware is a library call.
#pragma once

#include <cstdint>
#include <cstring>

#include "octavo/packed.h"

namespace octavo::OCTAVO_ISA {
namespace {

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Shorts = int16_t __attribute__((vector_size(32)));
struct Line { Shorts at[4]; };  // the k's of a quad apart, 16 channels each

constexpr int max_rows(Format) { return 4; }  // of a block of registers: one panel, unpacked on the way
constexpr int kWideRows = 4;    // of a block of registers: panels unpacked before
constexpr int kWidePanels = 2;
constexpr int64_t unpack_rows(int) { return 8; }  // from here on it pays to unpack once for all rows
constexpr int kByteZero = 0;    // that dot_quads leaves in 8-bit quants

template <class F>
inline Floats floats_of(F f) {
  Floats result;
  for (int i = 0; i < 16; ++i) result[i] = f(i);
  return result;
}

inline float bits_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline Floats zero_floats() { return Floats{}; }
inline Floats load_floats(const float* p) {
  Floats x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store_floats(float* p, Floats x) { std::memcpy(p, &x, sizeof x); }
inline Floats broadcast(float x) { return x - Floats{}; }
inline Floats add(Floats x, Floats y) { return x + y; }
inline Floats multiply(Floats x, Floats y) { return x * y; }
inline Floats fma(Floats x, Floats y, Floats z) { return x * y + z; }
inline Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }

// The exponent is moved by a product with a power of two, which also makes subnormals right; infinity and NaN have an exponent
// that the product does not reach.
inline Floats load_halves(const uint8_t* p) {
  Shorts shorts;
  std::memcpy(&shorts, p, sizeof shorts);
  const Ints halves = __builtin_convertvector(shorts, Ints), magnitude = (halves & 0x7fff) << 13;
  const Ints finite = reinterpret_cast<Ints>(reinterpret_cast<Floats>(magnitude) * 0x1p112f), special = magnitude | 0x7f800000;
  const Ints is_special = magnitude >= (0x7c00 << 13);
  return reinterpret_cast<Floats>((is_special & special) | (~is_special & finite) | (halves & 0x8000) << 16);
}
inline Floats load_unsigned(const uint8_t* p) { return floats_of([=](int i) { return static_cast<float>(p[i]); }); }
inline Floats load_signed(const uint8_t* p) { return floats_of([=](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); }); }

inline Line load_line(const uint8_t* p) {
  Line line;
  for (int i = 0; i < 64; ++i) line.at[i % 4][i / 4] = p[i];
  return line;
}
inline void store_line(uint8_t* p, Line x) {
  for (int i = 0; i < 64; ++i) p[i] = static_cast<uint8_t>(x.at[i % 4][i / 4]);
}
inline Line low_nibbles(Line x) { return {{x.at[0] & 15, x.at[1] & 15, x.at[2] & 15, x.at[3] & 15}}; }
inline Line high_nibbles(Line x) { return {{x.at[0] >> 4, x.at[1] >> 4, x.at[2] >> 4, x.at[3] >> 4}}; }

// low | the `Count` bits of `high` from bit `From`, moved to bit 4.
template <int From, int Count>
inline Line with_high_bits(Line low, Line high) {
  Line result;
  for (int j = 0; j < 4; ++j) result.at[j] = low.at[j] | (high.at[j] >> From & static_cast<int16_t>((1 << Count) - 1)) << 4;
  return result;
}

// sums[0] * First + sums[1] * Last, in all lanes.
template <int First, int Last>
inline Ints weighted_sums(const ActGroup& x) {
  return (x.sums[0] * First + x.sums[1] * Last) - Ints{};
}

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group. A run of products is
// summed in 16 bits as long as 127 * largest quant * run stays below 2^15; 8-bit quants have their zero taken off first.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) {
  constexpr int kRun = Bits == 4 ? 16 : Bits == 5 ? 8 : Bits == 6 ? 4 : 2;
  for (int p = 0; p < P; ++p) {
    for (int r = 0; r < R; ++r) {
      int8_t quants[kGroup];
      std::memcpy(quants, x + r * stride, kGroup);
      for (int begin = First * 4; begin < (First + Quads) * 4; begin += kRun) {
        Shorts sums{};
        for (int i = begin; i < begin + kRun; ++i) {
          const Shorts line = w[p].quads[i / 4].at[i % 4];
          sums += (Bits == 8 ? line - 128 : line) * quants[i];
        }
        acc[p][r] += __builtin_convertvector(sums, Ints);
      }
    }
  }
}

// acc + the pairs of bf16 at `line` times the pair at x.
inline Floats dot_bf16(Floats acc, const uint8_t* line, const uint8_t* x) {
  Words w;
  uint32_t pair;
  std::memcpy(&w, line, sizeof w);
  std::memcpy(&pair, x, 4);
  const Floats even = reinterpret_cast<Floats>(w << 16), odd = reinterpret_cast<Floats>(w & 0xffff0000u);
  return acc + even * bits_as_float(pair << 16) + odd * bits_as_float(pair & 0xffff0000u);
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
