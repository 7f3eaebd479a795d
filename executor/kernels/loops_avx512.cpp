#define ORRERY_ISA 2
#include "executor/kernels/loops_body.hpp"

namespace orrery::host {

extern const Loops kAvx512Loops;
const Loops kAvx512Loops = kLoops;

}  // namespace orrery::host
