// 16 lanes in AVX2, FMA and F16C: two registers a line. With AVX-VNNI quads are one instruction; integer sums are exact, so
// both give the same bits.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "octavo/packed.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct Floats { __m256 low, high; };
struct Ints { __m256i low, high; };
using Line = Ints;

// Rows of a block of registers: one panel, unpacked on the way. Floats have two sums each: 3 rows leave room for the operands (99 against 59 GFLOP/s
// in f16 on Zen 3), but bf16, whose operands take more to widen, is faster with 4.
constexpr int max_rows(Format format) { return format == Format::F16 || format == Format::F32 ? 3 : 4; }
constexpr int kWideRows = 4;     // of a block of registers: panels unpacked before
#if defined(__AVXVNNI__)
constexpr int kWidePanels = 2;
constexpr int kByteZero = 128;   // that dot_quads leaves in 8-bit quants
constexpr int64_t unpack_rows(int) { return 8; }  // from here on it pays to unpack once for all rows
#else
constexpr int kWidePanels = 1;
constexpr int kByteZero = 0;
constexpr int64_t unpack_rows(int bits) { return bits == 8 ? INT64_MAX : bits == 4 ? 48 : 16; }
#endif

inline Floats zero_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats load_floats(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store_floats(float* p, Floats x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
inline Floats broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats add(Floats x, Floats y) { return {_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)}; }
inline Floats multiply(Floats x, Floats y) { return {_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)}; }
inline Floats fma(Floats x, Floats y, Floats z) { return {_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)}; }
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

inline __m128i load_16_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m128i load_8_bytes(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }

inline Floats load_halves(const uint8_t* p) { return {_mm256_cvtph_ps(load_16_bytes(p)), _mm256_cvtph_ps(load_16_bytes(p + 16))}; }
inline Floats load_unsigned(const uint8_t* p) {
  return to_floats({_mm256_cvtepu8_epi32(load_8_bytes(p)), _mm256_cvtepu8_epi32(load_8_bytes(p + 8))});
}
inline Floats load_signed(const uint8_t* p) {
  return to_floats({_mm256_cvtepi8_epi32(load_8_bytes(p)), _mm256_cvtepi8_epi32(load_8_bytes(p + 8))});
}

inline __m256i load_32_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline Line load_line(const uint8_t* p) { return {load_32_bytes(p), load_32_bytes(p + 32)}; }
inline void store_line(uint8_t* p, Line x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.high);
}
inline Line low_nibbles(Line x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline Line high_nibbles(Line x) { return low_nibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)}); }

template <int From, int Count>
inline __m256i high_bits(__m256i x) {
  const __m256i moved = From < 4 ? _mm256_slli_epi16(x, From < 4 ? 4 - From : 0) : _mm256_srli_epi16(x, From < 4 ? 0 : From - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(((1 << Count) - 1) << 4));
}

// low | the `Count` bits of `high` from bit `From`, moved to bit 4.
template <int From, int Count>
inline Line with_high_bits(Line low, Line high) {
  return {_mm256_or_si256(low.low, high_bits<From, Count>(high.low)), _mm256_or_si256(low.high, high_bits<From, Count>(high.high))};
}

inline __m256i broadcast_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

// sums[0] * First + sums[1] * Last, in all lanes.
template <int First, int Last>
inline Ints weighted_sums(const ActGroup& x) {
  if constexpr (First == 0 && Last == 0) return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  constexpr uint32_t kWeights = (static_cast<uint32_t>(First) & 0xffff) | (static_cast<uint32_t>(Last) << 16);
  const __m256i sum = _mm256_madd_epi16(broadcast_word(x.sums), _mm256_set1_epi32(static_cast<int>(kWeights)));
  return {sum, sum};
}

#if defined(__AVXVNNI__)

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) {
  for (int p = 0; p < P; ++p) {
    for (int q = First; q < First + Quads; ++q) {
      for (int r = 0; r < R; ++r) {
        const __m256i quad = broadcast_word(x + r * stride + q * 4);
        acc[p][r].low = _mm256_dpbusd_avx_epi32(acc[p][r].low, w[p].quads[q].low, quad);
        acc[p][r].high = _mm256_dpbusd_avx_epi32(acc[p][r].high, w[p].quads[q].high, quad);
      }
    }
  }
}

#else

inline __m256i sum_pairs(__m256i x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group. A run of quads is
// summed in 16 bits as long as 2 * 127 * largest quant * run stays below 2^15. The order is kept: GCC would begin with all products of a
// group, and put them aside in memory.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) requires(Bits < 8) {
  constexpr int kRun = Bits == 6 ? 2 : Bits == 5 ? 4 : Quads;
  for (int p = 0; p < P; ++p) {
    for (int begin = First; begin < First + Quads; begin += kRun) {
      Ints sums[R];
#pragma GCC unroll 8
      for (int q = begin; q < begin + kRun; ++q) {
        for (int r = 0; r < R; ++r) {
          const __m256i quad = broadcast_word(x + r * stride + q * 4);
          const __m256i low = _mm256_maddubs_epi16(w[p].quads[q].low, quad), high = _mm256_maddubs_epi16(w[p].quads[q].high, quad);
          sums[r] = q == begin ? Ints{low, high} : Ints{_mm256_add_epi16(sums[r].low, low), _mm256_add_epi16(sums[r].high, high)};
          __asm__("" : "+x"(sums[r].low), "+x"(sums[r].high));
        }
      }
      for (int r = 0; r < R; ++r) {
        acc[p][r].low = _mm256_add_epi32(acc[p][r].low, sum_pairs(sums[r].low));
        acc[p][r].high = _mm256_add_epi32(acc[p][r].high, sum_pairs(sums[r].high));
      }
    }
  }
}

// The same of 8 bits, without their zero: pairs of whole bytes would leave 16 bits.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) requires(Bits == 8) {
  const auto centred = [](__m256i quants) { return _mm256_xor_si256(quants, _mm256_set1_epi8(-128)); };
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int q = First; q < First + Quads; ++q) {
      const Line line = {centred(w[p].quads[q].low), centred(w[p].quads[q].high)}, magnitude = {_mm256_abs_epi8(line.low), _mm256_abs_epi8(line.high)};
      for (int r = 0; r < R; ++r) {
        const __m256i quad = broadcast_word(x + r * stride + q * 4);
        acc[p][r].low = _mm256_add_epi32(acc[p][r].low, sum_pairs(_mm256_maddubs_epi16(magnitude.low, _mm256_sign_epi8(quad, line.low))));
        acc[p][r].high = _mm256_add_epi32(acc[p][r].high, sum_pairs(_mm256_maddubs_epi16(magnitude.high, _mm256_sign_epi8(quad, line.high))));
        __asm__("" : "+x"(acc[p][r].low), "+x"(acc[p][r].high));
      }
    }
  }
}

#endif

// acc + the pairs of bf16 at `line` times the pair at x.
inline Floats dot_bf16(Floats acc, const uint8_t* line, const uint8_t* x) {
  const __m256i pair = broadcast_word(x), odd_mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  const auto even = [](__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); };
  const auto odd = [=](__m256i v) { return _mm256_castsi256_ps(_mm256_and_si256(v, odd_mask)); };
  const Line w = load_line(line);
  return {_mm256_fmadd_ps(odd(w.low), odd(pair), _mm256_fmadd_ps(even(w.low), even(pair), acc.low)),
          _mm256_fmadd_ps(odd(w.high), odd(pair), _mm256_fmadd_ps(even(w.high), even(pair), acc.high))};
}

// The largest magnitude of 32 values as bits of a float: infinity or more when one of them is not finite.
inline uint32_t largest_magnitude(const float* x) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < kGroup; i += 8) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load_32_bytes(x + i), _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

inline __m256i quantise_8(const float* x, float inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(inverse)));
}

// quants = x * inverse rounded to nearest even; sums of both halves.
inline void quantise(const float* x, float inverse, int8_t* quants, int (&sums)[2]) {
  for (int half = 0; half < 2; ++half) {
    const __m256i low = quantise_8(x + 16 * half, inverse), high = quantise_8(x + 16 * half + 8, inverse);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(quants + 16 * half), bytes);
    const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    sums[half] = _mm_cvtsi128_si32(four);
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
