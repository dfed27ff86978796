#include <algorithm>
#include <map>

#include "octavo/program.h"

namespace octavo {
namespace {

bool is_bare(const LinearOp& op) { return op.bias == nullptr && op.residual == kNone && op.heads == 1 && op.weight->n % kPanel == 0; }

bool is_alike(const PackedMatrix& a, const PackedMatrix& b) { return a.format == b.format && a.n == b.n && a.k == b.k; }

}  // namespace

std::vector<Operation> fuse_gated(std::vector<Operation> operations, TensorId output, const KernelTable& kernels) {
  std::map<TensorId, int> uses;
  uses[output] = 1;
  for (const Operation& operation : operations) {
    for (const TensorId id : inputs_of(operation)) ++uses[id];
  }
  for (size_t i = 0; i + 3 < operations.size(); ++i) {
    const auto* first = std::get_if<LinearOp>(&operations[i]);
    const auto* second = std::get_if<LinearOp>(&operations[i + 1]);
    const auto* gated = std::get_if<GatedOp>(&operations[i + 2]);
    const auto* prepare = std::get_if<PrepareOp>(&operations[i + 3]);
    if (first == nullptr || second == nullptr || gated == nullptr || prepare == nullptr) continue;
    const LinearOp &gate = first->out == gated->gate ? *first : *second, &up = first->out == gated->gate ? *second : *first;
    const bool is_chain = gate.out == gated->gate && up.out == gated->up && gate.out != up.out && gate.act == up.act && prepare->x == gated->out;
    const bool is_read_once = uses[gate.out] == 1 && uses[up.out] == 1 && uses[gated->out] == 1;
    const bool fits = is_bare(gate) && is_bare(up) && is_alike(*gate.weight, *up.weight) && gate.weight->act == kernels.quantised_act &&
                      prepare->kind == kernels.quantised_act && prepare->heads == 1;
    if (!is_chain || !is_read_once || !fits) continue;
    const GatedLinearOp fused{prepare->out, gate.act, gate.weight, up.weight, gated->activation};
    operations[i] = fused;
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i) + 1, operations.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  }
  return operations;
}

}  // namespace octavo
