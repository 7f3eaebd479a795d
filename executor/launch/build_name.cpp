// What makes two builds of orrery the same, or not. ORRERY_VERSION comes from CMakeLists.txt.
#include <fmt/format.h>

#include "executor/launch/handshake.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {

std::string build_name() {
  std::string switches;
#ifdef NDEBUG
  switches += " asserts off";
#endif
#ifdef __OPTIMIZE__
  switches += " optimized";
#endif
#ifdef __FAST_MATH__
  switches += " fast math";
#endif
#ifdef __FMA__
  switches += " fma";
#endif
#ifdef __AVX2__
  switches += " avx2";
#endif
#ifdef __AVX512F__
  switches += " avx512";
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  switches += " sanitized";
#endif
  const std::string text = fmt::format("{} {}{} {}-byte pointers", ORRERY_VERSION, __VERSION__, switches, sizeof(void*));
  return fmt::format("{} (build {:016x})", ORRERY_VERSION, hash_of(text));
}

}  // namespace orrery::launch
