#pragma once
// Runs a fuzz target over its committed corpus without a fuzzer, so that every build tests what fuzzing once
// found.

#include <cstddef>
#include <cstdint>
#include <string>

namespace orrery::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

// Fails the test case when tests/fuzz/corpus/NAME holds no input. A target that breaks its promise aborts.
void replay(const std::string& name, Target target);

}  // namespace orrery::fuzz
