// 16 lanes in NEON with dot products: four registers a line. Where the CPU multiplies matrices of bytes (i8mm), pairs of rows
// share an instruction; integer sums are exact, so both give the same bits.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "octavo/packed.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct Floats { float32x4_t at[4]; };
struct Ints { int32x4_t at[4]; };
struct Line { uint8x16_t at[4]; };

constexpr int max_rows(Format) { return 4; }  // of a block of registers: one panel, unpacked on the way
constexpr int kWideRows = 4;    // of a block of registers: panels unpacked before
constexpr int kWidePanels = 2;
constexpr int64_t unpack_rows(int) { return 8; }  // from here on it pays to unpack once for all rows
constexpr int kByteZero = 0;    // that dot_quads leaves in 8-bit quants

template <class T, class F>
[[gnu::always_inline]] inline T quarters(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

inline Floats broadcast(float x) { return quarters<Floats>([=](int) { return vdupq_n_f32(x); }); }
inline Floats zero_floats() { return broadcast(0.0f); }
inline Floats load_floats(const float* p) { return quarters<Floats>([=](int i) { return vld1q_f32(p + 4 * i); }); }
inline void store_floats(float* p, Floats x) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.at[i]);
}
inline Floats add(Floats x, Floats y) { return quarters<Floats>([&](int i) { return vaddq_f32(x.at[i], y.at[i]); }); }
inline Floats multiply(Floats x, Floats y) { return quarters<Floats>([&](int i) { return vmulq_f32(x.at[i], y.at[i]); }); }
inline Floats fma(Floats x, Floats y, Floats z) { return quarters<Floats>([&](int i) { return vfmaq_f32(z.at[i], x.at[i], y.at[i]); }); }
inline Floats to_floats(Ints x) { return quarters<Floats>([&](int i) { return vcvtq_f32_s32(x.at[i]); }); }

inline Floats load_halves(const uint8_t* p) {
  return quarters<Floats>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))); });
}
inline Floats load_unsigned(const uint8_t* p) {
  const uint8x16_t bytes = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
           vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}
inline Floats load_signed(const uint8_t* p) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

inline Line load_line(const uint8_t* p) { return quarters<Line>([=](int i) { return vld1q_u8(p + 16 * i); }); }
inline void store_line(uint8_t* p, Line x) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, x.at[i]);
}
inline Line low_nibbles(Line x) { return quarters<Line>([&](int i) { return vandq_u8(x.at[i], vdupq_n_u8(15)); }); }
inline Line high_nibbles(Line x) { return quarters<Line>([&](int i) { return vshrq_n_u8(x.at[i], 4); }); }

// low | the `Count` bits of `high` from bit `From`, moved to bit 4.
template <int From, int Count>
inline Line with_high_bits(Line low, Line high) {
  return quarters<Line>([&](int i) {
    uint8x16_t moved;
    if constexpr (From < 4) {
      moved = vshlq_n_u8(high.at[i], 4 - From);
    } else if constexpr (From == 4) {
      moved = high.at[i];
    } else {
      moved = vshrq_n_u8(high.at[i], From - 4);
    }
    return vorrq_u8(low.at[i], vandq_u8(moved, vdupq_n_u8(((1 << Count) - 1) << 4)));
  });
}

// sums[0] * First + sums[1] * Last, in all lanes.
template <int First, int Last>
inline Ints weighted_sums(const ActGroup& x) {
  return quarters<Ints>([&](int) { return vdupq_n_s32(x.sums[0] * First + x.sums[1] * Last); });
}

// Quants as signed bytes: 8-bit ones with their zero taken off, smaller ones as they are.
template <int Bits>
inline int8x16_t as_signed(uint8x16_t quants) {
  return vreinterpretq_s8_u8(Bits == 8 ? veorq_u8(quants, vdupq_n_u8(0x80)) : quants);
}

// acc += a quad of 16 channels times quad Lane of x.
template <int Bits, int Lane>
[[gnu::always_inline]] inline void dot_quad(const Line& quad, int8x16_t x, Ints& acc) {
  for (int i = 0; i < 4; ++i) acc.at[i] = vdotq_laneq_s32(acc.at[i], as_signed<Bits>(quad.at[i]), x, Lane);
}

template <int Bits, class Group>
[[gnu::always_inline]] inline void dot_four_quads(const Group& w, int first, const uint8_t* x, Ints& acc) {
  const int8x16_t quads = vreinterpretq_s8_u8(vld1q_u8(x + first * 4));
  dot_quad<Bits, 0>(w.quads[first], quads, acc);
  dot_quad<Bits, 1>(w.quads[first + 1], quads, acc);
  dot_quad<Bits, 2>(w.quads[first + 2], quads, acc);
  dot_quad<Bits, 3>(w.quads[first + 3], quads, acc);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)

// The same for two rows, two quads at a time: each product is of two rows and two channels.
template <int Bits, class Group>
[[gnu::always_inline]] inline void dot_two_rows(const Group& w, int first, int count, const uint8_t* x, int64_t stride, Ints& acc, Ints& next) {
  int32x4_t sums[8] = {};  // row 0 channel 2i, 2i + 1, row 1 channel 2i, 2i + 1
  for (int q = first; q < first + count; q += 2) {
    const int8x16_t rows = vcombine_s8(vreinterpret_s8_u8(vld1_u8(x + q * 4)), vreinterpret_s8_u8(vld1_u8(x + stride + q * 4)));
    for (int i = 0; i < 4; ++i) {
      const int32x4_t even = vreinterpretq_s32_s8(as_signed<Bits>(w.quads[q].at[i])), odd = vreinterpretq_s32_s8(as_signed<Bits>(w.quads[q + 1].at[i]));
      sums[2 * i] = vmmlaq_s32(sums[2 * i], rows, vreinterpretq_s8_s32(vzip1q_s32(even, odd)));
      sums[2 * i + 1] = vmmlaq_s32(sums[2 * i + 1], rows, vreinterpretq_s8_s32(vzip2q_s32(even, odd)));
    }
  }
  for (int i = 0; i < 4; ++i) {
    acc.at[i] = vaddq_s32(acc.at[i], vcombine_s32(vget_low_s32(sums[2 * i]), vget_low_s32(sums[2 * i + 1])));
    next.at[i] = vaddq_s32(next.at[i], vcombine_s32(vget_high_s32(sums[2 * i]), vget_high_s32(sums[2 * i + 1])));
  }
}

#endif

// acc[p][r] += the dot products of panel p's quads First .. First + Quads with those of row r's group.
template <int Bits, int First, int Quads, int P, int R, class Group>
[[gnu::always_inline]] inline void dot_quads(const Group (&w)[P], const uint8_t* x, int64_t stride, Ints (&acc)[P][R]) {
  for (int p = 0; p < P; ++p) {
    int r = 0;
#if defined(__ARM_FEATURE_MATMUL_INT8)
    for (; r + 2 <= R; r += 2) dot_two_rows<Bits>(w[p], First, Quads, x + r * stride, stride, acc[p][r], acc[p][r + 1]);
#endif
    for (; r < R; ++r) {
      for (int q = First; q < First + Quads; q += 4) dot_four_quads<Bits>(w[p], q, x + r * stride, acc[p][r]);
    }
  }
}

inline float32x4_t even_bf16(uint32x4_t pairs) { return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16)); }
inline float32x4_t odd_bf16(uint32x4_t pairs) { return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000))); }

// acc + the pairs of bf16 at `line` times the pair at x.
inline Floats dot_bf16(Floats acc, const uint8_t* line, const uint8_t* x) {
  uint32_t word;
  std::memcpy(&word, x, 4);
  const uint32x4_t pair = vdupq_n_u32(word);
  return quarters<Floats>([&](int i) {
    const uint32x4_t w = vreinterpretq_u32_u8(vld1q_u8(line + 16 * i));
    return vfmaq_f32(vfmaq_f32(acc.at[i], even_bf16(w), even_bf16(pair)), odd_bf16(w), odd_bf16(pair));
  });
}

// The largest magnitude of 32 values as bits of a float: infinity or more when one of them is not finite.
inline uint32_t largest_magnitude(const float* x) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (int i = 0; i < kGroup; i += 4) {
    largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
  }
  return vmaxvq_u32(largest);
}

// quants = x * inverse rounded to nearest even; sums of both halves.
inline void quantise(const float* x, float inverse, int8_t* quants, int (&sums)[2]) {
  for (int half = 0; half < 2; ++half) {
    const auto four = [&](int i) { return vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * half + 4 * i), inverse))); };
    const int16x8_t low = vcombine_s16(four(0), four(1)), high = vcombine_s16(four(2), four(3));
    vst1q_s8(quants + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    sums[half] = vaddvq_s16(vaddq_s16(low, high));
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
