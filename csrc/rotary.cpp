#include "octavo/rotary.h"

#include <cmath>

namespace octavo {

void Rotary::fill(const int32_t* positions, int64_t count, float* table) const {
  for (int64_t r = 0; r < count; ++r) {
    float* cos = table + r * 2 * pairs();
    float* sin = cos + pairs();
    for (int64_t i = 0; i < pairs(); ++i) {
      const double angle = static_cast<double>(positions[r]) * frequencies[static_cast<size_t>(i)];
      cos[i] = static_cast<float>(std::cos(angle) * factor);
      sin[i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
}

}  // namespace octavo
