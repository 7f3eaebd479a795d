#define ORRERY_ISA 1
#include "executor/kernels/loops_body.hpp"

namespace orrery::host {

extern const Loops kAvx2Loops;
const Loops kAvx2Loops = kLoops;

}  // namespace orrery::host
