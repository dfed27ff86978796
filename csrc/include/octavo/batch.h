// One step as arrays: octavo.ops.interface.Batch, by pointer. Row r owns tokens query_start[r] .. query_start[r + 1] - 1.
#pragma once

#include <cstdint>

#include "octavo/kv_cache.h"

namespace octavo {

struct Batch {
  int64_t num_tokens = 0, num_rows = 0, num_samples = 0;
  int64_t num_groups = 1;                 // layer groups, each with blocks of its own
  int64_t table_width = 0;                // entries a row of block_table: those of group 0, then of group 1, ...
  const int32_t* token_ids = nullptr;     // [num_tokens]
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* query_start = nullptr;   // [num_rows + 1]
  const int32_t* context_len = nullptr;   // [num_rows]
  const int32_t* block_table = nullptr;   // [num_rows, table_width]
  const int64_t* slot_mapping = nullptr;  // [num_groups, num_tokens]
  const int32_t* sample_rows = nullptr;   // [num_samples]
  const int32_t* token_types = nullptr;   // [num_tokens], or null where no model asks for them

  int64_t group_width() const { return table_width / num_groups; }
  const int32_t* blocks(int64_t row, int64_t group) const { return block_table + row * table_width + group * group_width(); }
  const int64_t* slots(int64_t group) const { return slot_mapping + group * num_tokens; }
};

// Throws std::invalid_argument unless the rows cut the tokens, a row's positions are consecutive and end at its context, its
// blocks and slots lie in the cache (one of no layers is not looked at) and sample_rows in the tokens. After it no kernel reads
// or writes out of bounds.
void check_batch(const Batch& batch, const KvCache& kv);

// Throws std::invalid_argument unless every row begins at position 0, as attention over whole rows needs.
void check_whole_rows(const Batch& batch);

// Throws std::invalid_argument unless all ids lie in [0, limit).
void check_ids(const char* what, const int32_t* ids, int64_t count, int64_t limit);

}  // namespace octavo
