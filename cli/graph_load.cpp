#include "cli/graph_load.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/input.hpp"
#include "cli/prepare.hpp"
#include "model/import_fx.hpp"
#include "model/import_onnx.hpp"
#include "model/transformer.hpp"

namespace orrery {
namespace {

constexpr std::array<std::string_view, 6> kWords = {"scenario", "hf", "fx", "fx-text", "onnx", "chakra"};
constexpr std::int64_t kSequence = 2048;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// A Chakra trace begins with the length of its metadata, whose first field is a text or an attribute that
// fits.
bool looks_like_chakra(std::string_view bytes) {
  std::size_t at = 0;
  const auto varint = [&](std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 35 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  std::uint64_t length = 0;
  std::uint64_t inner = 0;
  if (!varint(length) || length < 2 || length > bytes.size() - at) return false;
  const std::size_t begin = at;
  const char tag = bytes[at++];
  return (tag == 0x0a || tag == 0x12) && varint(inner) && inner + (at - begin) <= length;
}

GraphFormat detect_json(std::string_view bytes, std::string_view place) {
  const std::string_view head = bytes.substr(0, 1 << 20);
  if (has(head, "\"orrery-fx\"")) return GraphFormat::kFxJson;
  if (has(head, "\"workload_graph\"") || has(head, "\"traceEvents\"")) return GraphFormat::kChakra;
  if (has(head, "\"schema\"") && has(head, "\"nodes\""))
    return GraphFormat::kChakra;  // Which says what it is.
  if (has(head, "\"model_type\"") || has(head, "\"architectures\"") || has(head, "\"hidden_size\"")) {
    return GraphFormat::kHfConfig;
  }
  fail(ErrorKind::kInput,
       "{}: JSON, but neither a config.json (model_type), a graph of tools/export-fx (\"format\": "
       "\"orrery-fx\") nor a "
       "Chakra trace (workload_graph); say which with --format",
       place);
}

std::map<std::string, std::vector<std::int32_t>> read_groups(const std::string& file) {
  std::map<std::string, std::vector<std::int32_t>> groups;
  if (file.empty()) return groups;
  const nlohmann::json root = nlohmann::json::parse(read_file(file), nullptr, false);
  if (!root.is_object())
    fail(ErrorKind::kInput, "{}: expected JSON with the ranks of each process group: {{\"3\": [0, 4]}}",
         file);
  for (const auto& [name, ranks] : root.items()) {
    if (!ranks.is_array()) fail(ErrorKind::kInput, "{}: {}: expected a list of ranks", file, name);
    for (const auto& rank : ranks) {
      if (!rank.is_number_integer() || rank < 0 || rank > 1'000'000'000) {
        fail(ErrorKind::kInput, "{}: {}: {} isn't a rank", file, name, rank.dump());
      }
      groups[name].push_back(rank.get<std::int32_t>());
    }
  }
  return groups;
}

void load_trace(const GraphRequest& request, LoadedGraph& loaded) {
  ChakraOptions options;
  options.ranks = request.ranks;
  options.groups = read_groups(request.groups);
  std::vector<ChakraFile> files;
  for (const std::string& file : request.files) files.push_back({file, read_file(file)});
  loaded.trace = read_chakra(files, options);
  loaded.notes = loaded.trace.notes;
}

void load_model(const GraphRequest& request, const std::string& bytes, LoadedGraph& loaded) {
  const std::string& file = request.files[0];
  std::int64_t sequence = request.sequence > 0 ? request.sequence : kSequence;
  switch (loaded.format) {
    case GraphFormat::kScenario: {
      Prepared prepared = prepare(file, {});
      if (request.sequence == 0) sequence = prepared.scenario.plan.settings.sequence;
      loaded.graph = std::move(prepared.graph);
      loaded.notes = prepared.scenario.model.notes;
      break;
    }
    case GraphFormat::kHfConfig: {
      const TransformerConfig config = parse_hf_config(bytes, file);
      loaded.graph = build_training_graph(config, DType::kBf16);
      loaded.notes = config.notes;
      break;
    }
    case GraphFormat::kFxJson: loaded.graph = read_fx_json(bytes, file, request.import); break;
    case GraphFormat::kFxText: loaded.graph = read_fx_text(bytes, file, request.import); break;
    case GraphFormat::kOnnx: loaded.graph = read_onnx(bytes, file, request.import); break;
    case GraphFormat::kChakra: break;
  }
  loaded.sizes = bind(loaded.graph, request.batch, sequence);
}

}  // namespace

std::string_view to_string(GraphFormat format) { return kWords[static_cast<std::size_t>(format)]; }

std::optional<GraphFormat> parse_graph_format(std::string_view word) {
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    if (kWords[i] == word) return static_cast<GraphFormat>(i);
  }
  return std::nullopt;
}

GraphFormat detect_format(std::string_view bytes, std::string_view place) {
  if (bytes.starts_with("\x1f\x8b"))
    fail(ErrorKind::kInput, "{}: compressed; unpack it first: gunzip {}", place, place);
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) fail(ErrorKind::kInput, "{}: the file is empty", place);
  if (bytes[first] == '{' || bytes[first] == '[') return detect_json(bytes, place);
  const std::string_view head = bytes.substr(0, 1 << 16);
  const bool text =
      head.find_first_of(std::string_view("\0\x01\x02\x03\x04\x05\x06\x07\x08", 9)) == std::string_view::npos;
  if (text && has(head, "def forward(")) return GraphFormat::kFxText;
  if (text) return GraphFormat::kScenario;
  if (looks_like_chakra(bytes)) return GraphFormat::kChakra;
  if (bytes[0] == 0x08) return GraphFormat::kOnnx;  // ModelProto's first field, the version of the format.
  fail(ErrorKind::kInput,
       "{}: neither a scenario, a config.json, an exported torch.fx graph, ONNX nor a Chakra trace; say "
       "which with --format",
       place);
}

LoadedGraph load_graph(const GraphRequest& request) {
  LoadedGraph loaded;
  const std::string& file = request.files.at(0);
  const std::string bytes = read_file(file);
  const std::optional<GraphFormat> given = parse_graph_format(request.format);
  loaded.format = given ? *given : detect_format(bytes, file);
  if (loaded.is_trace()) {
    load_trace(request, loaded);
    return loaded;
  }
  if (request.files.size() > 1) {
    fail(ErrorKind::kInput, "{}: a graph stands in one file; several are for Chakra traces, one of each rank",
         request.files[1]);
  }
  load_model(request, bytes, loaded);
  return loaded;
}

}  // namespace orrery
