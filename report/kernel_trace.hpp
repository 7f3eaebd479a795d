#pragma once
// A trace of kernels that ui.perfetto.dev and chrome://tracing open: a track for each stream.

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "model/program.hpp"

namespace orrery {

struct KernelTrace {
  // A kernel, copy or fill.
  struct Kernel {
    std::string name;
    std::int32_t instruction = -1;  // Of the role; −1: of none that is known.
    std::uint32_t stream = 0;       // The device's number.
    std::int64_t start_ns = 0, end_ns = 0;
  };
  std::string device;           // "NVIDIA H200"
  std::vector<Kernel> kernels;  // By start.
};

// Kernels of an instruction stand on its stream, others on a track of the device's stream. Kernels that
// overlap on one stream are laid side by side. REQUIRES: instructions are those of `role`.
void write_kernel_trace(std::ostream& out, const Program& program, const Role& role,
                        const KernelTrace& trace);

}  // namespace orrery
