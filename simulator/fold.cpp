#include "simulator/fold.hpp"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include "base/random.hpp"

namespace orrery::folding {
namespace {

// What a vertex sees: the sum over its edges of a 128-bit hash of (neighbour's colour, label). Sums don't
// depend on the order of the edges and can be corrected by differences. Two different views agree by chance
// once in 2^128.
struct View {
  std::uint64_t low = 0, high = 0;
  bool operator==(const View&) const = default;
  View& operator+=(const View& other) { return low += other.low, high += other.high, *this; }
  View& operator-=(const View& other) { return low -= other.low, high -= other.high, *this; }
};

View seen(std::int32_t colour, std::int32_t label) {
  const std::uint64_t word =
      std::uint64_t{static_cast<std::uint32_t>(colour)} << 32 | static_cast<std::uint32_t>(label);
  const std::uint64_t low = mix64(word);
  return {low, mix64(low ^ 0x6a09e667f3bcc908ULL)};
}

struct Key {
  std::int32_t colour = 0;
  View view;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return key.view.low ^ mix64(static_cast<std::uint32_t>(key.colour));
  }
};

// Vertices of one class that see the same.
struct Part {
  Key key;
  std::int32_t count = 0;
  std::int32_t new_colour = -1;
};

// Works on differences: after the first round only neighbours of vertices whose colour changed are looked at,
// so that a straggler among 16,384 ranks costs what it touches. Within a class the untouched vertices, or
// else the largest part, keep the colour (Hopcroft's "all but the largest").
class Refinement {
 public:
  Refinement(const LabelledGraph& graph, std::vector<std::int32_t> colours)
      : graph_(graph), colours_(std::move(colours)), views_(colours_.size()), dirty_mark_(colours_.size()) {
    assert(static_cast<std::int32_t>(colours_.size()) == graph.size());
    for (std::int32_t vertex = 0; vertex < graph.size(); ++vertex) {
      const std::int32_t colour = colours_[index(vertex)];
      if (index(colour) >= classes_.size()) classes_.resize(index(colour) + 1);
      ++classes_[index(colour)].size;
      changed_.push_back({vertex, -1});
    }
  }

  std::vector<std::int32_t> run() {
    while (!changed_.empty()) {
      publish();
      find_parts();
      name_parts();
      recolour();
    }
    return std::move(colours_);
  }

 private:
  struct Class {
    std::int32_t size = 0;
    View view;  // Of every vertex in it that isn't dirty.
    std::int32_t dirty = 0;
    std::int32_t kept_part = -1;
  };
  struct Change {
    std::int32_t vertex = 0;
    std::int32_t old_colour = -1;  // −1: none yet.
  };
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  // Tells the neighbours of the changed vertices.
  void publish() {
    dirty_.clear();
    for (const Change& change : changed_) {
      const std::int32_t colour = colours_[index(change.vertex)];
      for (const LabelledGraph::Neighbour& edge : graph_.neighbours(change.vertex)) {
        View& view = views_[index(edge.vertex)];
        view += seen(colour, edge.label);
        if (change.old_colour >= 0) view -= seen(change.old_colour, edge.label);
        if (dirty_mark_[index(edge.vertex)]) continue;
        dirty_mark_[index(edge.vertex)] = 1;
        dirty_.push_back(edge.vertex);
      }
    }
    changed_.clear();
  }

  void find_parts() {
    parts_.clear();
    part_of_.clear();
    std::unordered_map<Key, std::int32_t, KeyHash> known;  // Looked up only: its order never shows.
    for (const std::int32_t vertex : dirty_) {
      const Key key{colours_[index(vertex)], views_[index(vertex)]};
      const auto [at, fresh] = known.try_emplace(key, static_cast<std::int32_t>(parts_.size()));
      if (fresh) parts_.push_back({key});
      ++parts_[index(at->second)].count;
      ++classes_[index(key.colour)].dirty;
      part_of_.push_back(at->second);
    }
  }

  void name_parts() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Class& owner = classes_[index(parts_[p].key.colour)];
      const bool all_dirty = owner.dirty == owner.size;
      const bool keeps = all_dirty
                             ? owner.kept_part < 0 || parts_[p].count > parts_[index(owner.kept_part)].count
                             : parts_[p].key.view == owner.view;
      if (keeps) owner.kept_part = static_cast<std::int32_t>(p);
    }
    const std::size_t old_classes = classes_.size();
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      if (classes_[index(part.key.colour)].kept_part == static_cast<std::int32_t>(p)) {
        part.new_colour = part.key.colour;
        classes_[index(part.key.colour)].view = part.key.view;
        continue;
      }
      part.new_colour = static_cast<std::int32_t>(classes_.size());
      classes_[index(part.key.colour)].size -= part.count;
      classes_.push_back({part.count, part.key.view, 0, -1});
    }
    for (const Part& part : parts_) {
      assert(index(part.key.colour) < old_classes);
      classes_[index(part.key.colour)].dirty = 0;
      classes_[index(part.key.colour)].kept_part = -1;
    }
  }

  void recolour() {
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
      const std::int32_t vertex = dirty_[i];
      dirty_mark_[index(vertex)] = 0;
      std::int32_t& colour = colours_[index(vertex)];
      const std::int32_t fresh = parts_[index(part_of_[i])].new_colour;
      if (fresh == colour) continue;
      changed_.push_back({vertex, colour});
      colour = fresh;
    }
  }

  const LabelledGraph& graph_;
  std::vector<std::int32_t> colours_;
  std::vector<View> views_;
  std::vector<char> dirty_mark_;
  std::vector<Class> classes_;
  std::vector<Change> changed_;
  std::vector<std::int32_t> dirty_;
  std::vector<std::int32_t> part_of_;  // Parallel to dirty_.
  std::vector<Part> parts_;
};

}  // namespace

LabelledGraph::LabelledGraph(std::int32_t vertices, std::span<const Edge> edges)
    : first_(static_cast<std::size_t>(vertices) + 1), neighbours_(2 * edges.size()) {
  for (const Edge& edge : edges) {
    ++first_[static_cast<std::size_t>(edge.from) + 1];
    ++first_[static_cast<std::size_t>(edge.to) + 1];
  }
  for (std::size_t v = 1; v < first_.size(); ++v) first_[v] += first_[v - 1];
  std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
  const auto put = [&](std::int32_t at, std::int32_t other, std::int32_t label) {
    neighbours_[static_cast<std::size_t>(next[static_cast<std::size_t>(at)]++)] = {other, label};
  };
  for (const Edge& edge : edges) {
    put(edge.from, edge.to, edge.label);
    put(edge.to, edge.from, edge.label);
  }
}

std::vector<std::int32_t> refine(const LabelledGraph& graph, std::vector<std::int32_t> colours) {
  return Refinement(graph, std::move(colours)).run();
}

}  // namespace orrery::folding
