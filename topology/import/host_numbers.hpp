#pragma once
// Numbers for GPUs and network ports whose source gives none.

#include "topology/import/host.hpp"

namespace orrery {

// Those whose index is negative get the smallest free numbers in the order of their bus ids, as the driver
// numbers them; then all are sorted by number. Return whether any lacked one.
bool number_gpus(Host& host);
bool number_nics(Host& host);

}  // namespace orrery
