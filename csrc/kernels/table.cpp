// The kernels of one ISA: compiled once for each, with OCTAVO_ISA naming it. No std:: template and no inline function with
// external linkage may be instantiated here, or the linker could choose the copy compiled for a wider ISA for everyone.
#include "attention.inc"
#include "elementwise.inc"
#include "kv_store.inc"
#include "linear.inc"
#include "octavo/kernels.h"
#include "sampling.inc"
#include "whole_attention.inc"

namespace octavo::OCTAVO_ISA {

#define OCTAVO_STRING_OF(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_OF(x)

extern const KernelTable kernel_table;
const KernelTable kernel_table = {
    .isa = OCTAVO_STRING(OCTAVO_ISA),
    .quantised_act = kQuantisedAct,
    .prepare_act = prepare_act,
    .linear = linear,
    .gated_linear = gated_linear,
    .embed = embed,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .activate = activate,
    .gated = gated,
    .add = add,
    .rope = rope,
    .store_kv = store_kv,
    .attention = attention,
    .attention_segment = attention_segment,
    .attention_fold = attention_fold,
    .whole_attention = whole_attention,
    .chunk_maxima = chunk_maxima,
    .ids_at_least = ids_at_least,
    .exp_weights = exp_weights,
    .divide = divide,
};

}  // namespace octavo::OCTAVO_ISA
