#include "executor/kernels/loops.hpp"

#include <cassert>

namespace orrery::host {

extern const Loops kScalarLoops, kAvx2Loops,
    kAvx512Loops;  // loops_scalar.cpp, loops_avx2.cpp, loops_avx512.cpp

const Loops& loops(Isa isa) {
  assert(available(isa));
  switch (isa) {
    case Isa::kAvx2: return kAvx2Loops;
    case Isa::kAvx512: return kAvx512Loops;
    case Isa::kScalar: break;
  }
  return kScalarLoops;
}

}  // namespace orrery::host
