#pragma once
// Which vector instructions the kernels use. All give the same bits: vectors are 16 lanes wide everywhere, in
// one register, two, or one lane after the other, and every multiply-add is fused.

#include <cstdint>
#include <string_view>

namespace orrery::host {

enum class Isa : std::uint8_t { kScalar, kAvx2, kAvx512 };
std::string_view to_string(Isa isa);

// Whether this machine, and this build, can run it.
bool available(Isa isa);
// The widest that is available.
Isa best_isa();

}  // namespace orrery::host
