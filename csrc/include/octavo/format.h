// How a tensor's numbers lie in a model file. The numbers of the enum are ours; block layouts are GGUF's.
#pragma once

#include <cstdint>

namespace octavo {

enum class Format : uint8_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct FormatInfo {
  const char* label;
  int64_t block_values;
  int64_t block_bytes;
};

constexpr FormatInfo format_info(Format format) {
  switch (format) {
    case Format::F32: return {"f32", 1, 4};
    case Format::F16: return {"f16", 1, 2};
    case Format::BF16: return {"bf16", 1, 2};
    case Format::Q4_0: return {"q4_0", 32, 18};
    case Format::Q4_1: return {"q4_1", 32, 20};
    case Format::Q5_0: return {"q5_0", 32, 22};
    case Format::Q5_1: return {"q5_1", 32, 24};
    case Format::Q8_0: return {"q8_0", 32, 34};
    case Format::Q4_K: return {"q4_k", 256, 144};
    case Format::Q5_K: return {"q5_k", 256, 176};
    case Format::Q6_K: return {"q6_k", 256, 210};
  }
  return {"?", 1, 1};
}

}  // namespace octavo
