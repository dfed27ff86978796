// Cos and sin of rotary angles, computed once a step for the step's positions: a few microseconds a token, no table of the
// whole context, no limit on it. Frequencies come from octavo.ops.rotary, in float64.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

struct Rotary {
  std::vector<double> frequencies;  // radians a position, one a pair of dimensions
  double factor = 1.0;              // cos and sin are multiplied by it
  bool interleaved = false;

  int64_t pairs() const { return static_cast<int64_t>(frequencies.size()); }
  // table [count][2][pairs]: a row's cos, then its sin.
  void fill(const int32_t* positions, int64_t count, float* table) const;
};

}  // namespace octavo
