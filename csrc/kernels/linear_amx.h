// 16 lanes in AVX-512, and AMX tiles: 16 rows of a product's result at once. Tile numbers are fixed at compile time; each
// kernel says what its tiles hold and gives them back (tiles that hold something make every switch of threads dearer).
#pragma once

#include "linear_avx512.h"

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int64_t kTileRows = 16;

struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t num_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

// In assembler because GCC's own spell the tile's number as the source does, and hide from the compiler that memory is read.
inline void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
inline void release_tiles() { asm volatile("tilerelease"); }
template <int Tile>
[[gnu::always_inline]] inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
}
template <int Tile>
[[gnu::always_inline]] inline void load_tile(const void* p, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
[[gnu::always_inline]] inline void store_tile(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
}
// Sum += X times Y: rows of X times pairs of Y's columns.
template <int Sum, int X, int Y>
[[gnu::always_inline]] inline void add_bf16_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sum), "i"(X), "i"(Y));
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
