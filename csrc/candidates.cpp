#include "octavo/candidates.h"

#include <algorithm>
#include <cmath>

namespace octavo {
namespace {

bool is_more_likely(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

double total_weight(const Candidates& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += static_cast<double>(candidate.weight);
  return total;
}

// Drops all but the first candidates that hold `share` of the weight together.
void keep_first(Candidates& candidates, double share) {
  const double needed = share * total_weight(candidates);
  double reached = 0;
  size_t kept = 0;
  while (kept < candidates.size() && reached < needed) reached += static_cast<double>(candidates[kept++].weight);
  candidates.resize(std::max<size_t>(kept, 1));
}

}  // namespace

void keep_typical(Candidates& candidates, double typical_p) {
  const double total = total_weight(candidates), log_total = std::log(total);
  const float max = std::max_element(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; })->logit;
  const auto surprise = [&](const Candidate& c) { return log_total - (static_cast<double>(c.logit) - static_cast<double>(max)); };
  double entropy = 0;
  for (const Candidate& c : candidates) entropy += static_cast<double>(c.weight) * surprise(c);
  entropy /= total;
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const double far_a = std::abs(surprise(a) - entropy), far_b = std::abs(surprise(b) - entropy);
    return far_a != far_b ? far_a < far_b : is_more_likely(a, b);
  });
  keep_first(candidates, typical_p);
}

void keep_most_likely(Candidates& candidates, double top_p) {
  std::sort(candidates.begin(), candidates.end(), is_more_likely);
  keep_first(candidates, top_p);
}

void exclude_top_choices(Candidates& candidates, double threshold) {
  const double needed = threshold * total_weight(candidates);
  const auto begin_rest = std::partition(candidates.begin(), candidates.end(), [&](const Candidate& c) { return static_cast<double>(c.weight) >= needed; });
  if (begin_rest == candidates.begin()) return;
  const Candidate stays = *std::max_element(candidates.begin(), begin_rest, is_more_likely);  // the least likely of them
  candidates.erase(candidates.begin(), begin_rest);
  candidates.push_back(stays);
}

int32_t draw(Candidates& candidates, double u) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (!std::is_sorted(candidates.begin(), candidates.end(), by_id)) std::sort(candidates.begin(), candidates.end(), by_id);
  const double total = total_weight(candidates);
  double reached = 0;
  int32_t last = candidates.front().id;  // with a weight: rounding may carry u * total up to the total
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) continue;
    last = candidate.id;
    reached += static_cast<double>(candidate.weight);
    if (reached > u * total) break;
  }
  return last;
}

}  // namespace octavo
