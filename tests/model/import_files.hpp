#pragma once
// The small files in tests/data, and the published ones in the data folder.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "model/graph.hpp"

namespace orrery::import_test {

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::string test_data(const std::string& name) {
  return read_file(std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/data" / name);
}

inline std::filesystem::path traces_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return std::filesystem::path(given) / "traces";
  return std::filesystem::path(ORRERY_SOURCE_DIR).parent_path() / "shared" / "data" / "traces";
}

// Of a file that may be compressed.
inline std::string unpacked(const std::filesystem::path& file) {
  if (file.extension() != ".gz") return read_file(file);
  std::string bytes;
  FILE* pipe = popen(("gzip -dc '" + file.string() + "'").c_str(), "r");
  if (pipe == nullptr) return bytes;
  char block[65536];
  for (std::size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) bytes.append(block, got);
  pclose(pipe);
  return bytes;
}

inline double total_flops(const Graph& graph) {
  const Sizes sizes = bind(graph, 1, 1);
  double total = 0;
  for (const Op& op : graph.ops) total += flops(graph, op, sizes);
  return total;
}

inline int count(const Graph& graph, OpKind kind) {
  int found = 0;
  for (const Op& op : graph.ops) found += op.kind == kind ? 1 : 0;
  return found;
}

inline const Op& named(const Graph& graph, const std::string& name) {
  for (const Op& op : graph.ops) {
    if (op.name == name) return op;
  }
  std::fprintf(stderr, "no op %s\n", name.c_str());
  std::abort();
}

}  // namespace orrery::import_test
