#pragma once
// Finds and loads the module that performs launches on GPUs.

#include <filesystem>
#include <memory>
#include <vector>

#include "executor/device/run_device.hpp"
#include "executor/runtime/backend.hpp"

namespace orrery::device {

// Where liborrery-cuda.so is looked for: ORRERY_MODULES (folders or files, colon separated), beside the
// program, in its lib and ../lib.
std::vector<std::filesystem::path> module_folders();

// Ranks on GPUs, one process each; rank r of a host is on its r-th. All of it but describe_ranks() THROWS
// Error(kRuntime) saying what is missing (the module, a driver, a library, a GPU) and how to mend it.
std::unique_ptr<host::Backend> cuda_backend(const DeviceRunOptions& options);
// What the module has found, for people. THROWS Error(kRuntime) where there is no module.
std::vector<std::string> module_report();

// $XDG_CACHE_HOME/orrery or ~/.cache/orrery; empty where there is no home.
std::string default_algorithm_cache();

}  // namespace orrery::device
