// Sixteen float lanes, the same on every ISA: one zmm register (AVX-512), two ymm (AVX2), four registers (NEON) or a compiler vector (portable).
// Only csrc/kernels includes this; every name lives in the ISA's own namespace, so that no function compiled for one ISA
// can be linked in for another.
//
// Reductions add in one fixed tree and exp is one formula, so that a kernel is the same sequence of operations everywhere;
// only fma differs: one rounding where the ISA has it, two in the portable build.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(OCTAVO_NEON)
#include <arm_neon.h>
#endif

#define OCTAVO_INLINE [[gnu::always_inline]] inline

namespace octavo::OCTAVO_ISA {

constexpr int64_t kLanes = 16;

#if defined(__AVX512F__) || defined(__AVX2__)
// 16 values of fp8 (4 bits of exponent, 3 of mantissa, no infinity) as half precision, 2^-8 times as large: the exponents' biases
// are 8 apart. NaN stays NaN.
OCTAVO_INLINE __m256i f16_of_e4m3(const void* p) {
  const __m256i value = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i nan = _mm256_set1_epi16(0x7f), magnitude = _mm256_and_si256(value, nan);
  const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(nan, value), 8);
  const __m256i all = _mm256_srli_epi16(_mm256_cmpeq_epi16(magnitude, nan), 1);
  return _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), all);
}
#endif

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
struct Words {  // 16 x 32 bits
  __m512i v;
};

OCTAVO_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
OCTAVO_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
OCTAVO_INLINE __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
OCTAVO_INLINE Vec load_part(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
OCTAVO_INLINE void store_part(float* p, int64_t n, Vec a) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
OCTAVO_INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
OCTAVO_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
OCTAVO_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
OCTAVO_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
OCTAVO_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// b where either is NaN.
OCTAVO_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
OCTAVO_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
OCTAVO_INLINE uint32_t at_least(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }  // bit i: a[i] >= b[i]
OCTAVO_INLINE uint32_t unordered(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }      // bit i: a[i] is NaN
OCTAVO_INLINE Vec swap_pairs(Vec a) { return {_mm512_permute_ps(a.v, 0xB1)}; }                      // 1 0 3 2 ...
OCTAVO_INLINE Vec zip_low(Vec a, Vec b) {  // a0 b0 a1 b1 ... a7 b7
  return {_mm512_permutex2var_ps(a.v, _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0), b.v)};
}
OCTAVO_INLINE Vec zip_high(Vec a, Vec b) {  // a8 b8 ... a15 b15
  return {_mm512_permutex2var_ps(a.v, _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8), b.v)};
}
OCTAVO_INLINE Vec load_twice(const float* p, int64_t n) {  // p[0] p[0] p[1] p[1] ..., n <= 8 floats
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return {_mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(first_lanes(n), p))};
}
OCTAVO_INLINE Vec times_power_of_2(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
OCTAVO_INLINE Vec times_normal_power_of_2(Vec a, Vec n) { return times_power_of_2(a, n); }  // n in -126..127

OCTAVO_INLINE Words load_words(const void* p) { return {_mm512_loadu_si512(p)}; }
OCTAVO_INLINE Words operator&(Words a, uint32_t b) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(b)))}; }
OCTAVO_INLINE Vec load_f16(const void* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))}; }
OCTAVO_INLINE Vec load_e4m3(const void* p) { return {_mm512_mul_ps(_mm512_cvtph_ps(f16_of_e4m3(p)), _mm512_set1_ps(256.0f))}; }
OCTAVO_INLINE Vec load_int8(const void* p) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))}; }
OCTAVO_INLINE void store_f16(uint16_t* p, Vec a) {  // to nearest, ties to even; beyond its range infinity; NaN stays NaN
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
OCTAVO_INLINE Vec low_bf16(Words a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
OCTAVO_INLINE Vec high_bf16(Words a) { return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))}; }

OCTAVO_INLINE float sum(Vec a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
OCTAVO_INLINE float max_of(Vec a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

#elif defined(__AVX2__)

struct Vec {
  __m256 lo, hi;
};
struct Words {
  __m256i lo, hi;
};

OCTAVO_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
OCTAVO_INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
OCTAVO_INLINE Vec load_part(const float* p, int64_t n) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * 4);
  return load(lanes);
}
OCTAVO_INLINE void store_part(float* p, int64_t n, Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, static_cast<size_t>(n) * 4);
}
OCTAVO_INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
OCTAVO_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
OCTAVO_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
OCTAVO_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
OCTAVO_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
OCTAVO_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
OCTAVO_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
OCTAVO_INLINE uint32_t sign_bits(__m256 lo, __m256 hi) {
  return static_cast<uint32_t>(_mm256_movemask_ps(lo)) | static_cast<uint32_t>(_mm256_movemask_ps(hi)) << 8;
}
OCTAVO_INLINE uint32_t at_least(Vec a, Vec b) { return sign_bits(_mm256_cmp_ps(a.lo, b.lo, _CMP_GE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GE_OQ)); }
OCTAVO_INLINE uint32_t unordered(Vec a) { return sign_bits(_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)); }
OCTAVO_INLINE Vec swap_pairs(Vec a) { return {_mm256_permute_ps(a.lo, 0xB1), _mm256_permute_ps(a.hi, 0xB1)}; }
OCTAVO_INLINE Vec zip(__m256 a, __m256 b) {
  const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
OCTAVO_INLINE Vec zip_low(Vec a, Vec b) { return zip(a.lo, b.lo); }
OCTAVO_INLINE Vec zip_high(Vec a, Vec b) { return zip(a.hi, b.hi); }
OCTAVO_INLINE Vec load_twice(const float* p, int64_t n) {
  float eight[8] = {};
  std::memcpy(eight, p, static_cast<size_t>(n) * 4);
  const __m256 a = _mm256_loadu_ps(eight);
  return {_mm256_permutevar8x32_ps(a, _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0)), _mm256_permutevar8x32_ps(a, _mm256_set_epi32(7, 7, 6, 6, 5, 5, 4, 4))};
}
OCTAVO_INLINE __m256 times_power_of_2(__m256 a, __m256 n) {  // in two steps, since 2^n alone may be out of range
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(a, x), y);
}
OCTAVO_INLINE Vec times_power_of_2(Vec a, Vec n) { return {times_power_of_2(a.lo, n.lo), times_power_of_2(a.hi, n.hi)}; }
OCTAVO_INLINE __m256 normal_power_of_2(__m256 n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)); }
OCTAVO_INLINE Vec times_normal_power_of_2(Vec a, Vec n) { return {_mm256_mul_ps(a.lo, normal_power_of_2(n.lo)), _mm256_mul_ps(a.hi, normal_power_of_2(n.hi))}; }

OCTAVO_INLINE Words load_words(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
OCTAVO_INLINE Words operator&(Words a, uint32_t b) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(b));
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
OCTAVO_INLINE Vec load_f16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
OCTAVO_INLINE Vec load_e4m3(const void* p) {
  const __m256i half = f16_of_e4m3(p);
  const __m256 scale = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), scale), _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), scale)};
}
OCTAVO_INLINE Vec load_int8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
OCTAVO_INLINE void store_f16(uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
OCTAVO_INLINE Vec low_bf16(Words a) { return {_mm256_castsi256_ps(_mm256_slli_epi32(a.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(a.hi, 16))}; }
OCTAVO_INLINE Vec high_bf16(Words a) {
  const Words b = a & 0xffff0000u;
  return {_mm256_castsi256_ps(b.lo), _mm256_castsi256_ps(b.hi)};
}

OCTAVO_INLINE float sum(Vec a) {
  const __m256 b = _mm256_add_ps(a.lo, a.hi);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
OCTAVO_INLINE float max_of(Vec a) {
  const __m256 b = _mm256_max_ps(a.lo, a.hi);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

#elif defined(OCTAVO_NEON)

struct Vec {
  float32x4_t v[4];
};
struct Words {
  uint32x4_t v[4];
};

template <class T, class F>
OCTAVO_INLINE T quarters_of(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

OCTAVO_INLINE Vec load(const float* p) {
  return quarters_of<Vec>([=](int i) { return vld1q_f32(p + 4 * i); });
}
OCTAVO_INLINE void store(float* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
OCTAVO_INLINE Vec load_part(const float* p, int64_t n) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * 4);
  return load(lanes);
}
OCTAVO_INLINE void store_part(float* p, int64_t n, Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, static_cast<size_t>(n) * 4);
}
OCTAVO_INLINE Vec splat(float x) {
  return quarters_of<Vec>([=](int) { return vdupq_n_f32(x); });
}
OCTAVO_INLINE Vec operator+(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
OCTAVO_INLINE Vec operator-(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
OCTAVO_INLINE Vec operator*(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
OCTAVO_INLINE Vec operator/(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return quarters_of<Vec>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
// b where either is NaN, which NEON's own max and min do not promise.
OCTAVO_INLINE Vec max(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
OCTAVO_INLINE Vec min(Vec a, Vec b) {
  return quarters_of<Vec>([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
template <class F>
OCTAVO_INLINE uint32_t bits_of(F hits) {  // bit 4i + j: lane j of hits(i), which is all ones or zero
  const uint32_t places[4] = {1, 2, 4, 8};
  const uint32x4_t place = vld1q_u32(places);
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(hits(i), place)) << 4 * i;
  return bits;
}
OCTAVO_INLINE uint32_t at_least(Vec a, Vec b) {
  return bits_of([&](int i) { return vcgeq_f32(a.v[i], b.v[i]); });
}
OCTAVO_INLINE uint32_t unordered(Vec a) {
  return bits_of([&](int i) { return vmvnq_u32(vceqq_f32(a.v[i], a.v[i])); });
}
OCTAVO_INLINE Vec swap_pairs(Vec a) {
  return quarters_of<Vec>([&](int i) { return vrev64q_f32(a.v[i]); });
}
OCTAVO_INLINE Vec zip_low(Vec a, Vec b) {
  return {{vzip1q_f32(a.v[0], b.v[0]), vzip2q_f32(a.v[0], b.v[0]), vzip1q_f32(a.v[1], b.v[1]), vzip2q_f32(a.v[1], b.v[1])}};
}
OCTAVO_INLINE Vec zip_high(Vec a, Vec b) {
  return {{vzip1q_f32(a.v[2], b.v[2]), vzip2q_f32(a.v[2], b.v[2]), vzip1q_f32(a.v[3], b.v[3]), vzip2q_f32(a.v[3], b.v[3])}};
}
OCTAVO_INLINE Vec load_twice(const float* p, int64_t n) {
  float eight[8] = {};
  std::memcpy(eight, p, static_cast<size_t>(n) * 4);
  const float32x4_t low = vld1q_f32(eight), high = vld1q_f32(eight + 4);
  return {{vzip1q_f32(low, low), vzip2q_f32(low, low), vzip1q_f32(high, high), vzip2q_f32(high, high)}};
}
OCTAVO_INLINE float32x4_t times_power_of_2(float32x4_t a, float32x4_t n) {  // in two steps, since 2^n alone may be out of range
  const int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half), bias = vdupq_n_s32(127);
  const float32x4_t x = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  const float32x4_t y = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return vmulq_f32(vmulq_f32(a, x), y);
}
OCTAVO_INLINE Vec times_power_of_2(Vec a, Vec n) {
  return quarters_of<Vec>([&](int i) { return times_power_of_2(a.v[i], n.v[i]); });
}
OCTAVO_INLINE Vec times_normal_power_of_2(Vec a, Vec n) { return times_power_of_2(a, n); }  // n in -126..127

OCTAVO_INLINE Words load_words(const void* p) {
  return quarters_of<Words>([=](int i) { return vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i)); });
}
OCTAVO_INLINE Words operator&(Words a, uint32_t b) {
  return quarters_of<Words>([&](int i) { return vandq_u32(a.v[i], vdupq_n_u32(b)); });
}
OCTAVO_INLINE Vec load_f16(const void* p) {
  return quarters_of<Vec>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(static_cast<const uint8_t*>(p) + 8 * i))); });
}
OCTAVO_INLINE Vec load_e4m3(const void* p) {  // as half precision, 2^-8 times as large: the exponents' biases are 8 apart
  const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t*>(p));
  const uint16x8_t nan = vdupq_n_u16(0x7f);
  uint16_t halves[kLanes];
  for (int i = 0; i < 2; ++i) {
    const uint16x8_t value = vmovl_u8(i == 0 ? vget_low_u8(bytes) : vget_high_u8(bytes)), magnitude = vandq_u16(value, nan);
    const uint16x8_t all = vshrq_n_u16(vceqq_u16(magnitude, nan), 1);
    vst1q_u16(halves + 8 * i, vorrq_u16(vorrq_u16(vshlq_n_u16(magnitude, 7), vshlq_n_u16(vbicq_u16(value, nan), 8)), all));
  }
  return load_f16(halves) * splat(256.0f);
}
OCTAVO_INLINE Vec load_int8(const void* p) {
  const int8x16_t bytes = vld1q_s8(static_cast<const int8_t*>(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
OCTAVO_INLINE void store_f16(uint16_t* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
OCTAVO_INLINE Vec low_bf16(Words a) {
  return quarters_of<Vec>([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(a.v[i], 16)); });
}
OCTAVO_INLINE Vec high_bf16(Words a) {
  return quarters_of<Vec>([&](int i) { return vreinterpretq_f32_u32(vandq_u32(a.v[i], vdupq_n_u32(0xffff0000u))); });
}

OCTAVO_INLINE float sum(Vec a) {
  const float32x4_t b = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
OCTAVO_INLINE float max_of(Vec a) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3]))); }

#else

typedef float Floats [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]];
typedef int32_t Ints [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]];
typedef uint32_t Bits [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]];

struct Vec {
  Floats v;
};
struct Words {
  Bits v;
};

OCTAVO_INLINE Vec load(const float* p) { return {*reinterpret_cast<const Floats*>(p)}; }
OCTAVO_INLINE void store(float* p, Vec a) { *reinterpret_cast<Floats*>(p) = a.v; }
OCTAVO_INLINE Vec load_part(const float* p, int64_t n) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * 4);
  return load(lanes);
}
OCTAVO_INLINE void store_part(float* p, int64_t n, Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, static_cast<size_t>(n) * 4);
}
OCTAVO_INLINE Vec splat(float x) { return {x - Floats{}}; }
OCTAVO_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
OCTAVO_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
OCTAVO_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
OCTAVO_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
OCTAVO_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
OCTAVO_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
OCTAVO_INLINE uint32_t sign_bits(Ints a) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= (static_cast<uint32_t>(a[i]) & 1u) << i;
  return bits;
}
OCTAVO_INLINE uint32_t at_least(Vec a, Vec b) { return sign_bits(a.v >= b.v); }
OCTAVO_INLINE uint32_t unordered(Vec a) { return sign_bits(a.v != a.v); }
OCTAVO_INLINE Vec swap_pairs(Vec a) {
  Vec b;
  for (int i = 0; i < kLanes; ++i) b.v[i] = a.v[i ^ 1];
  return b;
}
OCTAVO_INLINE Vec zip_low(Vec a, Vec b) {
  Vec c;
  for (int i = 0; i < kLanes; ++i) c.v[i] = (i % 2 ? b : a).v[i / 2];
  return c;
}
OCTAVO_INLINE Vec zip_high(Vec a, Vec b) {
  Vec c;
  for (int i = 0; i < kLanes; ++i) c.v[i] = (i % 2 ? b : a).v[kLanes / 2 + i / 2];
  return c;
}
OCTAVO_INLINE Vec load_twice(const float* p, int64_t n) {
  Vec a{};
  for (int64_t i = 0; i < n; ++i) a.v[2 * i] = a.v[2 * i + 1] = p[i];
  return a;
}
OCTAVO_INLINE Vec times_power_of_2(Vec a, Vec n) {  // in two steps, since 2^n alone may be out of range
  Ints whole;
  for (int i = 0; i < kLanes; ++i) whole[i] = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) : 0;
  const Ints half = whole >> 1, rest = whole - half;
  return {a.v * (Floats)((half + 127) << 23) * (Floats)((rest + 127) << 23)};
}
OCTAVO_INLINE Vec times_normal_power_of_2(Vec a, Vec n) {
  Ints whole;
  for (int i = 0; i < kLanes; ++i) whole[i] = n.v[i] == n.v[i] ? static_cast<int32_t>(n.v[i]) : 0;
  return {a.v * (Floats)((whole + 127) << 23)};
}

OCTAVO_INLINE Words load_words(const void* p) { return {*static_cast<const Bits*>(p)}; }
OCTAVO_INLINE Words operator&(Words a, uint32_t b) { return {a.v & b}; }
// Half precision by hand (IEEE 754 binary16). Widening: the exponent is moved by a product with a power of two, which also makes
// subnormals right; infinity and NaN have an exponent that the product does not reach.
OCTAVO_INLINE Vec load_f16(const void* p) {
  Vec a;
  for (int i = 0; i < kLanes; ++i) {
    uint16_t half;
    std::memcpy(&half, static_cast<const uint8_t*>(p) + 2 * i, 2);
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
    uint32_t bits = magnitude;
    if (magnitude >= 0x7c00u << 13) {
      bits |= 0x7f800000u;
    } else {
      float value;
      std::memcpy(&value, &bits, 4);
      value *= 0x1p112f;
      std::memcpy(&bits, &value, 4);
    }
    bits |= static_cast<uint32_t>(half & 0x8000u) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    a.v[i] = value;
  }
  return a;
}
// The bits of x rounded to half precision, to nearest, ties to even; beyond its range infinity; NaN stays NaN.
OCTAVO_INLINE uint16_t f16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (magnitude < 0x38800000u) {  // a subnormal: adding 0.5 rounds at its last place, 2^-24
    float value;
    std::memcpy(&value, &magnitude, 4);
    value += 0.5f;
    uint32_t rounded;
    std::memcpy(&rounded, &value, 4);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}
OCTAVO_INLINE void store_f16(uint16_t* p, Vec a) {
  for (int64_t i = 0; i < kLanes; ++i) p[i] = f16_bits(a.v[i]);
}
OCTAVO_INLINE Vec load_e4m3(const void* p) {
  uint16_t halves[kLanes];
  for (int i = 0; i < kLanes; ++i) {  // as half precision, 2^-8 times as large: the exponents' biases are 8 apart
    const uint8_t value = static_cast<const uint8_t*>(p)[i];
    const unsigned magnitude = value & 0x7fu;
    halves[i] = static_cast<uint16_t>((value & 0x80u) << 8 | (magnitude == 0x7fu ? 0x7fffu : magnitude << 7));
  }
  return load_f16(halves) * splat(256.0f);
}
OCTAVO_INLINE Vec load_int8(const void* p) {
  Vec a;
  for (int i = 0; i < kLanes; ++i) a.v[i] = static_cast<float>(static_cast<const int8_t*>(p)[i]);
  return a;
}
OCTAVO_INLINE Vec low_bf16(Words a) { return {(Floats)(a.v << 16)}; }
OCTAVO_INLINE Vec high_bf16(Words a) { return {(Floats)(a.v & 0xffff0000u)}; }

OCTAVO_INLINE float sum(Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
OCTAVO_INLINE float max_of(Vec a) {
  float best = a.v[0];
  for (int i = 1; i < kLanes; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}

#endif

// Turns rows into columns: four rounds, each of which puts row i + 8 between the values of row i.
OCTAVO_INLINE void transpose(Vec (&rows)[kLanes]) {
  for (int round = 0; round < 4; ++round) {
    Vec zipped[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      zipped[2 * i] = zip_low(rows[i], rows[i + kLanes / 2]);
      zipped[2 * i + 1] = zip_high(rows[i], rows[i + kLanes / 2]);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = zipped[i];
  }
}

// e^x within 2 ulp; 0 from -104 down (and for -inf), inf from 88.8 up, NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in
// two parts (Cody and Waite); polynomial of Cephes expf.
OCTAVO_INLINE Vec exp(Vec x) {
  x = max(splat(-110.0f), x);  // NaN passes: max and min return their second operand
  x = min(splat(90.0f), x);
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = fma(x, splat(1.44269504088896341f), magic) - magic;
  Vec r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec y = splat(1.9875691500e-4f);
  y = fma(y, r, splat(1.3981999507e-3f));
  y = fma(y, r, splat(8.3334519073e-3f));
  y = fma(y, r, splat(4.1665795894e-2f));
  y = fma(y, r, splat(1.6666665459e-1f));
  y = fma(y, r, splat(5.0000001201e-1f));
  y = fma(y, r * r, r) + splat(1.0f);
  return times_power_of_2(y, n);
}

// 2^x for x <= 0, within 1 ulp; 1 at 0, 2^-126 from -126 down, NaN for NaN. It stops there since results below 2^-126 (and 0 that
// an underflow makes) take a hundred cycles each on many CPUs. x = n + r, |r| <= 1/2; minimax polynomial of 2^r (relative error,
// constant term 1).
OCTAVO_INLINE Vec exp2_of_negative(Vec x) {
  x = max(splat(-126.0f), x);  // NaN passes
  const Vec magic = splat(12582912.0f);
  const Vec n = (x + magic) - magic, r = x - n;
  Vec y = splat(1.5353362e-4f);
  y = fma(y, r, splat(1.33988750e-3f));
  y = fma(y, r, splat(9.61843692e-3f));
  y = fma(y, r, splat(5.55033237e-2f));
  y = fma(y, r, splat(2.40226477e-1f));
  y = fma(y, r, splat(6.93147182e-1f));
  y = fma(y, r, splat(1.0f));
  return times_normal_power_of_2(y, n);
}

OCTAVO_INLINE float exp2_of_negative(float x) {
  float lanes[kLanes];
  store(lanes, exp2_of_negative(splat(x)));
  return lanes[0];
}

// The bits of x rounded to bf16, to nearest, ties to even; NaN stays NaN.
OCTAVO_INLINE uint16_t bf16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// The bits of x rounded to fp8 with 4 bits of exponent and 3 of mantissa (OCP E4M3), to nearest, ties to even; 448 from there on,
// also for infinity; NaN stays NaN.
OCTAVO_INLINE uint8_t e4m3_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {  // below 2^-6: adding 2^14 rounds at its last place, 2^-9
    float value;
    std::memcpy(&value, &magnitude, 4);
    value += 16384.0f;
    uint32_t rounded;
    std::memcpy(&rounded, &value, 4);
    return static_cast<uint8_t>(sign | (rounded - 0x46800000u));
  }
  return static_cast<uint8_t>(sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20);
}

}  // namespace octavo::OCTAVO_ISA
