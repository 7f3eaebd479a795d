// What a module of another build shows, and one that isn't ours.
#include "executor/device/module_entry.hpp"

#ifdef ORRERY_MODULE_BUILD
extern "C" __attribute__((visibility("default"))) const orrery::device::ModuleEntry orrery_device_module;
const orrery::device::ModuleEntry orrery_device_module = {ORRERY_MODULE_BUILD, nullptr, nullptr, nullptr};
#endif
