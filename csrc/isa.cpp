// Which instruction sets this CPU and its system offer. A CPU feature counts only if the system saves the registers that it
// needs (XGETBV), else using them would corrupt other threads' numbers.
#include <cstdint>

#include "octavo/kernels.h"

#if defined(OCTAVO_X86)
#include <cpuid.h>
#endif

namespace octavo {

namespace portable {
extern const KernelTable kernel_table;
}
#if defined(OCTAVO_X86)
namespace avx2 {
extern const KernelTable kernel_table;
}
namespace avx512 {
extern const KernelTable kernel_table;
}
#endif

namespace {

#if defined(OCTAVO_X86)
struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// The register states that the system saves: bit 1 xmm, 2 ymm, 5 to 7 zmm and masks.
uint32_t saved_states() {
  if ((cpuid(1, 0).c >> 27 & 1) == 0) return 0;  // no OSXSAVE: XGETBV would fault
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

bool has_avx2() {
  constexpr uint32_t fma = 1u << 12, f16c = 1u << 29, avx2 = 1u << 5, ymm = 6;
  return has(cpuid(1, 0).c, fma | f16c) && has(cpuid(7, 0).b, avx2) && has(saved_states(), ymm);
}

bool has_avx512() {
  constexpr uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11, bf16 = 1u << 5, zmm = 0xe6;
  return has_avx2() && has(cpuid(7, 0).b, f | dq | bw | vl) && has(cpuid(7, 0).c, vnni) && has(cpuid(7, 1).a, bf16) && has(saved_states(), zmm);
}
#endif

}  // namespace

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::Portable: return true;
#if defined(OCTAVO_X86)
    case Isa::Avx2: return has_avx2();
    case Isa::Avx512: return has_avx512();
#endif
    default: return false;
  }
}

Isa best_isa() {
  Isa best = Isa::Portable;
  for (const Isa isa : kIsas) {
    if (isa_available(isa)) best = isa;
  }
  return best;
}

const KernelTable& kernel_table(Isa isa) {
  switch (isa) {
#if defined(OCTAVO_X86)
    case Isa::Avx2: return avx2::kernel_table;
    case Isa::Avx512: return avx512::kernel_table;
#endif
    default: return portable::kernel_table;
  }
}

}  // namespace octavo
