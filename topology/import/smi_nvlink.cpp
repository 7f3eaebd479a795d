#include "topology/import/smi_nvlink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery {
namespace {

constexpr const char* kLinkStatus = "nvidia-smi nvlink --status, and dmesg for Xid 74";

std::int32_t links(const SmiMatrix& matrix, std::size_t a, std::size_t b) { return matrix.at(a, b).nvlinks; }

bool known(const SmiMatrix& matrix, std::size_t a, std::size_t b) {
  return matrix.at(a, b).relation != SmiRelation::kUnknown;
}

// GPUs that have no NVLink to any peer whose cell is known.
std::vector<std::size_t> without_links(const SmiMatrix& matrix) {
  std::vector<std::size_t> found;
  for (std::size_t a = 0; a < matrix.gpu_count(); ++a) {
    bool any_known = false;
    for (std::size_t b = 0; b < matrix.gpu_count(); ++b)
      any_known = any_known || (b != a && known(matrix, a, b));
    if (any_known && most_nvlinks(matrix, a) == 0) found.push_back(a);
  }
  return found;
}

// How many links most pairs of `gpus` have; 0 where one known pair has none.
std::int32_t common_links(const SmiMatrix& matrix, const std::vector<std::size_t>& gpus) {
  std::map<std::int32_t, std::int32_t> pairs;
  for (const std::size_t a : gpus) {
    for (const std::size_t b : gpus) {
      if (a >= b || !known(matrix, a, b)) continue;
      if (links(matrix, a, b) == 0) return 0;
      ++pairs[links(matrix, a, b)];
    }
  }
  std::int32_t most = 0, count = 0;
  for (const auto& [number, seen] : pairs) {
    if (seen >= most) most = seen, count = number;
  }
  return count;
}

}  // namespace

std::int32_t most_nvlinks(const SmiMatrix& matrix, std::size_t gpu) {
  std::int32_t most = 0;
  for (std::size_t b = 0; b < matrix.gpu_count(); ++b) most = std::max(most, links(matrix, gpu, b));
  return most;
}

std::vector<ImportNote> smi_nvlink_faults(const SmiMatrix& matrix) {
  std::vector<ImportNote> notes;
  const auto suspect = [&](std::size_t gpu, const std::string& text) {
    notes.push_back({ImportNote::Kind::kSuspect, matrix.devices[gpu].line, text, kLinkStatus});
  };
  const std::vector<std::size_t> bare = without_links(matrix);
  std::vector<std::size_t> linked;
  for (std::size_t gpu = 0; gpu < matrix.gpu_count(); ++gpu) {
    if (std::find(bare.begin(), bare.end(), gpu) == bare.end()) linked.push_back(gpu);
  }
  const std::int32_t usual = common_links(matrix, linked);
  if (usual == 0 || linked.size() < 3 || bare.size() * 2 >= matrix.gpu_count()) return notes;
  for (const std::size_t gpu : bare) {
    suspect(gpu, fmt::format("{} has no NVLink, while the other GPUs have NV{} to each other",
                             matrix.devices[gpu].label, usual));
  }
  for (const std::size_t gpu : linked) {
    const std::int32_t most = most_nvlinks(matrix, gpu);
    if (most < usual) {
      suspect(gpu, fmt::format("{} has {} NVLinks to its peers, which have {} to each other",
                               matrix.devices[gpu].label, most, usual));
    }
  }
  for (const std::size_t a : linked) {
    for (const std::size_t b : linked) {
      const std::int32_t here = links(matrix, a, b);
      const std::int32_t ends = std::min(most_nvlinks(matrix, a), most_nvlinks(matrix, b));
      if (a < b && here > 0 && here < usual && ends >= usual) {
        suspect(a, fmt::format("{} × {} has {} NVLinks, while most pairs have {}", matrix.devices[a].label,
                               matrix.devices[b].label, here, usual));
      }
    }
  }
  return notes;
}

}  // namespace orrery
