#include "executor/kernels/isa.hpp"

namespace orrery::host {

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "";
}

bool available([[maybe_unused]] Isa isa) {
#ifdef __x86_64__
  // What loops_avx2.cpp and loops_avx512.cpp are compiled for (cmake/kernels.cmake).
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == Isa::kAvx2) return avx2;
  if (isa == Isa::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::kScalar;
}

Isa best_isa() {
  static const Isa kBest = available(Isa::kAvx512) ? Isa::kAvx512
                           : available(Isa::kAvx2) ? Isa::kAvx2
                                                   : Isa::kScalar;
  return kBest;
}

}  // namespace orrery::host
