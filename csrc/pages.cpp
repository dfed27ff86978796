#include "octavo/pages.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

namespace octavo {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kSharedBytes = size_t{32} << 20;

}  // namespace

Pages::Pages(size_t bytes) : mapped_bytes_(bytes + kLargePage), bytes_(bytes) {
  if (bytes > SIZE_MAX - kLargePage) throw std::bad_alloc();
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<uint8_t*>(memory);
  data_ = mapping_ + (kLargePage - reinterpret_cast<uintptr_t>(mapping_) % kLargePage) % kLargePage;
#if defined(MADV_HUGEPAGE)
  madvise(data_, bytes, MADV_HUGEPAGE);  // advice: where it is refused, pages are small
#endif
}

Pages::~Pages() { munmap(mapping_, mapped_bytes_); }

std::shared_ptr<uint8_t[]> allocate_piece(size_t bytes) {
  static std::mutex callers;
  static std::weak_ptr<Pages> shared;
  static size_t used;
  const size_t rounded = (bytes + 63) / 64 * 64;
  std::lock_guard one(callers);
  std::shared_ptr<Pages> pages = shared.lock();
  if (pages == nullptr || pages->size() - used < rounded) {
    pages = std::make_shared<Pages>(rounded > kSharedBytes ? rounded : kSharedBytes);
    shared = pages;
    used = 0;
  }
  uint8_t* piece = pages->data() + used;
  used += rounded;
  return {pages, piece};
}

}  // namespace octavo
