// 16 lanes in AVX-512 with VNNI and BF16: one register a line.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "octavo/packed.h"

namespace octavo::OCTAVO_ISA {
namespace {

using Floats = __m512;
using Ints = __m512i;
using Line = __m512i;

constexpr int max_rows(Format) { return 8; }  // of a block of registers: one panel, unpacked on the way
constexpr int kWideRows = 6;     // of a block of registers: two panels, unpacked before
constexpr int kWidePanels = 2;
constexpr int64_t unpack_rows(int) { return 12; }  // from here on it pays to unpack once for all rows
constexpr int kByteZero = 128;   // that dot_quads leaves in 8-bit quants

inline Floats zero_floats() { return _mm512_setzero_ps(); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline void store_floats(float* p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats broadcast(float x) { return _mm512_set1_ps(x); }
inline Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
inline Floats multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
inline Floats fma(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }

inline Floats load_halves(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline Floats load_unsigned(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_signed(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

inline Line load_line(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline void store_line(uint8_t* p, Line x) { _mm512_storeu_si512(p, x); }
inline Line low_nibbles(Line x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Line high_nibbles(Line x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }

// low | the `Count` bits of `high` from bit `From`, moved to bit 4.
template <int From, int Count>
inline Line with_high_bits(Line low, Line high) {
  const Line moved = From < 4 ? _mm512_slli_epi16(high, From < 4 ? 4 - From : 0) : _mm512_srli_epi16(high, From < 4 ? 0 : From - 4);
  constexpr int kOrOfAnd = 0xf8;  // low | (moved & mask)
  return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(((1 << Count) - 1) << 4), kOrOfAnd);
}

inline __m512i broadcast_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

// sums[0] * First + sums[1] * Last, in all lanes.
template <int First, int Last>
inline Ints weighted_sums(const ActGroup& x) {
  if constexpr (First == 0 && Last == 0) return _mm512_setzero_si512();
  constexpr uint32_t kWeights = (static_cast<uint32_t>(First) & 0xffff) | (static_cast<uint32_t>(Last) << 16);
  return _mm512_dpwssd_epi32(_mm512_setzero_si512(), broadcast_word(x.sums), _mm512_set1_epi32(static_cast<int>(kWeights)));
}

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) {
  for (int q = First; q < First + Quads; ++q) {
    for (int r = 0; r < R; ++r) {
      const __m512i quad = broadcast_word(x + r * stride + q * 4);
      for (int p = 0; p < P; ++p) acc[p][r] = _mm512_dpbusd_epi32(acc[p][r], w[p].quads[q], quad);
    }
  }
}

// acc + the pairs of bf16 at `line` times the pair at x.
inline Floats dot_bf16(Floats acc, const uint8_t* line, const uint8_t* x) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(load_line(line)), reinterpret_cast<__m512bh>(broadcast_word(x)));
}

// A line of a BF16 operand: 16 values rounded to nearest even; an infinity becomes NaN, as 0 times it is.
inline void round_to_bf16(const float* x, uint8_t* to) {
  const __m512 values = _mm512_loadu_ps(x);
  const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_fmadd_ps(values, _mm512_setzero_ps(), values));
  std::memcpy(to, &rounded, sizeof rounded);
}

// The largest magnitude of 32 values as bits of a float: infinity or more when one of them is not finite.
inline uint32_t largest_magnitude(const float* x) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x), mask), _mm512_and_si512(_mm512_loadu_si512(x + 16), mask))));
}

// quants = x * inverse rounded to nearest even; sums of both halves.
inline void quantise(const float* x, float inverse, int8_t* quants, int (&sums)[2]) {
  for (int half = 0; half < 2; ++half) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * half), _mm512_set1_ps(inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(quants + 16 * half), _mm512_cvtepi32_epi8(q));
    sums[half] = _mm512_reduce_add_epi32(q);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
