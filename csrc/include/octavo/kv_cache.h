// KV memory of all layers: block pool storage, laid out for the attention kernels.
//
// A tile is 16 positions; a block is block_size / 16 tiles. Memory is [block][layer][K, V][kv_head][tile]: a block is one run of bytes, and
// a short context touches few large pages (with layers outermost, its first position would touch two of 2 MiB for each layer).
// A tile of K in bf16 is [head_dim / 2][16 positions][2] (a line of 16 positions x a pair of
// dimensions: scores of 16 positions grow in one register, no horizontal sums). A tile of V in bf16 is
// [8 pairs of positions][head_dim][2]. All others: K [head_dim][16], V [16][head_dim]; int8 is followed by the float32 scales of the
// 16 positions: a value is its scale times -127..127. fp8_e4m3 has no scale: values beyond 448 become 448.
//
// Latent attention (rotary_dim > 0) keeps one vector a position, of head_dim + rotary_dim numbers: all of it is K, its first
// head_dim numbers are V as well. Its tiles are those of K; there are none of V. fp8_ds_mla is a type of it alone: the latent in fp8 with a float32
// scale for 128 numbers, the rotary part in bf16: [head_dim][16] fp8, [head_dim / 128][16] scales, then as a tile of K in bf16.
//
// Stale slots: a freed block keeps its old numbers. Attention lets no value of a position past a row's end (or before its
// window) into the row: scores there are replaced by -inf, and V there is masked or not read. 64 bytes of slack end the
// memory, since a kernel may load a whole line at V's last dimensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "octavo/pages.h"

namespace octavo {

enum class KvType : uint8_t { F16, BF16, F32, Fp8E4M3, Int8, Fp8DsMla };

constexpr int64_t kTile = 16;

[[gnu::always_inline]] constexpr int64_t bytes_of_value(KvType type) { return type == KvType::F32 ? 4 : type == KvType::F16 || type == KvType::BF16 ? 2 : 1; }

constexpr int64_t kLatentGroup = 128;  // numbers of a latent that share a scale in fp8_ds_mla

struct KvCache {
  KvType type = KvType::F16;
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, block_size = 16, num_blocks = 0;
  int64_t rotary_dim = 0;   // of latent attention, else 0
  uint8_t* data = nullptr;  // owned by KvMemory; zero pages, backed on first touch

  [[gnu::always_inline]] bool is_latent() const { return rotary_dim > 0; }
  [[gnu::always_inline]] int64_t key_dim() const { return head_dim + rotary_dim; }
  [[gnu::always_inline]] int64_t value_bytes() const { return bytes_of_value(type); }
  [[gnu::always_inline]] int64_t scale_bytes() const { return type == KvType::Int8 ? 4 : 0; }  // of a vector of K or V
  [[gnu::always_inline]] int64_t vector_bytes() const {  // of K, or of a latent with its rotary part
    return type == KvType::Fp8DsMla ? head_dim + head_dim / kLatentGroup * 4 + 2 * rotary_dim : key_dim() * value_bytes() + scale_bytes();
  }
  [[gnu::always_inline]] int64_t tile_bytes() const { return kTile * vector_bytes(); }
  [[gnu::always_inline]] int64_t tiles() const { return block_size / kTile; }
  [[gnu::always_inline]] int64_t v_offset() const { return is_latent() ? 0 : num_kv_heads * tiles() * tile_bytes(); }  // from a tile of K to that of V
  [[gnu::always_inline]] int64_t layer_bytes() const { return num_kv_heads * tiles() * tile_bytes() + v_offset(); }     // of a block
  [[gnu::always_inline]] int64_t block_bytes() const { return num_layers * layer_bytes(); }
  [[gnu::always_inline]] int64_t total_bytes() const { return num_blocks * block_bytes(); }

  [[gnu::always_inline]] uint8_t* k_tile(int64_t layer, int64_t block, int64_t kv_head, int64_t tile) const {
    return data + block * block_bytes() + layer * layer_bytes() + (kv_head * tiles() + tile) * tile_bytes();
  }
  [[gnu::always_inline]] uint8_t* v_tile(int64_t layer, int64_t block, int64_t kv_head, int64_t tile) const {
    return k_tile(layer, block, kv_head, tile) + v_offset();
  }
};

// The memory behind a KvCache: an anonymous mapping, so that blocks that were never used cost nothing.
class KvMemory {
 public:
  // Throws std::invalid_argument on sizes that make no cache, std::bad_alloc when the system will not map it.
  explicit KvMemory(KvCache shape);
  KvMemory(const KvMemory&) = delete;
  KvMemory& operator=(const KvMemory&) = delete;

  const KvCache& cache() const { return cache_; }

  // Copy block_bytes() of one block, all layers. Throw std::invalid_argument for an id out of range.
  void read_block(int64_t block, uint8_t* to) const;
  void write_block(int64_t block, const uint8_t* from);

 private:
  uint8_t* block_at(int64_t block) const;

  KvCache cache_;
  std::unique_ptr<Pages> pages_;
};

}  // namespace octavo
