// A mixture of experts: which experts a row takes (route_row), and their MLPs (ExpertsWork).
//
// Rows are sorted by expert, so that each expert's matrices meet all of its rows at once; a pair of a row and one of its experts is
// a pick. A row's bits depend on that row alone: products do not feel the other rows of an expert, and a row's picks are summed in
// the order of the experts.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/kernels.h"

namespace octavo {

// How experts are chosen: the `picks` best of the `groups_kept` best of `groups` equal groups.
struct Routing {
  int64_t experts, picks;
  bool is_sigmoid;  // scores: sigmoid of the logits, else their softmax
  int64_t groups, groups_kept;
  bool by_two_best;  // a group is worth the sum of its two best scores, else its best one
  bool normalize;    // the weights of a row's picks are divided by their sum
  float scaling;     // then multiplied by this
};

// Throws std::invalid_argument when the numbers do not go together.
void check_routing(const Routing& routing);

// weights [experts] of one row: those of its picks, else 0. bias (or null) is added to the scores for the choice alone. Equal scores: the
// lower expert. NaN among the logits makes NaN of the weights of all picks.
void route_row(const Routing& routing, const float* logits, const float* bias, float* weights);

// The matrices of one layer's experts: gate and up [inner, hidden], down [hidden, inner].
struct Experts {
  std::vector<PackedMatrix> gate, up, down;
  int64_t picks;  // a row's, at most
  Activation activation;

  int64_t count() const { return static_cast<int64_t>(gate.size()); }
  int64_t hidden() const { return gate[0].k; }
  int64_t inner() const { return gate[0].n; }
};

// Takes matrices that hold those of all experts one after another. Throws std::invalid_argument when shapes do not fit or an expert's
// rows are no whole panels.
Experts make_experts(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down, int64_t count, int64_t picks, Activation activation);

// The experts of one layer on the rows of a step, in stages of pieces: sort, prepare, gate and up, prepare, down, sum.
class ExpertsWork {
 public:
  static constexpr int kStages = 6;
  static int64_t bytes(const Experts& experts, int64_t rows);
  static int64_t pieces(const Experts& experts, int stage, int64_t rows, int threads);

  // x, out [rows, hidden]; weights [rows, count], of at most `picks` that are not 0 a row; memory: bytes(experts, rows), 64-byte aligned.
  ExpertsWork(const Experts& experts, const float* x, const float* weights, int64_t rows, int threads, float* out, uint8_t* memory);
  void work(const KernelTable& kernels, int stage, int64_t piece) const;

 private:
  void sort() const;
  void multiply_inner(const KernelTable& kernels, int64_t piece) const;
  void multiply_down(const KernelTable& kernels, int64_t piece) const;
  void sum(int64_t begin, int64_t end) const;

  const Experts& experts_;
  const float *x_, *weights_;
  const int64_t rows_;
  const int threads_;
  float* out_;
  int32_t* start_;      // [count + 1]: of each expert's picks
  int32_t* row_of_;     // [picks]
  int32_t* pick_of_;    // [rows, picks of a row], by expert; -1: none
  float* share_of_;     // [picks]: its weight
  uint8_t *act_, *inner_act_;
  float *gate_, *up_, *result_;
};

}  // namespace octavo
