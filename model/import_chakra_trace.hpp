#pragma once
// The nodes of one Chakra trace, from either of its forms. Part of read_chakra.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/import_chakra.hpp"

namespace orrery {

// Numbers of Chakra's schema.
enum class ChakraType : std::uint8_t {
  kMetadata = 1,
  kLoad = 2,
  kStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7
};

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraType type = ChakraType::kCompute;
  std::vector<std::uint64_t> after;
  std::uint64_t duration_us = 0;
  bool host = false;
  std::optional<std::int64_t> comm_type, comm_size, source, destination, tag;
  std::int64_t operations = 0;    // num_ops
  std::int64_t tensor_bytes = 0;  // tensor_size
  std::string group;              // pg_name
};

// In the order of the file. THROWS Error(kInput) "place: …" for what isn't a trace, and for a PyTorch
// execution trace, which has neither times nor streams.
std::vector<ChakraNode> read_chakra_nodes(const ChakraFile& file);

}  // namespace orrery
