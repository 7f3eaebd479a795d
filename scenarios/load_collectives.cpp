// What is asked of rings and collectives by themselves.

#include <fmt/format.h>

#include <algorithm>

#include "planner/collective_sweep.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 44;

void read_rings(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("rings");
  if (node == nullptr) return;
  const Section section(*node, "rings", "rings", file.faults());
  RingRequest& request = scenario.rings;
  section.integers("order", request.order, 0, kMaxGpus);
  section.file("from", request.from);
  section.bytes("bytes", request.bytes, 1, kMostBytes);
  if (section.has("order") && section.has("from"))
    section.fault("from", "is a second order of the ring; drop one of the two");
}

void read_algorithms(const Section& section, CollectiveRequest& request) {
  if (!section.has("algorithms")) return;
  request.algorithms.clear();
  for (const YamlNode* item : section.items("algorithms")) {
    const auto found = std::ranges::find_if(
        kCollectiveAlgorithms, [&](CollectiveAlgorithm one) { return item->text == to_string(one); });
    const bool scalar = item->kind == YamlNode::Kind::kScalar;
    if (scalar && item->text == "auto") {
      request.algorithms.emplace_back(std::nullopt);
    } else if (scalar && found != kCollectiveAlgorithms.end()) {
      request.algorithms.emplace_back(*found);
    } else {
      std::string words = "auto";
      for (const CollectiveAlgorithm one : kCollectiveAlgorithms)
        words += fmt::format(", {}", to_string(one));
      section.faults().add(*item, section.path("algorithms"),
                           fmt::format("is {}; expected one of {}", describe(*item), words));
    }
  }
  if (request.algorithms.empty()) section.fault("algorithms", "is empty; leave it out for what NCCL chooses");
}

}  // namespace

void read_collectives(const Section& file, Scenario& scenario) {
  read_rings(file, scenario);
  file.sizes("buckets", scenario.buckets, 1, kMostBytes);
  const YamlNode* node = file.node("collective");
  if (node == nullptr) return;
  const Section section(*node, "collective", "collective", file.faults());
  CollectiveRequest& request = scenario.collective;
  Choices<CollectiveKind> kinds;
  for (const CollectiveKind kind : kSweptCollectives) kinds.emplace_back(to_string(kind), kind);
  section.choice("kind", request.kind, kinds);
  read_algorithms(section, request);
  section.bytes("begin", request.begin_bytes, 1, kMostBytes);
  section.bytes("end", request.end_bytes, 1, kMostBytes);
  section.integer("factor", request.factor, 2, 1024);
  section.integer("channels", request.channels, 0, 64);
  section.bytes("chunk", request.chunk_bytes, 1, kMostBytes);
  if (request.begin_bytes > request.end_bytes)
    section.fault("end",
                  fmt::format("is {} bytes, less than begin, {}", request.end_bytes, request.begin_bytes));
}

}  // namespace orrery
