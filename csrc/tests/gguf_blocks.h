// Ground truth for the tests: GGUF blocks made of random numbers, and what they stand for, written as the format's
// definition says and with nothing of ours.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/format.h"

namespace octavo_test {

using octavo::Format;

inline float float_of_half(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double magnitude = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  return static_cast<float>(half & 0x8000 ? -magnitude : magnitude);
}

inline float half_at(const uint8_t* p) { return float_of_half(static_cast<uint16_t>(p[0] | p[1] << 8)); }

inline void dequantise_block(Format format, const uint8_t* block, float* out) {
  const auto low_high = [](const uint8_t* quants, int i) { return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4; };
  const auto bit = [](const uint8_t* bits, int i) { return bits[i / 8] >> i % 8 & 1; };
  const auto k_scale = [&](int j) { return j < 4 ? block[4 + j] & 63 : (block[8 + j] & 15) | (block[j] >> 6) << 4; };
  const auto k_minimum = [&](int j) { return j < 4 ? block[8 + j] & 63 : (block[8 + j] >> 4) | (block[4 + j] >> 6) << 4; };
  switch (format) {
    case Format::F32: std::memcpy(out, block, 4); return;
    case Format::F16: out[0] = half_at(block); return;
    case Format::BF16: {
      const uint32_t bits = static_cast<uint32_t>(block[0] | block[1] << 8) << 16;
      std::memcpy(out, &bits, 4);
      return;
    }
    case Format::Q4_0:
      for (int i = 0; i < 32; ++i) out[i] = half_at(block) * static_cast<float>(low_high(block + 2, i) - 8);
      return;
    case Format::Q4_1:
      for (int i = 0; i < 32; ++i) out[i] = half_at(block) * static_cast<float>(low_high(block + 4, i)) + half_at(block + 2);
      return;
    case Format::Q5_0:
      for (int i = 0; i < 32; ++i) out[i] = half_at(block) * static_cast<float>(low_high(block + 6, i) + 16 * bit(block + 2, i) - 16);
      return;
    case Format::Q5_1:
      for (int i = 0; i < 32; ++i) {
        out[i] = half_at(block) * static_cast<float>(low_high(block + 8, i) + 16 * bit(block + 4, i)) + half_at(block + 2);
      }
      return;
    case Format::Q8_0:
      for (int i = 0; i < 32; ++i) out[i] = half_at(block) * static_cast<float>(static_cast<int8_t>(block[2 + i]));
      return;
    case Format::Q4_K:
    case Format::Q5_K: {
      const uint8_t* quants = block + (format == Format::Q4_K ? 16 : 48);
      for (int i = 0; i < 256; ++i) {
        const int group = i / 32, byte = quants[i / 64 * 32 + i % 32];
        int quant = group % 2 ? byte >> 4 : byte & 15;
        if (format == Format::Q5_K) quant += (block[16 + i % 32] >> group & 1) * 16;
        out[i] = half_at(block) * static_cast<float>(k_scale(group)) * static_cast<float>(quant) -
                 half_at(block + 2) * static_cast<float>(k_minimum(group));
      }
      return;
    }
    case Format::Q6_K:
      for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
        const int low = block[half * 64 + quarter % 2 * 32 + l] >> quarter / 2 * 4 & 15;
        const int high = block[128 + half * 32 + l] >> quarter * 2 & 3;
        const int scale = static_cast<int8_t>(block[192 + half * 8 + quarter * 2 + l / 16]);
        out[i] = half_at(block + 208) * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
      }
      return;
  }
}

// A matrix in the file's format whose values are of the order of one tenth and of both signs.
inline std::vector<uint8_t> random_blocks(Format format, int64_t values, std::mt19937& random) {
  const octavo::FormatInfo info = octavo::format_info(format);
  std::vector<uint8_t> bytes(static_cast<size_t>(values / info.block_values * info.block_bytes));
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto put_half = [&](uint8_t* p, int exponent) {  // +-2^exponent * 1.xx
    const uint32_t half = (random() & 0x83ff) | static_cast<uint32_t>(exponent + 15) << 10;
    p[0] = static_cast<uint8_t>(half);
    p[1] = static_cast<uint8_t>(half >> 8);
  };
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes)) {
    uint8_t* block = &bytes[at];
    switch (format) {
      case Format::F32: {
        const float value = std::normal_distribution<float>(0, 0.1f)(random);
        std::memcpy(block, &value, 4);
        break;
      }
      case Format::F16: put_half(block, -static_cast<int>(random() % 8)); break;
      case Format::BF16: block[1] = static_cast<uint8_t>((random() & 0x80) | 0x3d); break;
      case Format::Q4_1:
      case Format::Q5_1: put_half(block + 2, -3); [[fallthrough]];
      case Format::Q4_0:
      case Format::Q5_0: put_half(block, -6); break;
      case Format::Q8_0: put_half(block, -10); break;
      case Format::Q4_K:
      case Format::Q5_K: put_half(block, -11); put_half(block + 2, -9); break;
      case Format::Q6_K: put_half(block + 208, -14); break;
    }
  }
  return bytes;
}

inline std::vector<float> dequantise(Format format, const std::vector<uint8_t>& bytes) {
  const octavo::FormatInfo info = octavo::format_info(format);
  const size_t blocks = bytes.size() / static_cast<size_t>(info.block_bytes);
  std::vector<float> values(blocks * static_cast<size_t>(info.block_values));
  for (size_t b = 0; b < blocks; ++b) {
    dequantise_block(format, &bytes[b * static_cast<size_t>(info.block_bytes)], &values[b * static_cast<size_t>(info.block_values)]);
  }
  return values;
}

}  // namespace octavo_test
