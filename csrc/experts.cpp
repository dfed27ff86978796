#include "octavo/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "octavo/thread_pool.h"

namespace octavo {
namespace {

constexpr int64_t kPiecesPerThread = 8;

void must(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("experts: ") + message);
}

// The `count` largest of the values, in any order; of equal ones the first.
void mark_largest(const std::vector<double>& values, int64_t count, std::vector<bool>& marked) {
  for (int64_t taken = 0; taken < count; ++taken) {
    size_t best = values.size();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!marked[i] && (best == values.size() || values[i] > values[best])) best = i;
    }
    marked[best] = true;
  }
}

double worth(const Routing& routing, const double* scores, int64_t size) {
  double best = -INFINITY, second = -INFINITY;
  for (int64_t i = 0; i < size; ++i) {
    if (scores[i] > best) {
      second = best;
      best = scores[i];
    } else if (scores[i] > second) {
      second = scores[i];
    }
  }
  return routing.by_two_best ? best + second : best;
}

std::vector<PackedMatrix> split(const PackedMatrix& whole, int64_t parts) {
  must(whole.n % (parts * kPanel) == 0, "the rows of an expert's matrix must be a multiple of 16");
  std::vector<PackedMatrix> matrices;
  for (int64_t part = 0; part < parts; ++part) {
    PackedMatrix matrix = whole;
    matrix.n = whole.n / parts;
    matrix.num_bytes = whole.num_bytes / static_cast<size_t>(parts);
    matrix.data = std::shared_ptr<uint8_t[]>(whole.data, whole.data.get() + part * matrix.panels() * whole.panel_bytes);
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

// Places one after another, each on a line of its own.
class Places {
 public:
  explicit Places(uint8_t* memory) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    uint8_t* place = memory_ + taken_;
    taken_ += (count * static_cast<int64_t>(sizeof(T)) + 127) / 64 * 64;  // kernels may read a line past the end
    return reinterpret_cast<T*>(place);
  }
  int64_t taken() const { return taken_; }

 private:
  uint8_t* memory_;
  int64_t taken_ = 0;
};

// Panels of one expert's matrix are cut into so many pieces, that a single row's experts keep all threads busy.
int64_t cuts(const Experts& experts, const PackedMatrix& matrix, int threads) {
  return std::clamp((kPiecesPerThread * threads + experts.picks - 1) / experts.picks, int64_t{1}, matrix.panels());
}

}  // namespace

void check_routing(const Routing& r) {
  must(r.experts > 0 && r.experts <= 4096 && r.picks > 0 && r.picks <= r.experts, "a row picks at least one of at most 4,096 experts");
  must(r.groups > 0 && r.experts % r.groups == 0 && r.groups_kept > 0 && r.groups_kept <= r.groups, "groups must be of equal size, and some kept");
  must(!r.by_two_best || r.experts / r.groups > 1, "groups that are judged by their two best must have two");
  must(r.picks <= r.experts / r.groups * r.groups_kept, "the groups that are kept hold fewer experts than a row picks");
}

void route_row(const Routing& routing, const float* logits, const float* bias, float* weights) {
  const auto count = static_cast<size_t>(routing.experts);
  std::vector<double> scores(count), choice(count);
  const double top = *std::max_element(logits, logits + count);
  for (size_t e = 0; e < count; ++e) {
    const double x = logits[e];
    scores[e] = routing.is_sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - top);
  }
  const double total = routing.is_sigmoid ? 1 : std::accumulate(scores.begin(), scores.end(), 0.0);
  bool is_nan = std::isnan(total);
  for (size_t e = 0; e < count; ++e) {
    scores[e] /= total;
    is_nan |= std::isnan(scores[e]);
    choice[e] = scores[e] + (bias == nullptr ? 0 : static_cast<double>(bias[e]));
  }
  const auto size = static_cast<size_t>(routing.experts / routing.groups);
  std::vector<double> worths;
  for (size_t g = 0; g < count; g += size) worths.push_back(worth(routing, choice.data() + g, static_cast<int64_t>(size)));
  std::vector<bool> kept(worths.size(), false), picked(count, false);
  mark_largest(worths, routing.groups_kept, kept);
  std::vector<double> open;  // the experts of the groups that are kept
  std::vector<size_t> expert;
  for (size_t e = 0; e < count; ++e) {
    if (kept[e / size]) open.push_back(choice[e]), expert.push_back(e);
  }
  std::vector<bool> marked(open.size(), false);
  mark_largest(open, routing.picks, marked);
  double sum = 0;
  for (size_t i = 0; i < open.size(); ++i) {
    if (marked[i]) picked[expert[i]] = true, sum += scores[expert[i]];
  }
  const double factor = static_cast<double>(routing.scaling) / (routing.normalize ? sum + 1e-20 : 1);
  for (size_t e = 0; e < count; ++e) weights[e] = !picked[e] ? 0 : is_nan ? NAN : static_cast<float>(scores[e] * factor);
}

Experts make_experts(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down, int64_t count, int64_t picks, Activation activation) {
  must(count > 0 && count <= 4096 && picks > 0 && picks <= count, "a row picks at least one of at most 4,096 experts");
  must(gate.n == up.n && gate.k == up.k && gate.act == up.act, "gate and up must be alike");
  must(down.n == count * gate.k && count * down.k == gate.n, "down does not fit gate");
  return {split(gate, count), split(up, count), split(down, count), picks, activation};
}

ExpertsWork::ExpertsWork(const Experts& experts, const float* x, const float* weights, int64_t rows, int threads, float* out, uint8_t* memory)
    : experts_(experts), x_(x), weights_(weights), rows_(rows), threads_(threads), out_(out) {
  Places places(memory);
  const int64_t picks = rows * experts.picks;
  start_ = places.take<int32_t>(experts.count() + 1);
  row_of_ = places.take<int32_t>(picks);
  pick_of_ = places.take<int32_t>(picks);
  share_of_ = places.take<float>(picks);
  act_ = places.take<uint8_t>(picks * static_cast<int64_t>(act_row_bytes(experts.gate[0].act, experts.hidden())));
  inner_act_ = places.take<uint8_t>(picks * static_cast<int64_t>(act_row_bytes(experts.down[0].act, experts.inner())));
  gate_ = places.take<float>(picks * experts.inner());
  up_ = places.take<float>(picks * experts.inner());
  result_ = places.take<float>(picks * experts.hidden());
}

int64_t ExpertsWork::bytes(const Experts& experts, int64_t rows) {
  const int64_t picks = rows * experts.picks;
  Places places(nullptr);
  places.take<int32_t>(experts.count() + 1);
  for (int i = 0; i < 3; ++i) places.take<int32_t>(picks);
  places.take<uint8_t>(picks * static_cast<int64_t>(act_row_bytes(experts.gate[0].act, experts.hidden())));
  places.take<uint8_t>(picks * static_cast<int64_t>(act_row_bytes(experts.down[0].act, experts.inner())));
  for (int i = 0; i < 2; ++i) places.take<float>(picks * experts.inner());
  places.take<float>(picks * experts.hidden());
  return places.taken();
}

int64_t ExpertsWork::pieces(const Experts& experts, int stage, int64_t rows, int threads) {
  if (rows == 0) return 0;
  switch (stage) {
    case 0: return 1;
    case 1:
    case 3: return Cut::of(rows * experts.picks, kPiecesPerThread * threads).pieces;
    case 2: return experts.count() * cuts(experts, experts.gate[0], threads);
    case 4: return experts.count() * cuts(experts, experts.down[0], threads);
    default: return Cut::of(rows, kPiecesPerThread * threads).pieces;
  }
}

void ExpertsWork::work(const KernelTable& kernels, int stage, int64_t piece) const {
  const Cut by_row = Cut::of(rows_, kPiecesPerThread * threads_), by_pick = Cut::of(rows_ * experts_.picks, kPiecesPerThread * threads_);
  const auto last = [&] { return std::min<int64_t>(by_pick.begin(piece + 1), start_[experts_.count()]); };
  const PackedMatrix &gate = experts_.gate[0], &down = experts_.down[0];
  switch (stage) {
    case 0: return sort();
    case 1:
      for (int64_t i = by_pick.begin(piece); i < last(); ++i) {
        kernels.prepare_act(gate.act, x_ + row_of_[i] * gate.k, gate.k, 1, gate.k, act_ + i * static_cast<int64_t>(act_row_bytes(gate.act, gate.k)));
      }
      return;
    case 2: return multiply_inner(kernels, piece);
    case 3:
      for (int64_t i = by_pick.begin(piece); i < last(); ++i) {
        kernels.prepare_act(down.act, gate_ + i * down.k, down.k, 1, down.k, inner_act_ + i * static_cast<int64_t>(act_row_bytes(down.act, down.k)));
      }
      return;
    case 4: return multiply_down(kernels, piece);
    default: return sum(by_row.begin(piece), by_row.begin(piece + 1));
  }
}

void ExpertsWork::sort() const {
  const int64_t count = experts_.count();
  std::fill(start_, start_ + count + 1, 0);
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t e = 0; e < count; ++e) start_[e + 1] += weights_[r * count + e] != 0;
  }
  std::partial_sum(start_, start_ + count + 1, start_);
  std::vector<int32_t> next(start_, start_ + count);
  for (int64_t r = 0; r < rows_; ++r) {
    int32_t* picks = pick_of_ + r * experts_.picks;
    int64_t found = 0;
    for (int64_t e = 0; e < count; ++e) {
      const float weight = weights_[r * count + e];
      if (weight == 0) continue;
      const int32_t pick = next[static_cast<size_t>(e)]++;
      row_of_[pick] = static_cast<int32_t>(r);
      share_of_[pick] = weight;
      picks[found++] = pick;
    }
    std::fill(picks + found, picks + experts_.picks, -1);
  }
}

void ExpertsWork::multiply_inner(const KernelTable& kernels, int64_t piece) const {
  const int64_t parts = cuts(experts_, experts_.gate[0], threads_), e = piece / parts, first = start_[e], rows = start_[e + 1] - first;
  if (rows == 0) return;
  const PackedMatrix &gate = experts_.gate[static_cast<size_t>(e)], &up = experts_.up[static_cast<size_t>(e)];
  const Cut panels{gate.panels(), parts};
  const int64_t begin = panels.begin(piece % parts), end = panels.begin(piece % parts + 1), inner = gate.n;
  const uint8_t* act = act_ + first * static_cast<int64_t>(act_row_bytes(gate.act, gate.k));
  float *gates = gate_ + first * inner, *ups = up_ + first * inner;
  kernels.linear(gate, act, rows, nullptr, nullptr, gates, inner, begin, end);
  kernels.linear(up, act, rows, nullptr, nullptr, ups, inner, begin, end);
  const int64_t at = begin * kPanel, width = (end - begin) * kPanel;
  kernels.gated(experts_.activation, gates + at, inner, ups + at, inner, rows, width, gates + at, inner);
}

void ExpertsWork::multiply_down(const KernelTable& kernels, int64_t piece) const {
  const int64_t parts = cuts(experts_, experts_.down[0], threads_), e = piece / parts, first = start_[e], rows = start_[e + 1] - first;
  if (rows == 0) return;
  const PackedMatrix& down = experts_.down[static_cast<size_t>(e)];
  const Cut panels{down.panels(), parts};
  kernels.linear(down, inner_act_ + first * static_cast<int64_t>(act_row_bytes(down.act, down.k)), rows, nullptr, nullptr, result_ + first * down.n, down.n,
                 panels.begin(piece % parts), panels.begin(piece % parts + 1));
}

void ExpertsWork::sum(int64_t begin, int64_t end) const {
  const int64_t hidden = experts_.hidden();
  for (int64_t r = begin; r < end; ++r) {
    float* out = out_ + r * hidden;
    std::fill(out, out + hidden, 0.0f);
    for (int64_t i = 0; i < experts_.picks; ++i) {
      const int32_t pick = pick_of_[r * experts_.picks + i];
      if (pick < 0) break;
      const float *result = result_ + pick * hidden, share = share_of_[pick];
      for (int64_t d = 0; d < hidden; ++d) out[d] += share * result[d];
    }
  }
}

}  // namespace octavo
