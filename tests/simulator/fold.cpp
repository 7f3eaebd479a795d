#include "simulator/fold.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "base/random.hpp"

using namespace orrery;
using folding::Edge;
using folding::LabelledGraph;

namespace {

using Colours = std::vector<std::int32_t>;

// Colours by order of first appearance, so that partitions can be compared.
Colours normal(const Colours& colours) {
  std::map<std::int32_t, std::int32_t> number;
  Colours result;
  for (const std::int32_t colour : colours)
    result.push_back(number.try_emplace(colour, static_cast<std::int32_t>(number.size())).first->second);
  return result;
}

Colours refined(const LabelledGraph& graph, Colours colours) {
  return normal(folding::refine(graph, std::move(colours)));
}

// The definition, literally: recolour everything by what it sees until nothing splits.
Colours refined_slowly(const LabelledGraph& graph, Colours colours) {
  for (;;) {
    using View = std::pair<std::int32_t, std::multiset<std::pair<std::int32_t, std::int32_t>>>;
    std::map<View, std::int32_t> number;
    Colours next;
    for (std::int32_t v = 0; v < graph.size(); ++v) {
      View view{colours[static_cast<std::size_t>(v)], {}};
      for (const auto& [to, label] : graph.neighbours(v))
        view.second.insert({colours[static_cast<std::size_t>(to)], label});
      next.push_back(number.try_emplace(view, static_cast<std::int32_t>(number.size())).first->second);
    }
    if (normal(next) == normal(colours)) return normal(next);
    colours = next;
  }
}

}  // namespace

TEST_CASE("a ring is one class, a chain folds in the middle", "[simulator]") {
  const LabelledGraph ring(5, std::vector<Edge>{{0, 1, 0}, {1, 2, 0}, {2, 3, 0}, {3, 4, 0}, {4, 0, 0}});
  CHECK(refined(ring, {0, 0, 0, 0, 0}) == Colours{0, 0, 0, 0, 0});
  const LabelledGraph chain(5, std::vector<Edge>{{0, 1, 0}, {1, 2, 0}, {2, 3, 0}, {3, 4, 0}});
  CHECK(refined(chain, {0, 0, 0, 0, 0}) == Colours{0, 1, 2, 1, 0});
}

TEST_CASE("a different start or label splits what it reaches and nothing else", "[simulator]") {
  // Two separate pairs and a marked vertex in one of them.
  const LabelledGraph pairs(4, std::vector<Edge>{{0, 1, 0}, {2, 3, 0}});
  CHECK(refined(pairs, {0, 0, 0, 1}) == Colours{0, 0, 1, 2});
  const LabelledGraph labelled(4, std::vector<Edge>{{0, 1, 0}, {2, 3, 7}});
  CHECK(refined(labelled, {0, 0, 0, 0}) == Colours{0, 0, 1, 1});
  const LabelledGraph doubled(4, std::vector<Edge>{{0, 1, 0}, {2, 3, 0}, {2, 3, 0}});
  CHECK(refined(doubled, {0, 0, 0, 0}) == Colours{0, 0, 1, 1});
  const LabelledGraph alone(3, std::vector<Edge>{});
  CHECK(refined(alone, {0, 1, 0}) == Colours{0, 1, 0});
}

TEST_CASE("refinement agrees with its definition on random graphs", "[simulator]") {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const auto size = static_cast<std::int32_t>(random.between(1, 24));
    std::vector<Edge> edges;
    for (std::int64_t e = random.between(0, 2 * size); e-- > 0;)
      edges.push_back({static_cast<std::int32_t>(random.between(0, size - 1)),
                       static_cast<std::int32_t>(random.between(0, size - 1)),
                       static_cast<std::int32_t>(random.between(0, 1))});
    const LabelledGraph graph(size, edges);
    Colours colours(static_cast<std::size_t>(size), 0);
    colours.back() = static_cast<std::int32_t>(random.between(0, 1));
    INFO("round " << round);
    CHECK(refined(graph, colours) == refined_slowly(graph, colours));
  }
}
