#include "topology/import/smi_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace orrery {
namespace {

using Groups = std::vector<std::int32_t>;

bool is_pcie(SmiRelation relation) { return relation >= SmiRelation::kPix && relation <= SmiRelation::kSys; }

// What the NUMA or CPU column says; empty: nothing.
std::string place_of(const SmiDevice& device) {
  if (!device.gpu) return "";
  if (!device.numa_affinity.empty()) return "node " + device.numa_affinity;
  return device.cpu_affinity.empty() ? "" : "CPUs " + device.cpu_affinity;
}

// Devices that lie together so far, joined level by level from the nearest; groups are called by their first
// device.
class Joining {
 public:
  explicit Joining(const SmiMatrix& matrix) : matrix_(matrix), size_(matrix.devices.size()) {
    for (std::size_t i = 0; i < size_; ++i) {
      groups_.push_back(static_cast<std::int32_t>(i));
      places_.push_back(place_of(matrix.devices[i]));
    }
  }

  // Joins groups with a pair at `level` or nearer, where most of their known pairs say so.
  void join(SmiRelation level) {
    count_votes(level);
    for_group_pairs([&](std::size_t a, std::size_t b, SmiRelation relation) {
      if (!is_pcie(relation) || relation > level || near(a, b) * 2 <= all(a, b)) return;
      // Two GPUs on two NUMA nodes stay there, whatever NODE joins them.
      const bool elsewhere = !places_[a].empty() && !places_[b].empty() && places_[a] != places_[b];
      if (level != SmiRelation::kNode || !elsewhere) merge(a, b);
    });
  }

  // GPUs with the same NUMA node, or the same CPUs, belong to one CPU whatever the cells say: NVLink hides
  // theirs.
  void join_places() {
    std::map<std::string, std::size_t> first;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t group = group_of(i);
      if (places_[group].empty()) continue;
      const auto [at, fresh] = first.emplace(places_[group], group);
      if (!fresh && at->second != group) merge(at->second, group);
    }
  }

  // Groups of which nothing says that they lie apart: one CPU, for want of better knowledge.
  void join_unknown() {
    count_votes(SmiRelation::kNode);
    for_group_pairs([&](std::size_t a, std::size_t b, SmiRelation) {
      const bool placed = !places_[a].empty() && !places_[b].empty();
      if (!placed && all(a, b) == 0) merge(a, b);
    });
  }

  // Counted from 0.
  Groups numbers() const {
    std::map<std::int32_t, std::int32_t> numbers;
    Groups result;
    for (const std::int32_t group : groups_) {
      result.push_back(numbers.emplace(group, static_cast<std::int32_t>(numbers.size())).first->second);
    }
    return result;
  }

 private:
  std::size_t group_of(std::size_t device) const { return static_cast<std::size_t>(groups_[device]); }
  std::int32_t& near(std::size_t a, std::size_t b) { return near_[a * size_ + b]; }
  std::int32_t& all(std::size_t a, std::size_t b) { return all_[a * size_ + b]; }

  template <class Visit>
  void for_group_pairs(const Visit& visit) {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = i + 1; j < size_; ++j) {
        if (groups_[i] != groups_[j]) visit(group_of(i), group_of(j), matrix_.at(i, j).relation);
      }
    }
  }

  // Known pairs between any two groups, and those of them at `level` or nearer.
  void count_votes(SmiRelation level) {
    near_.assign(size_ * size_, 0);
    all_.assign(size_ * size_, 0);
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j < size_; ++j) {
        if (!is_pcie(matrix_.at(i, j).relation)) continue;
        ++all(group_of(i), group_of(j));
        near(group_of(i), group_of(j)) += matrix_.at(i, j).relation <= level;
      }
    }
  }

  void merge(std::size_t into, std::size_t from) {
    std::replace(groups_.begin(), groups_.end(), static_cast<std::int32_t>(from),
                 static_cast<std::int32_t>(into));
    if (places_[into].empty()) places_[into] = places_[from];
    for (std::size_t k = 0; k < size_ && !all_.empty(); ++k) {
      near(into, k) += near(from, k);
      near(k, into) += near(k, from);
      all(into, k) += all(from, k);
      all(k, into) += all(k, from);
    }
  }

  const SmiMatrix& matrix_;
  std::size_t size_;
  Groups groups_;
  std::vector<std::string> places_;  // By group.
  std::vector<std::int32_t> near_, all_;
};

}  // namespace

SmiTree smi_tree(const SmiMatrix& matrix) {
  Joining joining(matrix);
  SmiTree tree;
  joining.join(SmiRelation::kPix);
  tree.near = joining.numbers();
  joining.join(SmiRelation::kPxb);
  tree.upper = joining.numbers();
  joining.join(SmiRelation::kPhb);
  tree.root = joining.numbers();
  joining.join_places();
  joining.join(SmiRelation::kNode);
  joining.join_unknown();
  tree.cpu = joining.numbers();
  return tree;
}

SmiRelation relation_in(const SmiTree& tree, std::size_t a, std::size_t b) {
  if (a == b) return SmiRelation::kSelf;
  if (tree.near[a] == tree.near[b]) return SmiRelation::kPix;
  if (tree.upper[a] == tree.upper[b]) return SmiRelation::kPxb;
  if (tree.root[a] == tree.root[b]) return SmiRelation::kPhb;
  return tree.cpu[a] == tree.cpu[b] ? SmiRelation::kNode : SmiRelation::kSys;
}

std::vector<ImportNote> tree_contradictions(const SmiMatrix& matrix, const SmiTree& tree) {
  // By what the matrix says and what the tree makes of it, so that a machine's one peculiarity is one note.
  std::map<std::pair<SmiRelation, SmiRelation>, std::vector<std::string>> pairs;
  for (std::size_t a = 0; a < matrix.devices.size(); ++a) {
    for (std::size_t b = a + 1; b < matrix.devices.size(); ++b) {
      const SmiRelation said = matrix.at(a, b).relation, made = relation_in(tree, a, b);
      if (!is_pcie(said) || said == made || (matrix.old_words && said == SmiRelation::kSys)) continue;
      pairs[{said, made}].push_back(fmt::format("{} × {}", matrix.devices[a].label, matrix.devices[b].label));
    }
  }
  std::vector<ImportNote> notes;
  for (auto& [what, labels] : pairs) {
    constexpr std::size_t kShown = 8;
    const std::size_t count = labels.size();
    if (count > kShown) labels.resize(kShown);
    notes.push_back({ImportNote::Kind::kSuspect, 0,
                     fmt::format("no tree has all the matrix says: {} {} {} there and {} here: {}{}", count,
                                 count == 1 ? "pair is" : "pairs are", to_string(SmiCell{what.first, 0}),
                                 to_string(SmiCell{what.second, 0}), fmt::join(labels, ", "),
                                 count > kShown ? ", …" : ""),
                     "lspci -tv, or an NCCL_TOPO_DUMP_FILE"});
  }
  return notes;
}

}  // namespace orrery
