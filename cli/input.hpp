#pragma once
// Reading what commands are given.

#include <string>

namespace orrery {

// THROWS Error(kInput) naming the file when there is none, or when it is a folder or can't be read.
std::string read_file(const std::string& file);

}  // namespace orrery
