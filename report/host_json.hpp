#pragma once
// Imported machines for other tools.

#include <string>
#include <vector>

#include "topology/import/host.hpp"

namespace orrery {

// {"hosts": […], "notes": […]}, indented. Rates in bytes per second, PCI classes and ids as "0x030200"; what
// is not known is null. Equal imports give equal texts.
std::string host_json(const HostImport& import);

}  // namespace orrery
