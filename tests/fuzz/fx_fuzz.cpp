// Whatever bytes come in, read_fx_json and read_fx_text give a graph that can be verified, costed, hashed and
// drawn, or throw Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "model/graph_dot.hpp"
#include "model/graph_hash.hpp"
#include "model/import_fx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  orrery::ImportOptions options;
  options.dims["s0"] = 3;
  try {
    const orrery::Graph graph = bytes.starts_with("{") ? orrery::read_fx_json(bytes, "fuzz.json", options)
                                                       : orrery::read_fx_text(bytes, "fuzz.txt", options);
    orrery::verify(graph);
    const orrery::Sizes sizes = orrery::bind(graph, 1, 1);
    for (const orrery::Op& op : graph.ops) {
      if (!(orrery::flops(graph, op, sizes) >= 0) || orrery::traffic(graph, op, sizes).read_bytes < 0)
        std::abort();
    }
    if (orrery::graph_hash(graph) != orrery::graph_hash(graph) || orrery::to_dot(graph).empty()) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
