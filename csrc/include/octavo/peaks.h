// What this machine can do at most, measured: products whose operands stay in registers, and reading memory once. All threads of
// the device at once; the fastest of a few short runs.
#pragma once

#include <cstdint>

#include "octavo/device.h"

namespace octavo {

enum class Peak : uint8_t { F32, Bf16, Int8 };

// Operations a second (a product and its sum: two) with the widest instruction that `isa` has for it; 0 if it has none.
double peak_operations(Device& device, Isa isa, Peak peak);

// Bytes a second of a walk through `bytes` of memory, 4 MiB at a time, the fastest: beyond the last cache it is what the DRAM
// gives. Throws std::bad_alloc.
double peak_read(Device& device, int64_t bytes);

}  // namespace octavo
