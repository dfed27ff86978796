// The products of an ISA that adds instructions for them to another one; that one's table gives the rest. As in table.cpp, nothing
// with external linkage but the function at the end.
#include "linear.inc"

namespace octavo::OCTAVO_ISA {

#define OCTAVO_STRING_OF(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_OF(x)

void set_products(KernelTable& table);
void set_products(KernelTable& table) {
  table.isa = OCTAVO_STRING(OCTAVO_ISA);
  table.quantised_act = kQuantisedAct;
  table.prepare_act = prepare_act;
  table.linear = linear;
  table.gated_linear = gated_linear;
  table.embed = embed;
}

}  // namespace octavo::OCTAVO_ISA
