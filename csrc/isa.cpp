#include "octavo/kernels.h"

namespace octavo {

namespace portable { extern const KernelTable table; }
#if defined(OCTAVO_X86)
namespace avx2 { extern const KernelTable table; }
namespace avx512 { extern const KernelTable table; }
#endif

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::Portable: return true;
#if defined(OCTAVO_X86)
    case Isa::Avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::Avx512: return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl");
#endif
    default: return false;
  }
}

Isa best_isa() { return isa_available(Isa::Avx512) ? Isa::Avx512 : isa_available(Isa::Avx2) ? Isa::Avx2 : Isa::Portable; }

const KernelTable& kernel_table(Isa isa) {
#if defined(OCTAVO_X86)
  if (isa == Isa::Avx512) return avx512::table;
  if (isa == Isa::Avx2) return avx2::table;
#endif
  return portable::table;
}

}  // namespace octavo
