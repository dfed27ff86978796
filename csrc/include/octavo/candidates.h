// A list of ids that may still be drawn, and the filters that must see the list as a whole. The definitions are those of
// octavo.ops.interface.SamplingBatch; a filter leaves at least one candidate. Weights are relative: e^(logit - max).
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

struct Candidate {
  int32_t id;
  float logit, weight;
};

using Candidates = std::vector<Candidate>;

void keep_typical(Candidates& candidates, double typical_p);
void keep_most_likely(Candidates& candidates, double top_p);
void exclude_top_choices(Candidates& candidates, double threshold);  // XTC

// Returns the first id, in id order, whose cumulative weight exceeds u times the total.
int32_t draw(Candidates& candidates, double u);

}  // namespace octavo
