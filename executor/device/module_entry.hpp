#pragma once
// What a module offers under the name kModuleEntryName. Program and module are of one build: types go through
// as they are.

#include <memory>
#include <string>
#include <vector>

#include "executor/device/device.hpp"

namespace orrery::device {

struct ModuleEntry {
  const char* build = nullptr;  // The version, which has to be the program's.
  // Devices that can be used; `why` says what is missing where there are none, and how to mend it.
  int (*device_count)(std::string& why) = nullptr;
  // THROWS Error(kRuntime) naming the library or device that can't be used.
  std::unique_ptr<Device> (*open)(int index) = nullptr;
  // What was found of the libraries, and where; or what was tried.
  std::vector<std::string> (*libraries)() = nullptr;
};

// The version of a build: types may differ between any two.
#ifdef ORRERY_BUILD
inline constexpr const char* kBuild = ORRERY_BUILD;
#endif

inline constexpr const char* kModuleEntryName = "orrery_device_module";

}  // namespace orrery::device
