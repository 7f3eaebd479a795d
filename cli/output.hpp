#pragma once
// Writing results: to standard output, or to a file that is whole or isn't there.

#include <exception>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string_view>

namespace orrery {

// Standard output's reader has gone.
class BrokenPipe : public std::exception {};

// To standard output, at once. THROWS BrokenPipe, or Error(kRuntime) when it can't be written.
void print(std::string_view text);

// To a new file that then takes the old one's place, so that a failure leaves no half; to "-", standard
// output. THROWS Error(kRuntime) naming the file.
void write_file(const std::filesystem::path& file, const std::function<void(std::ostream&)>& write);

// Whether write_file has a chance; asked before long work. THROWS Error(kRuntime).
void expect_writable(const std::filesystem::path& file);

inline bool is_standard_output(const std::filesystem::path& file) { return file == "-"; }

}  // namespace orrery
