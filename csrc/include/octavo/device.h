// What every operation needs: threads, and the kernels of one ISA.
#pragma once

#include "octavo/kernels.h"
#include "octavo/thread_pool.h"

namespace octavo {

struct Device {
  Device(int threads, Isa isa) : kernels(kernel_table(isa)), pool(threads) {}

  const KernelTable& kernels;
  ThreadPool pool;
};

}  // namespace octavo
