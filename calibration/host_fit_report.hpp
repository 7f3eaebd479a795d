#pragma once
// What a calibration of processors found, for people.

#include <string>

#include "calibration/host_fit.hpp"

namespace orrery {

// Transfers, rates of kinds of kernels, and how far fits are off where they weren't fitted, worst first.
// `file`: where the profile was written.
std::string to_table(const HostFit& fit, const std::string& file);

}  // namespace orrery
