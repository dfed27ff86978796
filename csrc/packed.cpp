#include "octavo/packed.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "octavo/pages.h"
#include "octavo/thread_pool.h"

namespace octavo {
namespace {

uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

void store_word(uint8_t* p, uint32_t word) { std::memcpy(p, &word, 4); }

// The bits of a nibble, one a byte.
uint32_t spread(uint32_t nibble) { return ((nibble & 15) * 0x00204081) & 0x01010101; }

struct KScale {
  uint8_t scale, minimum;
};

// Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes.
KScale k_scale(const uint8_t* packed, int64_t group) {
  if (group < 4) return {static_cast<uint8_t>(packed[group] & 63), static_cast<uint8_t>(packed[group + 4] & 63)};
  return {static_cast<uint8_t>((packed[group + 4] & 15) | packed[group - 4] >> 6 << 4),
          static_cast<uint8_t>(packed[group + 4] >> 4 | packed[group] >> 6 << 4)};
}

// The 32 quants of a group of one row as 8 quads, a byte each, out of the file's block.
template <Format F>
void read_quads(const uint8_t* block, int64_t group, uint32_t (&quads)[8]) {
  if constexpr (F == Format::Q8_0) {
    for (int q = 0; q < 8; ++q) quads[q] = load_word(block + 2 + 4 * q) ^ 0x80808080;
  } else if constexpr (F == Format::Q6_K) {
    const uint8_t* low = block + group / 4 * 64 + group % 2 * 32;
    const uint8_t* high = block + 128 + group / 4 * 32;
    const int64_t low_shift = group % 4 / 2 * 4, high_shift = group % 4 * 2;
    for (int q = 0; q < 8; ++q) {
      quads[q] = (load_word(low + 4 * q) >> low_shift & 0x0f0f0f0f) | (load_word(high + 4 * q) >> high_shift & 0x03030303) << 4;
    }
  } else if constexpr (F == Format::Q4_K || F == Format::Q5_K) {
    const uint8_t* low = block + (F == Format::Q4_K ? 16 : 48) + group / 2 * 32;
    for (int q = 0; q < 8; ++q) {
      quads[q] = load_word(low + 4 * q) >> group % 2 * 4 & 0x0f0f0f0f;
      if constexpr (F == Format::Q5_K) quads[q] |= (load_word(block + 16 + 4 * q) >> group & 0x01010101) << 4;
    }
  } else {
    constexpr bool has_minima = quant_layout(F).has_minima;
    constexpr int64_t scales = has_minima ? 4 : 2, high = quant_layout(F).bits == 5 ? 4 : 0;
    for (int q = 0; q < 4; ++q) {
      const uint32_t word = load_word(block + scales + high + 4 * q);
      quads[q] = word & 0x0f0f0f0f;
      quads[q + 4] = word >> 4 & 0x0f0f0f0f;
    }
    if constexpr (high > 0) {
      const uint32_t bits = load_word(block + scales);
      for (int q = 0; q < 8; ++q) quads[q] |= spread(bits >> 4 * q) << 4;
    }
  }
}

// Writes 8 quads as one channel's share of a group's lines: see QuantLayout.
template <int Bits>
void write_quads(const uint32_t (&quads)[8], uint8_t* lines) {
  if constexpr (Bits == 8) {
    for (int q = 0; q < 8; ++q) store_word(lines + 64 * q, quads[q]);
    return;
  }
  for (int q = 0; q < 4; ++q) store_word(lines + 64 * q, (quads[q] & 0x0f0f0f0f) | (quads[q + 4] & 0x0f0f0f0f) << 4);
  if constexpr (Bits == 5) {
    uint32_t bits = 0;
    for (int q = 0; q < 8; ++q) bits |= (quads[q] >> 4 & 0x01010101) << q;
    store_word(lines + 256, bits);
  }
  if constexpr (Bits == 6) {
    uint32_t first = 0, last = 0;
    for (int q = 0; q < 4; ++q) {
      first |= (quads[q] >> 4 & 0x03030303) << 2 * q;
      last |= (quads[q + 4] >> 4 & 0x03030303) << 2 * q;
    }
    store_word(lines + 256, first);
    store_word(lines + 320, last);
  }
}

template <Format F>
void write_header(const uint8_t* block, int64_t channel, uint8_t* header) {
  constexpr QuantLayout layout = quant_layout(F);
  std::memcpy(header + 2 * channel, block + (F == Format::Q6_K ? 208 : 0), 2);
  if constexpr (layout.has_minima) std::memcpy(header + 32 + 2 * channel, block + 2, 2);
  if constexpr (layout.groups > 1) {
    if constexpr (layout.has_minima) header[32 + 2 * channel + 1] ^= 0x80;  // the file subtracts its minima
    for (int64_t g = 0; g < layout.groups; ++g) {
      uint8_t* units = header + layout.super_bytes() + g * 32 + channel;
      const KScale pair = F == Format::Q6_K ? KScale{block[192 + 2 * g], block[193 + 2 * g]} : k_scale(block + 4, g);
      units[0] = pair.scale;
      units[16] = pair.minimum;
    }
  }
}

// `rows` rows of the file, row_bytes apart, to one panel.
template <Format F>
void pack_panel(const uint8_t* src, int64_t row_bytes, int64_t rows, int64_t k, uint8_t* panel) {
  if constexpr (is_quantised(F)) {
    constexpr QuantLayout layout = quant_layout(F);
    constexpr int64_t block_bytes = format_info(F).block_bytes;
    for (int64_t b = 0; b < k / layout.block_values(); ++b, panel += layout.block_bytes()) {
      for (int64_t c = 0; c < rows; ++c) {
        const uint8_t* block = src + c * row_bytes + b * block_bytes;
        write_header<F>(block, c, panel);
        for (int64_t g = 0; g < layout.groups; ++g) {
          uint32_t quads[8];
          read_quads<F>(block, g, quads);
          write_quads<layout.bits>(quads, panel + layout.header_bytes() + g * layout.group_bytes() + 4 * c);
        }
      }
    }
  } else {
    constexpr int64_t bytes = format_info(F).block_bytes, run = F == Format::BF16 ? 2 : 1;  // run: consecutive k of a channel
    for (int64_t i = 0; i < k; i += run) {
      for (int64_t c = 0; c < rows; ++c) {
        const int64_t values = k - i < run ? k - i : run;
        std::memcpy(panel + (i * kPanel + c * run) * bytes, src + c * row_bytes + i * bytes, static_cast<size_t>(values * bytes));
      }
    }
  }
}

using PackPanel = decltype(&pack_panel<Format::F32>);

PackPanel pack_panel_of(Format format) {
  switch (format) {
    case Format::F32: return pack_panel<Format::F32>;
    case Format::F16: return pack_panel<Format::F16>;
    case Format::BF16: return pack_panel<Format::BF16>;
    case Format::Q4_0: return pack_panel<Format::Q4_0>;
    case Format::Q4_1: return pack_panel<Format::Q4_1>;
    case Format::Q5_0: return pack_panel<Format::Q5_0>;
    case Format::Q5_1: return pack_panel<Format::Q5_1>;
    case Format::Q8_0: return pack_panel<Format::Q8_0>;
    case Format::Q4_K: return pack_panel<Format::Q4_K>;
    case Format::Q5_K: return pack_panel<Format::Q5_K>;
    case Format::Q6_K: return pack_panel<Format::Q6_K>;
  }
  throw std::invalid_argument("pack_matrix: unknown format " + std::to_string(static_cast<int>(format)));
}

int64_t product(int64_t x, int64_t y) {
  int64_t result;
  if (__builtin_mul_overflow(x, y, &result)) throw std::invalid_argument("pack_matrix: the matrix is too large for 64-bit sizes");
  return result;
}

int64_t bytes_of_panel(Format format, int64_t k) {
  if (is_quantised(format)) {
    const QuantLayout layout = quant_layout(format);
    return product(k / layout.block_values(), layout.block_bytes());
  }
  const int64_t stored = format == Format::BF16 ? k + k % 2 : k;
  return product(stored, kPanel * format_info(format).block_bytes);
}

}  // namespace

PackedMatrix pack_matrix(Format format, int64_t n, int64_t k, const uint8_t* src, size_t src_bytes, ActKind of_quantised, ThreadPool& pool) {
  const PackPanel pack = pack_panel_of(format);
  const FormatInfo info = format_info(format);
  const std::string name = std::string(info.label) + " matrix [" + std::to_string(n) + ", " + std::to_string(k) + "]";
  if (n < 1 || k < 1) throw std::invalid_argument("pack_matrix: " + name + " is empty");
  if (k % info.block_values) {
    throw std::invalid_argument("pack_matrix: " + name + ": rows are no multiple of the block of " + std::to_string(info.block_values));
  }
  const int64_t row_bytes = product(k / info.block_values, info.block_bytes), expected = product(n, row_bytes);
  if (static_cast<uint64_t>(expected) != src_bytes) {
    throw std::invalid_argument("pack_matrix: " + name + " takes " + std::to_string(expected) + " bytes, got " + std::to_string(src_bytes));
  }
  PackedMatrix matrix{format, act_kind(format, of_quantised), n, k, bytes_of_panel(format, k), 0, nullptr};
  matrix.num_bytes = static_cast<size_t>(product(matrix.panel_bytes, n / kPanel + (n % kPanel != 0)));
  matrix.data = allocate_piece(matrix.num_bytes);
  const Cut cut = Cut::of(matrix.panels(), 4 * pool.size());
  pool.for_each(cut.pieces, [&](int64_t piece, int) {
    for (int64_t p = cut.begin(piece); p < cut.begin(piece + 1); ++p) {
      uint8_t* panel = matrix.data.get() + p * matrix.panel_bytes;
      const int64_t rows = n - p * kPanel < kPanel ? n - p * kPanel : kPanel;
      if (rows < kPanel || (format == Format::BF16 && k % 2)) std::memset(panel, 0, static_cast<size_t>(matrix.panel_bytes));
      pack(src + p * kPanel * row_bytes, row_bytes, rows, k, panel);
    }
  });
  return matrix;
}

size_t act_row_bytes(ActKind kind, int64_t k) {
  const int64_t bytes = kind == ActKind::F32 ? k * 4 : kind == ActKind::BF16 ? (k + 1) / 2 * 4 : k / kGroup * static_cast<int64_t>(sizeof(ActGroup));
  const int64_t lines = (bytes + 63) / 64;
  return static_cast<size_t>((kind == ActKind::BF16 ? lines | 1 : lines) * 64);
}

}  // namespace octavo
