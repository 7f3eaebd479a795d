#pragma once
// What programs that measure have alike.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

#include "executor/cuda/checks.hpp"

namespace orrery::test {

inline void check(cudaError_t error) { cuda::check(error, "measuring"); }

// The program's exit status: 5 after an error, which it prints behind the program's name.
template <class Measure>
int speed_main(const char* name, Measure measure) {
  try {
    measure();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 5;
  }
}

}  // namespace orrery::test
