// Every instruction set of this machine has its peaks: the loops run, and give figures that a machine can have.
#include <cstdio>

#include "octavo/peaks.h"

using namespace octavo;

int main() {
  int failures = 0;
  const auto check = [&](const char* isa, const char* what, double per_second, bool may_lack) {
    const bool fine = (may_lack && per_second == 0) || (per_second > 1e6 && per_second < 1e16);
    if (!fine) std::printf("%s: %s is %g a second\n", isa, what, per_second);
    failures += !fine;
  };
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    Device device(2, isa);
    check(device.kernels.isa, "f32", peak_operations(device, isa, Peak::F32), false);
    check(device.kernels.isa, "bf16", peak_operations(device, isa, Peak::Bf16), true);
    check(device.kernels.isa, "int8", peak_operations(device, isa, Peak::Int8), false);
    check(device.kernels.isa, "reading", peak_read(device, 1 << 20), false);
    std::printf("%s: ok\n", device.kernels.isa);
  }
  return failures != 0;
}
