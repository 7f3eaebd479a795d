// No damage to a paste makes the reader say something wrong without saying that it had to guess.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/topology/damaged_paste.hpp"
#include "tests/topology/smi_pastes.hpp"
#include "topology/import/smi_host.hpp"

namespace orrery {
namespace {

std::size_t place_of(const SmiMatrix& matrix, const std::string& label) {
  std::size_t i = 0;
  while (i < matrix.devices.size() && matrix.devices[i].label != label) ++i;
  return i;
}

bool says_label(const std::string& text, const std::string& label) {
  for (std::size_t at = text.find(label); at != std::string::npos; at = text.find(label, at + 1)) {
    const std::size_t end = at + label.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

// A note about cells of that device, which the original hadn't: affinities and names are no excuse.
bool noted(const SmiMatrix& matrix, const SmiMatrix& original, const std::string& label) {
  const auto known = [&](const ImportNote& note) {
    return std::any_of(original.notes.begin(), original.notes.end(),
                       [&](const ImportNote& other) { return other.text == note.text; });
  };
  for (const ImportNote& note : matrix.notes) {
    const bool other = note.text.find("CPU") != std::string::npos ||
                       note.text.find("legend") != std::string::npos ||
                       note.text.find("NUMA") != std::string::npos || known(note);
    if (!other && says_label(note.text, label)) return true;
  }
  return false;
}

// A cell of `read` that `original` has otherwise, of which no note speaks; empty: none.
std::string silent_difference(const SmiMatrix& read, const SmiMatrix& original) {
  for (std::size_t a = 0; a < read.devices.size(); ++a) {
    const std::string& one = read.devices[a].label;
    const std::size_t from = place_of(original, one);
    if (from == original.devices.size() && !noted(read, original, one))
      return one + " is no device of the original";
    for (std::size_t b = 0; b < a; ++b) {
      const std::string& two = read.devices[b].label;
      const std::size_t to = place_of(original, two);
      if (from == original.devices.size() || to == original.devices.size()) continue;
      const SmiCell& cell = read.at(a, b);
      if (cell.relation == SmiRelation::kUnknown || cell == original.at(from, to)) continue;
      if (noted(read, original, one) || noted(read, original, two)) continue;
      return one + " × " + two + " is " + to_string(cell) + ", was " + to_string(original.at(from, to));
    }
  }
  return "";
}

struct Counts {
  std::size_t variants = 0, refused = 0, noted = 0;
};

void damage_all(const std::vector<std::string>& pastes, std::size_t variants, Counts& counts) {
  for (std::size_t n = 0; n < pastes.size(); ++n) {
    const SmiMatrix original = read_smi_matrix(pastes[n], "original");
    for (std::size_t i = 0; i < variants; ++i) {
      const std::uint64_t seed = mix64(n * 1000003 + i);
      const std::string damaged = damaged_paste(pastes[n], seed);
      ++counts.variants;
      std::string fault;
      try {
        const SmiMatrix read = read_smi_matrix(damaged, "damaged");
        fault = silent_difference(read, original);
        counts.noted += read.notes.size() > original.notes.size();
        const HostImport import = host_from_smi(read);
        if (import.hosts.at(0).gpus.size() != read.gpu_count())
          fault = "GPUs were lost on the way to the host";
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kInput) fault = error.what();
        ++counts.refused;
      }
      if (fault.empty()) continue;
      INFO("paste " << n << ", seed " << seed << "\n" << damaged);
      FAIL_CHECK(fault);
    }
  }
}

}  // namespace

TEST_CASE("damaged pastes are read right, with a note, or refused", "[smi][damaged]") {
  std::vector<std::string> pastes = smi_test::own_pastes();
  for (const auto& file : smi_test::data_files()) {
    if (!file.filename().string().starts_with("p2p")) pastes.push_back(smi_test::read(file));
  }
  const char* given = std::getenv("ORRERY_DAMAGED_VARIANTS");
  const std::size_t wanted = given != nullptr ? std::strtoul(given, nullptr, 10) : 1500;
  Counts counts;
  damage_all(pastes, (wanted + pastes.size() - 1) / pastes.size(), counts);
  CHECK(counts.variants >= wanted);
  // Most damage leaves a matrix that can be read.
  CHECK(counts.refused * 4 < counts.variants);
  if (given != nullptr) {
    std::cout << counts.variants << " damaged pastes: " << counts.refused << " refused, " << counts.noted
              << " with more notes than the original\n";
  }
}

}  // namespace orrery
