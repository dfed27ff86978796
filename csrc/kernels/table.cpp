// The kernels of one ISA. Built once an ISA with its compiler flags and OCTAVO_ISA its name. Everything here and in the
// included files has internal linkage or lies in the ISA's namespace: code built for a rich machine must never be what the
// linker picks for a poor one.
#include "linear.inc"

namespace octavo::OCTAVO_ISA {

#define OCTAVO_TEXT_(name) #name
#define OCTAVO_TEXT(name) OCTAVO_TEXT_(name)

extern const KernelTable table;
const KernelTable table = [] {
  KernelTable result{};
  result.isa = OCTAVO_TEXT(OCTAVO_ISA);
  result.prepare_act = prepare_act;
  result.linear = linear;
  result.embed = embed;
  return result;
}();

}  // namespace octavo::OCTAVO_ISA
