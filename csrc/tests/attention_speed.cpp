// Speed of attention at the shapes of SmolLM2-135M, Qwen2.5-Coder-0.5B and 1.5B: GFLOP/s of a prompt's chunk of 512 rows (only
// the products that a causal row needs count) and their share of the float32 peak; GB/s of K and V of one decoded row, of
// requests in turn that are larger than the caches together, and their share of what plain reads reach. Peak and reads are measured in the
// same run; every figure is of the fastest of several passes.
//
//   attention_speed [kv dtype] [isa] [cpu]     kv dtype: f16 (default), bf16, f32; isa: portable, avx2, avx512; cpu: by CPU time
//                                              a thread, which others on the machine disturb less
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "octavo/attention_plan.h"
#include "octavo/device.h"
#include "octavo/eager.h"

using namespace octavo;

namespace {

bool by_cpu_time = false;

double now(const ThreadPool& pool) {
  if (by_cpu_time) {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)) / pool.size();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of at least 3 passes, until 0.4 s are spent.
template <class F>
double fastest(const ThreadPool& pool, F&& pass) {
  double best = 1e9, total = 0;
  for (int i = 0; i < 3 || (total < 0.4 && i < 40); ++i) {
    const double start = now(pool);
    pass();
    const double seconds = now(pool) - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

constexpr int64_t kChains = 12, kSteps = 1 << 19;

#if defined(__x86_64__)
// Independent chains of fma, enough to cover the latency of two units. By name of register: GCC 12 keeps an array in memory.
#define OCTAVO_FMA(i) "vfmadd213ps %%" OCTAVO_REGISTERS "15, %%" OCTAVO_REGISTERS "15, %%" OCTAVO_REGISTERS #i "\n\t"
#define OCTAVO_CHAINS                                                                                                     \
  "vbroadcastss %0, %%" OCTAVO_REGISTERS "15\n\t" OCTAVO_FMA(0) OCTAVO_FMA(1) OCTAVO_FMA(2) OCTAVO_FMA(3) OCTAVO_FMA(4) \
      OCTAVO_FMA(5) OCTAVO_FMA(6) OCTAVO_FMA(7) OCTAVO_FMA(8) OCTAVO_FMA(9) OCTAVO_FMA(10) OCTAVO_FMA(11)
#define OCTAVO_CLOBBERED "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm15"
void run_chains(Isa isa) {
  const float half = 0.5f;
#define OCTAVO_REGISTERS "zmm"
  if (isa == Isa::Avx512) {
    for (int64_t i = 0; i < kSteps; ++i) asm volatile(OCTAVO_CHAINS : : "m"(half) : OCTAVO_CLOBBERED);
    return;
  }
#undef OCTAVO_REGISTERS
#define OCTAVO_REGISTERS "ymm"
  for (int64_t i = 0; i < kSteps; ++i) asm volatile(OCTAVO_CHAINS : : "m"(half) : OCTAVO_CLOBBERED);
}
#endif

// GFLOP/s of float32 fma on all threads of the pool; 0 where the ISA has none.
double peak_gigaflops(ThreadPool& pool, Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Portable) return 0;
  const int64_t lanes = isa == Isa::Avx512 ? 16 : 8;
  const double seconds = fastest(pool, [&] { pool.for_each(pool.size(), [&](int64_t, int) { run_chains(isa); }); });
  return static_cast<double>(pool.size()) * 2.0 * static_cast<double>(lanes * kChains * kSteps) / seconds * 1e-9;
#else
  return 0;
#endif
}

// GB/s of plain sequential reads, all threads.
double read_gigabytes(ThreadPool& pool, const uint8_t* data, int64_t bytes) {
  constexpr int64_t piece = 1 << 20;
  std::vector<uint64_t> sums(static_cast<size_t>(bytes / piece));
  const double seconds = fastest(pool, [&] {
    pool.for_each(bytes / piece, [&](int64_t i, int) {
      typedef uint64_t Words [[gnu::vector_size(64)]];
      Words sum = {};
      const uint8_t* p = data + i * piece;
      for (int64_t b = 0; b < piece; b += 64) {
        Words w;
        std::memcpy(&w, p + b, 64);
        sum += w;
      }
      sums[static_cast<size_t>(i)] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    });
  });
  return static_cast<double>(bytes) / seconds * 1e-9;
}

struct Shape {
  const char* name;
  int64_t kv_heads, group, head_dim;
};

// `count` requests of `context` positions, in blocks of random order; steps of the last `rows` positions of each, in turn.
class Requests {
 public:
  Requests(const Shape& shape, KvType type, int64_t layers, int64_t context, int64_t count, Device& device)
      : shape_(shape), context_(context), count_(count), memory_(cache_of(shape, type, layers, context * count)) {
    std::mt19937 random(1);
    const KvCache& kv = memory_.cache();
    table_.resize(static_cast<size_t>(context * count / kv.block_size));
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), random);
    for (int64_t p = 0; p < context * count; ++p) slots_.push_back(table_[static_cast<size_t>(p / kv.block_size)] * kv.block_size + p % kv.block_size);
    std::normal_distribution<float> normal;
    const int64_t width = shape.kv_heads * shape.head_dim;
    std::vector<float> values(static_cast<size_t>(context * width));
    for (float& value : values) value = normal(random);
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t r = 0; r < count; ++r) eager::store_kv(device, kv, layer, values.data(), values.data(), context, slots_.data() + r * context);
    }
    q_.resize(values.size() * static_cast<size_t>(shape.group));
    for (float& value : q_) value = normal(random);
    out_.resize(q_.size());
  }

  const KvCache& kv() const { return memory_.cache(); }

  // Seconds of such a step of all requests, through all layers.
  double time_step(Device& device, int64_t rows) {
    std::vector<int32_t> ids(static_cast<size_t>(rows)), positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(context_ - rows));
    const int32_t query_start[2] = {0, static_cast<int32_t>(rows)}, context_len = static_cast<int32_t>(context_);
    const int threads = device.pool.size();
    std::vector<AttentionPlan> plans;
    for (int64_t r = 0; r < count_; ++r) {
      Batch batch;
      batch.num_tokens = rows;
      batch.num_rows = 1;
      batch.table_width = context_ / kv().block_size;
      batch.token_ids = ids.data();
      batch.positions = positions.data();
      batch.query_start = query_start;
      batch.context_len = &context_len;
      batch.block_table = table_.data() + r * batch.table_width;
      batch.slot_mapping = slots_.data() + (r + 1) * context_ - rows;
      plans.emplace_back(batch, kv(), 0, shape_.group, INT64_MAX, INT64_MAX, threads);
    }
    std::vector<uint8_t> scratch(static_cast<size_t>(threads * kAttentionScratchBytes));
    std::vector<float> states(kSplitBytes / 4);
    std::vector<Stage> work(plans.size() * static_cast<size_t>(kv().num_layers)), fold(work.size());
    return fastest(device.pool, [&] {
      for (size_t i = 0; i < work.size(); ++i) work[i].reset(plans[0].num_pieces()), fold[i].reset(plans[0].num_folds());
      device.pool.run([&](int thread) {
        uint8_t* own = scratch.data() + thread * kAttentionScratchBytes;
        for (size_t i = 0; i < work.size(); ++i) {
          const AttentionPlan& plan = plans[i % plans.size()];
          const AttentionPlan::Layer layer{static_cast<int64_t>(i / plans.size()), q_.data(), nullptr, out_.data(), 0.125f};
          work[i].work([&](int64_t piece) { plan.work(device.kernels, kv(), layer, piece, own, states.data()); });
          fold[i].work([&](int64_t piece) { plan.fold(device.kernels, kv(), layer, piece, own, states.data()); });
        }
      });
    });
  }

 private:
  static KvCache cache_of(const Shape& shape, KvType type, int64_t layers, int64_t positions) {
    KvCache kv;
    kv.type = type;
    kv.num_layers = layers;
    kv.num_kv_heads = shape.kv_heads;
    kv.head_dim = shape.head_dim;
    kv.num_blocks = 1 + positions / kv.block_size;
    return kv;
  }

  const Shape shape_;
  const int64_t context_, count_;
  KvMemory memory_;
  std::vector<int32_t> table_;
  std::vector<int64_t> slots_;
  std::vector<float> q_, out_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string dtype = argc > 1 ? argv[1] : "f16";
  const KvType type = dtype == "f32" ? KvType::F32 : dtype == "bf16" ? KvType::BF16 : KvType::F16;
  Isa isa = best_isa();
  for (Isa candidate : kIsas) {
    if (argc > 2 && isa_available(candidate) && std::strcmp(argv[2], kernel_table(candidate).isa) == 0) isa = candidate;
  }
  by_cpu_time = argc > 3 && std::strcmp(argv[3], "cpu") == 0;
  const Shape shapes[] = {{"SmolLM2-135M", 3, 3, 64}, {"Qwen2.5-Coder-0.5B", 2, 7, 64}, {"Qwen2.5-Coder-1.5B", 2, 6, 128}};

  for (int threads = 1; threads <= std::max(2, usable_cpus()); threads *= 2) {
    Device device(threads, isa);
    const double peak = peak_gigaflops(device.pool, isa);
    std::printf("%s, %s, %d threads: float32 peak %.0f GFLOP/s\n", kernel_table(isa).isa, dtype.c_str(), threads, peak);
    std::printf("  %-20s chunk of 512 at    512          1536          2048          8192\n  %-20s", "", "");
    std::printf("               GFLOP/s (share of the peak)\n");
    for (const Shape& shape : shapes) {
      std::printf("  %-20s", shape.name);
      for (int64_t context : {512, 1536, 2048, 8192}) {
        Requests requests(shape, type, 1, context, 1, device);
        const double seen = 512.0 * static_cast<double>(context) - 511.0 * 512.0 / 2.0;
        const double gigaflops = 4.0 * static_cast<double>(shape.kv_heads * shape.group * shape.head_dim) * seen / requests.time_step(device, 512) * 1e-9;
        std::printf("  %6.0f (%3.0f%%)", gigaflops, peak > 0 ? 100 * gigaflops / peak : 0);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
    std::printf("  %-20s one row at        4096\n  %-20s               GB/s (share of plain reads)\n", "", "");
    for (const Shape& shape : shapes) {
      std::printf("  %-20s            ", shape.name);
      for (int64_t context : {4096}) {
        const int64_t layers = 24, bytes = context * shape.kv_heads * shape.head_dim * 2 * (type == KvType::F32 ? 4 : 2);
        const int64_t count = (int64_t{1} << 30) / (bytes * layers);
        Requests requests(shape, type, layers, context, count, device);
        const double gigabytes = static_cast<double>(bytes * layers * count) / requests.time_step(device, 1) * 1e-9;
        const double reads = read_gigabytes(device.pool, requests.kv().data, requests.kv().total_bytes());
        std::printf("  %6.1f (%3.0f%%)", gigabytes, 100 * gigabytes / reads);
        std::fflush(stdout);
      }
      std::printf("\n");
    }
  }
}
