#include "octavo/batch.h"

#include <stdexcept>
#include <string>

namespace octavo {
namespace {

void must(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

void check_in(const char* what, int64_t value, int64_t limit) {
  if (value < 0 || value >= limit) {
    throw std::invalid_argument(std::string(what) + " " + std::to_string(value) + " is out of range: 0.." + std::to_string(limit - 1));
  }
}

}  // namespace

void check_ids(const char* what, const int32_t* ids, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) check_in(what, ids[i], limit);
}

void check_whole_rows(const Batch& batch) {
  for (int64_t r = 0; r < batch.num_rows; ++r) must(batch.positions[batch.query_start[r]] == 0, "a row must be whole: its first position is 0");
}

namespace {

void check_rows(const Batch& batch) {
  must(batch.query_start[0] == 0 && batch.query_start[batch.num_rows] == batch.num_tokens, "query_start must begin at 0 and end at the number of tokens");
  for (int64_t r = 0; r < batch.num_rows; ++r) {
    const int64_t begin = batch.query_start[r], end = batch.query_start[r + 1];
    must(begin < end && end <= batch.num_tokens, "query_start: every row needs at least one token");
    const int64_t start = batch.positions[begin];
    must(start >= 0, "a position is negative");
    for (int64_t t = begin; t < end; ++t) must(batch.positions[t] == start + t - begin, "the positions of a row must be consecutive");
    must(batch.context_len[r] == start + end - begin, "context_len must be the row's last position + 1");
  }
  check_ids("sample row", batch.sample_rows, batch.num_samples, batch.num_tokens);
}

void check_blocks(const Batch& batch, const KvCache& kv) {
  for (int64_t r = 0; r < batch.num_rows; ++r) {
    const int64_t blocks = (batch.context_len[r] + kv.block_size - 1) / kv.block_size;
    must(blocks <= batch.group_width(), "block_table is too narrow for a row's context");
    for (int64_t g = 0; g < batch.num_groups; ++g) check_ids("block id", batch.blocks(r, g), blocks, kv.num_blocks);
  }
  const int64_t slots = kv.num_blocks * kv.block_size;
  for (int64_t i = 0; i < batch.num_groups * batch.num_tokens; ++i) check_in("slot", batch.slot_mapping[i], slots);
}

}  // namespace

void check_batch(const Batch& batch, const KvCache& kv) {
  check_rows(batch);
  if (kv.num_layers > 0) check_blocks(batch, kv);
}

}  // namespace octavo
