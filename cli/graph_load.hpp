#pragma once
// Any file that describes a model or a run of one → Graph or Program, for orrery graph.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"
#include "model/import_builder.hpp"
#include "model/import_chakra.hpp"

namespace orrery {

enum class GraphFormat : std::uint8_t { kScenario, kHfConfig, kFxJson, kFxText, kOnnx, kChakra };
std::string_view to_string(GraphFormat format);  // "scenario", "hf", "fx", "fx-text", "onnx", "chakra"
std::optional<GraphFormat> parse_graph_format(std::string_view word);

// By what the file holds, not by its name. THROWS Error(kInput) when it is none of them, with what it may be.
GraphFormat detect_format(std::string_view bytes, std::string_view place);

struct GraphRequest {
  std::vector<std::string> files;  // Several: Chakra traces by rank.
  std::string format = "auto";
  ImportOptions import;
  std::int32_t ranks = 0;     // See ChakraOptions.
  std::string groups;         // File with process groups, {"3": [0, 4]}.
  std::int64_t batch = 1;     // For graphs whose batch and sequence are bound late.
  std::int64_t sequence = 0;  // 0: the scenario's, else 2048.
};

struct LoadedGraph {
  GraphFormat format = GraphFormat::kScenario;
  Graph graph;  // Without ops for a trace.
  Sizes sizes;
  ChakraImport trace;  // Without ranks for a graph.
  std::vector<std::string> notes;

  bool is_trace() const { return format == GraphFormat::kChakra; }
};

// THROWS Error(kInput) naming file and node. Whether the graph is sound is verify's business.
LoadedGraph load_graph(const GraphRequest& request);

}  // namespace orrery
