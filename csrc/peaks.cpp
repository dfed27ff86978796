#include "octavo/peaks.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#if defined(OCTAVO_X86)
#include <immintrin.h>
#elif defined(OCTAVO_ARM)
#include <arm_neon.h>
#endif

namespace octavo {
namespace {

constexpr int64_t kReadWindow = 4 << 20;  // timed at once: short enough to run between two turns of a neighbour
constexpr int kChains = 12;  // independent sums, enough to hide an instruction's latency

// A loop of one instruction; `operations` a round.
struct Loop {
  void (*run)(int64_t rounds) = nullptr;
  double operations = 0;
};

// rounds x kChains times sums[i] = step(sums[i]). The empty statement keeps each sum in a register (C: its constraint).
#define OCTAVO_ROUNDS(C, step)                \
  for (; rounds > 0; --rounds) {              \
    for (auto& sum : sums) {                  \
      sum = step;                             \
      asm volatile("" : "+" C(sum));          \
    }                                         \
  }

#if defined(OCTAVO_X86)

[[gnu::target("avx512f"), gnu::optimize("O3")]] void f32_avx512(int64_t rounds) {
  __m512 sums[kChains] = {};
  const __m512 x = _mm512_set1_ps(0.5f);
  OCTAVO_ROUNDS("v", _mm512_fmadd_ps(x, x, sum))
}
[[gnu::target("avx512f,avx512bf16"), gnu::optimize("O3")]] void bf16_avx512(int64_t rounds) {
  __m512 sums[kChains] = {};
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));
  OCTAVO_ROUNDS("v", _mm512_dpbf16_ps(sum, x, x))
}
[[gnu::target("avx512f,avx512vnni"), gnu::optimize("O3")]] void int8_avx512(int64_t rounds) {
  __m512i sums[kChains] = {};
  const __m512i x = _mm512_set1_epi32(0x01010101);
  OCTAVO_ROUNDS("v", _mm512_dpbusd_epi32(sum, x, x))
}
[[gnu::target("avx2,fma"), gnu::optimize("O3")]] void f32_avx2(int64_t rounds) {
  __m256 sums[kChains] = {};
  const __m256 x = _mm256_set1_ps(0.5f);
  OCTAVO_ROUNDS("x", _mm256_fmadd_ps(x, x, sum))
}
[[gnu::target("avx2"), gnu::optimize("O3")]] void int8_avx2(int64_t rounds) {
  __m256i sums[kChains] = {};
  __m256i x = _mm256_set1_epi8(1);
  for (; rounds > 0; --rounds) {
    for (auto& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, x));
      asm volatile("" : "+x"(sum));
    }
  }
}
[[gnu::target("avxvnni"), gnu::optimize("O3")]] void int8_avxvnni(int64_t rounds) {
  __m256i sums[kChains] = {};
  const __m256i x = _mm256_set1_epi8(1);
  OCTAVO_ROUNDS("x", _mm256_dpbusd_avx_epi32(sum, x, x))
}
void bf16_amx(int64_t rounds) {  // four sums of 16 x 16, 32 products each
  struct alignas(64) {
    uint8_t palette = 1, rest[15] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  asm volatile("ldtilecfg %0" ::"m"(shapes));
  for (; rounds > 0; --rounds) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  }
  asm volatile("tilerelease" ::);
}

#elif defined(OCTAVO_ARM)

void f32_neon(int64_t rounds) {
  float32x4_t sums[kChains] = {};
  const float32x4_t x = vdupq_n_f32(0.5f);
  OCTAVO_ROUNDS("w", vfmaq_f32(sum, x, x))
}
[[gnu::target("arch=armv8.2-a+dotprod")]] void int8_neon(int64_t rounds) {
  int32x4_t sums[kChains] = {};
  const int8x16_t x = vdupq_n_s8(1);
  OCTAVO_ROUNDS("w", vdotq_s32(sum, x, x))
}
[[gnu::target("arch=armv8.2-a+i8mm")]] void int8_i8mm(int64_t rounds) {
  int32x4_t sums[kChains] = {};
  const int8x16_t x = vdupq_n_s8(1);
  OCTAVO_ROUNDS("w", vmmlaq_s32(sum, x, x))
}

#endif

#if defined(__SSE2__)
#define OCTAVO_ANY_REGISTER "x"
#elif defined(__aarch64__)
#define OCTAVO_ANY_REGISTER "w"
#else
#define OCTAVO_ANY_REGISTER "m"
#endif

void f32_portable(int64_t rounds) {
  using Four = float __attribute__((vector_size(16)));
  Four sums[kChains] = {}, x = {0.5f, 0.5f, 0.5f, 0.5f};
  for (; rounds > 0; --rounds) {
    for (auto& sum : sums) {
      asm volatile("" : "+" OCTAVO_ANY_REGISTER(x));
      sum = x * x + sum;
      asm volatile("" : "+" OCTAVO_ANY_REGISTER(sum));
    }
  }
}
void int8_portable(int64_t rounds) {  // as 16 bits
  using Eight = int16_t __attribute__((vector_size(16)));
  Eight sums[kChains] = {}, x = {1, 1, 1, 1, 1, 1, 1, 1};
  for (; rounds > 0; --rounds) {
    for (auto& sum : sums) {
      asm volatile("" : "+" OCTAVO_ANY_REGISTER(x));
      sum = x * x + sum;
      asm volatile("" : "+" OCTAVO_ANY_REGISTER(sum));
    }
  }
}

Loop f32_loop(Isa isa) {
  switch (isa) {
#if defined(OCTAVO_X86)
    case Isa::Avx2:
    case Isa::AvxVnni: return {f32_avx2, kChains * 16};
    case Isa::Avx512:
    case Isa::Amx: return {f32_avx512, kChains * 32};
#elif defined(OCTAVO_ARM)
    case Isa::Neon:
    case Isa::I8mm: return {f32_neon, kChains * 8};
#endif
    default: return {f32_portable, kChains * 8};
  }
}

Loop bf16_loop([[maybe_unused]] Isa isa) {
#if defined(OCTAVO_X86)
  if (isa == Isa::Avx512) return {bf16_avx512, kChains * 64};
  if (isa == Isa::Amx) return {bf16_amx, 4 * 2 * 16 * 16 * 32};
#endif
  return {};
}

Loop int8_loop(Isa isa) {
  switch (isa) {
#if defined(OCTAVO_X86)
    case Isa::Avx2: return {int8_avx2, kChains * 64};
    case Isa::AvxVnni: return {int8_avxvnni, kChains * 64};
    case Isa::Avx512:
    case Isa::Amx: return {int8_avx512, kChains * 128};
#elif defined(OCTAVO_ARM)
    case Isa::Neon: return {int8_neon, kChains * 32};
    case Isa::I8mm: return {int8_i8mm, kChains * 64};
#endif
    default: return {int8_portable, kChains * 16};
  }
}

template <class F>
double seconds_of(F&& f) {
  const auto began = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// The shortest of some runs.
template <class F>
double fastest(F&& f, int runs) {
  double best = seconds_of(f);
  for (int i = 1; i < runs; ++i) best = std::min(best, seconds_of(f));
  return best;
}

using Line = uint64_t __attribute__((vector_size(64)));

uint64_t sum_of(const Line* lines, int64_t count) {
  Line sums[4] = {};
  for (int64_t i = 0; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) {
      __builtin_prefetch(lines + std::min(i + j + 64, count - 1));
      sums[j] += lines[i + j];
    }
  }
  const Line all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return all[0] + all[1] + all[2] + all[3] + all[4] + all[5] + all[6] + all[7];
}

}  // namespace

double peak_operations(Device& device, Isa isa, Peak peak) {
  const Loop loop = peak == Peak::F32 ? f32_loop(isa) : peak == Peak::Bf16 ? bf16_loop(isa) : int8_loop(isa);
  if (loop.run == nullptr) return 0;
  constexpr double long_enough = 2e-3;  // seconds
  int64_t rounds = 1024;
  const auto on_all = [&] { device.pool.for_each(device.pool.size(), [&](int64_t, int) { loop.run(rounds); }); };
  while (seconds_of(on_all) < long_enough) rounds *= 2;
  return loop.operations * static_cast<double>(rounds) * device.pool.size() / fastest(on_all, 9);
}

double peak_read(Device& device, int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::memset(memory, 1, static_cast<size_t>(bytes));  // a page that nobody wrote is the one zero page
  const auto* lines = static_cast<const Line*>(memory);
  const int64_t window = std::min(bytes, kReadWindow) / static_cast<int64_t>(sizeof(Line)), windows = bytes / std::min(bytes, kReadWindow);
  const Cut cut = Cut::of(window, 8 * device.pool.size());
  double seconds = 1;
  for (int64_t i = 0; i < 3 * windows; ++i) {
    const Line* first = lines + i % windows * window;
    seconds = std::min(seconds, seconds_of([&] {
      device.pool.for_each(cut.pieces, [&](int64_t piece, int) {
        uint64_t sum = sum_of(first + cut.begin(piece), cut.begin(piece + 1) - cut.begin(piece));
        asm volatile("" : "+r"(sum));
      });
    }));
  }
  munmap(memory, static_cast<size_t>(bytes));
  return static_cast<double>(window * static_cast<int64_t>(sizeof(Line))) / seconds;
}

}  // namespace octavo
