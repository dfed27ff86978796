#include <cstring>
#include <limits>
#include <stdexcept>

#include "octavo/kernels.h"
#include "octavo/kv_cache.h"

namespace octavo {

KvMemory::KvMemory(KvCache shape) : cache_(shape) {
  constexpr int64_t slack = 64;
  constexpr int64_t limit = int64_t{1} << 46;
  if (shape.num_layers < 0 || shape.num_kv_heads < 1 || shape.num_blocks < 1) throw std::invalid_argument("KV memory needs heads and blocks");
  if (shape.head_dim < 2 || shape.head_dim > kMaxHeadDim || shape.head_dim % 2 != 0) {
    throw std::invalid_argument("KV memory: head_dim must be even and lie in 2..512");
  }
  if (shape.rotary_dim < 0 || shape.rotary_dim > kMaxRotaryDim || shape.rotary_dim % 2 != 0) {
    throw std::invalid_argument("KV memory: the rotary part of latent attention must be even and at most 128");
  }
  if (shape.is_latent() && (shape.num_kv_heads != 1 || shape.type == KvType::Int8)) {
    throw std::invalid_argument("KV memory: latent attention keeps one vector for all heads, in f16, bf16, f32, fp8_e4m3 or fp8_ds_mla");
  }
  if (shape.type == KvType::Fp8DsMla && (!shape.is_latent() || shape.head_dim % kLatentGroup != 0)) {
    throw std::invalid_argument("KV memory: fp8_ds_mla is of latents whose width is a multiple of 128");
  }
  if (shape.block_size < kTile || shape.block_size % kTile != 0 || shape.block_size > 4096) {
    throw std::invalid_argument("KV memory: block_size must be a multiple of 16, at most 4096");
  }
  int64_t bytes = (shape.is_latent() ? 1 : 2) * shape.tile_bytes() * shape.tiles();
  for (const int64_t count : {shape.num_kv_heads, shape.num_blocks, shape.num_layers}) {  // layers last: an encoder has none
    if (count > limit / bytes) throw std::invalid_argument("KV memory: more than 64 TiB asked");
    bytes *= count;
  }
  pages_ = std::make_unique<Pages>(static_cast<size_t>(bytes + slack));
  cache_.data = pages_->data();
}

uint8_t* KvMemory::block_at(int64_t block) const {
  if (block < 0 || block >= cache_.num_blocks) throw std::invalid_argument("KV memory: there is no such block");
  return cache_.data + block * cache_.block_bytes();
}

void KvMemory::read_block(int64_t block, uint8_t* to) const { std::memcpy(to, block_at(block), static_cast<size_t>(cache_.block_bytes())); }

void KvMemory::write_block(int64_t block, const uint8_t* from) { std::memcpy(block_at(block), from, static_cast<size_t>(cache_.block_bytes())); }

}  // namespace octavo
