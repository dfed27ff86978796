// Which instruction sets this CPU and its system offer. A CPU feature counts only if the system saves the registers that it
// needs (XGETBV), else using them would corrupt other threads' numbers.
#include <cstdint>

#include "octavo/kernels.h"

#if defined(OCTAVO_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(OCTAVO_ARM)
#include <sys/auxv.h>
#endif

namespace octavo {

// Tables of csrc/kernels/table.cpp, products of csrc/kernels/products.cpp.
namespace portable {
extern const KernelTable kernel_table;
}
#if defined(OCTAVO_X86)
namespace avx2 {
extern const KernelTable kernel_table;
}
namespace avxvnni {
void set_products(KernelTable& table);
}
namespace avx512 {
extern const KernelTable kernel_table;
}
namespace amx {
extern const KernelTable kernel_table;
}
#elif defined(OCTAVO_ARM)
namespace neon {
extern const KernelTable kernel_table;
}
namespace i8mm {
void set_products(KernelTable& table);
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

bool has_avxvnni() {
  constexpr uint32_t avxvnni = 1u << 4;
  return has_avx2() && has(cpuid(7, 1).a, avxvnni);
}

bool has_avx512() {
  constexpr uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11, bf16 = 1u << 5, zmm = 0xe6;
  return has_avx2() && has(cpuid(7, 0).b, f | dq | bw | vl) && has(cpuid(7, 0).c, vnni) && has(cpuid(7, 1).a, bf16) && has(saved_states(), zmm);
}

// Tile registers are an extended state that Linux gives to a process only on request.
bool is_granted_tiles() {
  constexpr int request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_amx() {
  constexpr uint32_t bf16 = 1u << 22, tile = 1u << 24, tiles = 3u << 17;
  return has_avx512() && has(cpuid(7, 0).d, bf16 | tile) && has(saved_states(), tiles) && is_granted_tiles();
}
#elif defined(OCTAVO_ARM)
bool has_neon() { return (getauxval(AT_HWCAP) >> 20 & 1) != 0; }                // ASIMDDP: dot products of bytes
bool has_i8mm() { return has_neon() && (getauxval(AT_HWCAP2) >> 13 & 1) != 0; }  // I8MM: products of matrices of bytes
#endif

// `base` with the products of another ISA.
KernelTable with(const KernelTable& base, void (*set_products)(KernelTable&)) {
  KernelTable table = base;
  set_products(table);
  return table;
}

}  // namespace

bool isa_available(Isa isa) {
  switch (isa) {
    case Isa::Portable: return true;
#if defined(OCTAVO_X86)
    case Isa::Avx2: return has_avx2();
    case Isa::AvxVnni: return has_avxvnni();
    case Isa::Avx512: return has_avx512();
    case Isa::Amx: return has_amx();
#elif defined(OCTAVO_ARM)
    case Isa::Neon: return has_neon();
    case Isa::I8mm: return has_i8mm();
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
#if defined(OCTAVO_X86)
  static const KernelTable avxvnni_table = with(avx2::kernel_table, avxvnni::set_products);
#elif defined(OCTAVO_ARM)
  static const KernelTable i8mm_table = with(neon::kernel_table, i8mm::set_products);
#endif
  switch (isa) {
#if defined(OCTAVO_X86)
    case Isa::Avx2: return avx2::kernel_table;
    case Isa::AvxVnni: return avxvnni_table;
    case Isa::Avx512: return avx512::kernel_table;
    case Isa::Amx: return amx::kernel_table;
#elif defined(OCTAVO_ARM)
    case Isa::Neon: return neon::kernel_table;
    case Isa::I8mm: return i8mm_table;
#endif
    default: return portable::kernel_table;
  }
}

}  // namespace octavo
