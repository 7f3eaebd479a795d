#pragma once
// Which things of a system behave alike: colour refinement (the coarsest equitable partition) of a graph with
// labelled edges.

#include <cstdint>
#include <span>
#include <vector>

namespace orrery::folding {

struct Edge {
  std::int32_t from = 0, to = 0;  // Seen from both ends.
  std::int32_t label = 0;
};

class LabelledGraph {
 public:
  struct Neighbour {
    std::int32_t vertex = 0;
    std::int32_t label = 0;
  };

  LabelledGraph(std::int32_t vertices, std::span<const Edge> edges);

  std::int32_t size() const { return static_cast<std::int32_t>(first_.size()) - 1; }
  // In the order of the edges.
  std::span<const Neighbour> neighbours(std::int32_t vertex) const {
    const auto at = static_cast<std::size_t>(vertex);
    return {neighbours_.data() + first_[at], static_cast<std::size_t>(first_[at + 1] - first_[at])};
  }

 private:
  std::vector<std::int32_t> first_;
  std::vector<Neighbour> neighbours_;
};

// Splits the classes of `colours` (numbered from 0) until any two vertices of one class have, for every label
// and class, equally many neighbours of that class over edges of that label. What starts equal and only
// depends on its neighbours then stays equal for ever.
std::vector<std::int32_t> refine(const LabelledGraph& graph, std::vector<std::int32_t> colours);

}  // namespace orrery::folding
