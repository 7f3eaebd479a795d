// Whatever bytes come in, read_onnx gives a graph that can be verified, costed and hashed, or throws
// Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "model/graph_hash.hpp"
#include "model/import_onnx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  orrery::ImportOptions options;
  options.dims = {{"batch", 2}, {"seq", 3}, {"past", 4}, {"total", 7}};
  try {
    const orrery::Graph graph =
        orrery::read_onnx({reinterpret_cast<const char*>(data), size}, "fuzz.onnx", options);
    orrery::verify(graph);
    const orrery::Sizes sizes = orrery::bind(graph, 1, 1);
    for (const orrery::Op& op : graph.ops) {
      if (!(orrery::flops(graph, op, sizes) >= 0) || orrery::traffic(graph, op, sizes).read_bytes < 0)
        std::abort();
    }
    orrery::graph_hash(graph);
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}
