#define ORRERY_ISA 0
#include "executor/kernels/loops_body.hpp"

namespace orrery::host {

extern const Loops kScalarLoops;
const Loops kScalarLoops = kLoops;

}  // namespace orrery::host
