// Memory in large pages where the system has them (Linux, transparent huge pages): a step walks through hundreds of megabytes,
// and with pages of 4 KiB the walks for their addresses take as long as the reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo {

// An anonymous mapping of zeros, backed on first touch and given back when it dies. Throws std::bad_alloc.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  uint8_t* mapping_;
  uint8_t* data_;  // from here on pages may be large
  size_t mapped_bytes_, bytes_;
};

// `bytes` of zeros, 64-byte aligned, for what lives about as long as its neighbours (a model's weights): pieces are cut one after
// another from shared mappings, each of which dies with the last of its pieces. Throws std::bad_alloc.
std::shared_ptr<uint8_t[]> allocate_piece(size_t bytes);

}  // namespace octavo
