// A weight matrix [n, k] re-laid for the products: panels of 16 output channels, K in small runs, one contiguous stream.
//
// Panel p holds channels 16p .. 16p + 15 (missing ones are zero). Quantised kinds store, per panel and group of K:
//   the quants, K in quads: for each quad of 4 consecutive k, 16 channels x 4 bytes (a 64-byte line of int8 dot operands;
//   4-bit kinds put quad j in the low and quad j + half in the high nibbles of one line), then 16 scales, then 16 minima
//   where the kind has them. A value is scale * (q - zero) + minimum, q unsigned, `zero` fixed for the kind.
// bf16: pairs of k, 16 channels x 2. f16, f32: one k after another, 16 channels each.
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

// What a product reads of its other operand: prepared once a row, shared by all products that read the row.
//   F32: the row itself. BF16: the row rounded. Q8: int8 in groups of 32 values, each group with its float scale and the
//   sum of its quants (for the minima and zeros).
enum class ActKind : uint8_t { F32, BF16, Q8 };

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
PackedMatrix pack_matrix(Format format, int64_t n, int64_t k, const uint8_t* src, size_t src_bytes, ThreadPool& pool);

// Bytes of one prepared row of k values; a multiple of 64.
size_t act_row_bytes(ActKind kind, int64_t k);

}  // namespace octavo
