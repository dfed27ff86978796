// AMX tiles: 16 rows of a product's result at once, up to two blocks of rows with two of columns. Tile numbers are fixed at compile
// time: 0 .. 3 hold the sums of row block i and column block j in 2i + j, 4 and 5 rows, 6 and 7 columns. They are given back at the end
// of a kernel (tiles that hold something make every switch of threads dearer).
//
// The product adds the even and the odd k of a step of 32 apart and then both to the sum, so its bits are its own; a row's bits do not
// depend on the others in its tile.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace octavo::OCTAVO_ISA {
namespace {

constexpr int64_t kTileStep = 32;        // values of K of a product
constexpr int64_t kTileBytes = 1024;     // of 16 columns of a step: [16 pairs of k][16 columns][2] in bf16
constexpr int64_t kTileRows = 16;
constexpr int64_t kTiledRows = 2 * kTileRows;  // of a block of tiles

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
// Past the first-level cache, which keeps what it holds.
template <int Tile>
[[gnu::always_inline]] inline void pass_tile(const void* p, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(Tile) : "memory");
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

// Adds a step's products of M blocks of rows, `stride` bytes apart, with P blocks of columns, `apart` bytes apart.
template <int M, int P>
[[gnu::always_inline]] inline void add_tile_products(const uint8_t* x, int64_t stride, const uint8_t* w, int64_t apart) {
  load_tile<6>(w, 64);
  load_tile<4>(x, stride);
  add_bf16_product<0, 4, 6>();
  if constexpr (P == 2) {
    load_tile<7>(w + apart, 64);
    add_bf16_product<1, 4, 7>();
  }
  if constexpr (M == 2) {
    load_tile<5>(x + kTileRows * stride, stride);
    add_bf16_product<2, 5, 6>();
    if constexpr (P == 2) add_bf16_product<3, 5, 7>();
  }
}

// Writes the sums of M blocks of rows, ldo floats apart, and P blocks of columns to `out` and to `last`.
template <int M, int P>
[[gnu::always_inline]] inline void store_sums(float* out, float* last, int64_t ldo) {
  store_tile<0>(out, ldo * 4);
  if constexpr (P == 2) store_tile<1>(last, ldo * 4);
  if constexpr (M == 2) store_tile<2>(out + kTileRows * ldo, ldo * 4);
  if constexpr (M == 2 && P == 2) store_tile<3>(last + kTileRows * ldo, ldo * 4);
}

// The tiles of a call, shaped for blocks of rows as they come; given back at its end.
class Tiles {
 public:
  ~Tiles() { release_tiles(); }

  // Sums of zero for `count` rows in M row blocks.
  template <int M>
  void start(int64_t count) {
    if (count != rows_) return shape<M>(count);
    clear_tile<0>();
    clear_tile<1>();
    clear_tile<2>();
    clear_tile<3>();
  }

 private:
  template <int M>
  void shape(int64_t count) {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileRows, 64);
    const int64_t last = M == 2 ? count - kTileRows : count;  // rows of the last block
    for (int tile : M == 2 ? (const int[]){2, 3, 5} : (const int[]){0, 1, 4}) shapes.set(tile, last, 64);
    configure(shapes);
    rows_ = count;
  }

  int64_t rows_ = 0;  // that they are shaped for
};

template <int M>
struct RowBlocks {
  static constexpr int value = M;
};

// Calls f(first row, rows, the number of row blocks as a type) for up to two row blocks at a time.
template <class F>
inline void for_tiled_rows(int64_t rows, F&& f) {
  for (int64_t row = 0; row < rows; row += kTiledRows) {
    const int64_t rest = rows - row, count = rest < kTiledRows ? rest : kTiledRows;
    if (count > kTileRows) {
      f(row, count, RowBlocks<2>{});
    } else {
      f(row, count, RowBlocks<1>{});
    }
  }
}

}  // namespace
}  // namespace octavo::OCTAVO_ISA
