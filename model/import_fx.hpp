#pragma once
// Graphs of PyTorch (torch.fx, torch.export, AOTAutograd's joint graph). docs/importing-graphs.md says how to
// export them and lists the operators.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"
#include "model/import_builder.hpp"

namespace orrery {

// The JSON that tools/export-fx writes, and the text that PyTorch's compile logs print of a graph ("class
// GraphModule(torch.nn.Module): def forward(self, x: "f32[8, 16]…"). Linear layers, attention, norms,
// embeddings, activations and the cross entropy become our own kinds, with their gradients in a joint
// graph; the rest becomes imported kinds. Sizes are those of the export.
// THROWS Error(kInput) naming the node: an operator that isn't in the list, a collective (the graph has been
// distributed already), control flow, sizes that depend on data or on a symbol without a size, float64.
Graph read_fx_json(std::string_view json, std::string_view place, const ImportOptions& options = {});
Graph read_fx_text(std::string_view text, std::string_view place, const ImportOptions& options = {});

}  // namespace orrery
