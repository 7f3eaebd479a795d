#pragma once
// Graphs in ONNX files. docs/importing-graphs.md lists the operators and what becomes of them.

#include <filesystem>
#include <string_view>

#include "model/graph.hpp"
#include "model/import_builder.hpp"

namespace orrery {

// A serialized ModelProto. Float initializers are the parameters; external data needn't be there. Shapes are
// worked out for the operators that the page lists; sizes that follow from other sizes (Shape, Gather,
// Concat, …) are worked out too. Symbolic dimensions take their sizes from options.dims. THROWS Error(kInput)
// naming the node: an operator that isn't in the list, control flow, a shape that depends on data, an input
// without rank; a symbol without a size, with all that are missing; float64.
Graph read_onnx(std::string_view bytes, std::string_view place, const ImportOptions& options = {});

}  // namespace orrery
