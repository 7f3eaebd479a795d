#include "tests/fuzz/replay/replay.hpp"

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace orrery::fuzz {

void replay(const std::string& name, Target target) {
  const auto folder = std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/fuzz/corpus" / name;
  REQUIRE(std::filesystem::is_directory(folder));
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    // An abort leaves no time to say which input it was.
    std::fprintf(stderr, "replaying %s\n", entry.path().c_str());
    CHECK(target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) == 0);
    ++inputs;
  }
  CHECK(inputs > 0);
}

}  // namespace orrery::fuzz
