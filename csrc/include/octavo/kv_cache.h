// KV memory of all layers: block pool storage, laid out for the attention kernels.
//
// A tile is 16 positions; a block is block_size / 16 tiles. Per layer: K of all blocks, then V of all blocks; within each,
// [block][kv_head][tile]. A tile of K in bf16 is [head_dim / 2][16 positions][2] (a line of 16 positions x a pair of
// dimensions: scores of 16 positions grow in one register, no horizontal sums). A tile of V in bf16 is
// [8 pairs of positions][head_dim][2]. f32: K [head_dim][16], V [16][head_dim].
//
// Tail rule: attention reads whole tiles of V and weighs positions past the context with 0, and 0 * NaN is NaN. So the
// step that writes a tile's first position leaves the positions that it does not fill zeroed.
#pragma once

#include <cstdint>
#include <memory>

namespace octavo {

enum class KvType : uint8_t { BF16, F32 };

constexpr int64_t kTile = 16;

struct KvCache {
  KvType type = KvType::BF16;
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, block_size = 16, num_blocks = 0;
  std::shared_ptr<uint8_t> data;  // zero pages, backed on first touch

  int64_t value_bytes() const { return type == KvType::BF16 ? 2 : 4; }
  int64_t tile_bytes() const { return kTile * head_dim * value_bytes(); }
  int64_t tiles() const { return block_size / kTile; }
  int64_t layer_bytes() const { return num_blocks * num_kv_heads * tiles() * tile_bytes(); }  // of K; V the same
  int64_t total_bytes() const { return 2 * num_layers * layer_bytes(); }

  uint8_t* k_tile(int64_t layer, int64_t block, int64_t kv_head, int64_t tile) const {
    return data.get() + 2 * layer * layer_bytes() + ((block * num_kv_heads + kv_head) * tiles() + tile) * tile_bytes();
  }
  uint8_t* v_tile(int64_t layer, int64_t block, int64_t kv_head, int64_t tile) const { return k_tile(layer, block, kv_head, tile) + layer_bytes(); }
};

}  // namespace octavo
