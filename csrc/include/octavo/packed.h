// A weight matrix [n, k] re-laid for the products: panels of 16 output channels, K in small runs, one contiguous stream.
//
// Panel p holds channels 16p .. 16p + 15; missing ones are zero. The value that each element stands for is the file's.
//   f32, f16: one k after another, 16 channels each.
//   bf16: pairs of k (k odd: the last pair is filled with zero), 16 channels x 2.
//   quantised kinds: the file's blocks one after another, each block of all 16 channels at once: see QuantLayout.
//
// The layout is the same on every ISA, so a packed matrix may be cached on disk and shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "octavo/format.h"

namespace octavo {

class ThreadPool;

constexpr int64_t kPanel = 16;  // output channels a panel
constexpr int64_t kGroup = 32;  // values of K that share one scale of the activations

// A block of a quantised panel: a header, then the quants of `groups` groups of 32 values of K. A value is
// scale * (q - zero) + minimum, q unsigned with `bits` bits.
//
// Header, kinds of one group: 16 f16 scales (, 16 f16 minima).
// Header, kinds of 8 groups (K-quants): 16 f16 super-scales d (, 16 f16 super-minima, sign turned), then for each group
// 16 u8 scales and 16 u8 minima, both in units of the super ones; Q6_K: 16 i8 scales of the group's first 16 values and
// 16 of its last 16, and no minima.
//
// Quants of a group: K in quads (4 consecutive k). A line is 64 bytes: 16 channels x the 4 values of a quad, which is one
// operand of an int8 dot product. 8 bits: 8 lines. Fewer: 4 lines, line j with the low four bits of quad j in its low and
// of quad j + 4 in its high nibbles; 5 bits: then 1 line whose bit j is the fifth bit of quad j; 6 bits: then 2 lines,
// bits 2j, 2j + 1 of which are the upper bits of quad j (first line) and of quad j + 4 (second line).
struct QuantLayout {
  int bits;
  int zero;
  bool has_minima;
  int64_t groups;  // a block

  constexpr bool has_halves() const { return bits == 6; }  // a scale for 16 values instead of 32
  constexpr int64_t block_values() const { return groups * kGroup; }
  constexpr int64_t super_bytes() const { return has_minima ? 64 : 32; }
  constexpr int64_t header_bytes() const { return super_bytes() + (groups > 1 ? groups * 32 : 0); }
  constexpr int64_t group_bytes() const { return bits * 64; }
  constexpr int64_t block_bytes() const { return header_bytes() + groups * group_bytes(); }
};

constexpr bool is_quantised(Format format) { return format_info(format).block_values > 1; }

constexpr QuantLayout quant_layout(Format format) {
  switch (format) {
    case Format::Q4_0: return {4, 8, false, 1};
    case Format::Q4_1: return {4, 0, true, 1};
    case Format::Q5_0: return {5, 16, false, 1};
    case Format::Q5_1: return {5, 0, true, 1};
    case Format::Q8_0: return {8, 128, false, 1};
    case Format::Q4_K: return {4, 0, true, 8};
    case Format::Q5_K: return {5, 0, true, 8};
    case Format::Q6_K: return {6, 32, false, 8};
    default: return {};
  }
}

// What a product reads of its other operand: prepared once a row, shared by all products that read the row.
//   F32: the row itself. BF16: the row rounded to nearest even. Q8: ActGroups. A NaN or infinity of the row is NaN here, and
//   so it is in every product of the row.
enum class ActKind : uint8_t { F32, BF16, Q8 };

// Quantised weights are multiplied with rows of one kind or the other, by the ISA.
constexpr ActKind act_kind(Format format, ActKind of_quantised) {
  return is_quantised(format) ? of_quantised : format == Format::BF16 ? ActKind::BF16 : ActKind::F32;
}

// 32 values of a row, scale * quants[i] each, |quants[i]| <= 127.
struct ActGroup {
  int8_t quants[kGroup];
  float scale;       // largest magnitude / 127; NaN, with quants of zero, when the group is not finite
  float scaled_sum;  // scale * (sums[0] + sums[1])
  int16_t sums[2];   // of the first and last 16 quants
};
static_assert(sizeof(ActGroup) == 44);

struct PackedMatrix {
  Format format;          // of the file
  ActKind act;            // what linear() reads
  int64_t n = 0, k = 0;   // logical shape [n, k]
  int64_t panel_bytes = 0;
  size_t num_bytes = 0;   // of data
  std::shared_ptr<uint8_t[]> data;  // 64-byte aligned

  int64_t panels() const { return (n + kPanel - 1) / kPanel; }
  const uint8_t* panel(int64_t p) const { return data.get() + p * panel_bytes; }
};

// Returns src (n rows of k values in `format`, src_bytes long) as panels. Throws std::invalid_argument when the sizes do
// not agree or k is no multiple of the format's block.
PackedMatrix pack_matrix(Format format, int64_t n, int64_t k, const uint8_t* src, size_t src_bytes, ActKind of_quantised, ThreadPool& pool);

// Bytes of one prepared row of k values; a multiple of 64. BF16: an odd number of lines, so that the 16 rows of a tile do not share sets
// of the first-level cache.
size_t act_row_bytes(ActKind kind, int64_t k);

}  // namespace octavo
