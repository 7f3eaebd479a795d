#include "executor/launch/handshake.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::launch {
namespace {

using RanksByValue = std::map<std::string, std::vector<int>>;

// "A (ranks 0-2), B (rank 3)": most ranks first, then the lowest.
std::vector<std::pair<std::string, std::vector<int>>> by_size(const RanksByValue& values) {
  std::vector<std::pair<std::string, std::vector<int>>> result(values.begin(), values.end());
  std::ranges::sort(result, [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.second < b.second;
  });
  return result;
}

void compare(const std::string& what, const RanksByValue& values, std::vector<std::string>& differences) {
  if (values.size() <= 1) return;
  const auto sorted = by_size(values);
  const auto& [right, most] = sorted[0];
  const bool majority = most.size() > sorted[1].second.size();
  std::string line;
  for (std::size_t at = majority ? 1 : 0; at < sorted.size(); ++at) {
    const auto& [value, ranks] = sorted[at];
    line += fmt::format("{}{} {} {}", line.empty() ? "" : ", ", rank_list(ranks),
                        ranks.size() == 1 ? "has" : "have", value);
  }
  if (majority) line += fmt::format("; the others ({}) have {}", rank_list(most), right);
  differences.push_back(fmt::format("{}: {}", what, line));
}

template <class Value>
RanksByValue gather(const std::vector<Identity>& identities, const Value& value) {
  RanksByValue result;
  for (const Identity& identity : identities) result[value(identity)].push_back(identity.rank);
  return result;
}

void check_devices(const std::vector<Identity>& identities, std::vector<std::string>& differences) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> users;
  for (const Identity& identity : identities) {
    if (!identity.device.empty()) users[{identity.host, identity.device}].push_back(identity.rank);
  }
  for (const auto& [place, ranks] : users) {
    if (ranks.size() < 2) continue;
    differences.push_back(fmt::format("device: {} of {} is used by {}; expected one rank on a device",
                                      place.second, place.first, rank_list(ranks)));
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::map<std::string, std::string> own_libraries() {
  const auto fmt_version = FMT_VERSION;
  std::array<char, 64> libc = {};
  confstr(_CS_GNU_LIBC_VERSION, libc.data(), libc.size());  // "glibc 2.36".
  return {{"fmt", fmt::format("{}.{}.{}", fmt_version / 10000, fmt_version / 100 % 100, fmt_version % 100)},
          {"libc", libc.data()},
          {"libstdc++", std::to_string(__GLIBCXX__)}};
}

std::string to_bytes(const Identity& identity) {
  Writer writer;
  writer.number(identity.rank);
  writer.text(identity.host);
  writer.text(identity.device);
  writer.number(static_cast<std::int64_t>(identity.plan_hash));
  writer.number(static_cast<std::int64_t>(identity.program_hash));
  writer.text(identity.build);
  for (const auto& [name, version] : identity.libraries) {
    writer.text(name);
    writer.text(version);
  }
  return writer.bytes();
}

Identity identity_from_bytes(std::string_view bytes) {
  Reader reader(bytes);
  Identity identity;
  identity.rank = static_cast<int>(reader.number());
  identity.host = reader.text();
  identity.device = reader.text();
  identity.plan_hash = static_cast<std::uint64_t>(reader.number());
  identity.program_hash = static_cast<std::uint64_t>(reader.number());
  identity.build = reader.text();
  while (!reader.at_end()) {
    const std::string name = reader.text();
    identity.libraries[name] = reader.text();
  }
  return identity;
}

std::vector<std::string> check_identities(const std::vector<Identity>& identities) {
  std::vector<std::string> differences;
  const auto hash = [](std::uint64_t value) { return fmt::format("{:016x}", value); };
  compare("plan", gather(identities, [&](const Identity& one) { return hash(one.plan_hash); }), differences);
  compare("program", gather(identities, [&](const Identity& one) { return hash(one.program_hash); }),
          differences);
  compare("build", gather(identities, [](const Identity& one) { return one.build; }), differences);
  std::map<std::string, int> names;
  for (const Identity& identity : identities) {
    for (const auto& [name, version] : identity.libraries) ++names[name];
  }
  for (const auto& [name, count] : names) {
    const auto version = [&library = name](const Identity& one) {
      const auto found = one.libraries.find(library);
      return found == one.libraries.end() ? std::string("none") : found->second;
    };
    compare(name, gather(identities, version), differences);
  }
  check_devices(identities, differences);
  return differences;
}

std::vector<Identity> shake_hands(Rendezvous& rendezvous, const Identity& own) {
  std::vector<Identity> identities;
  for (const std::string& bytes : rendezvous.all_gather(to_bytes(own))) {
    identities.push_back(identity_from_bytes(bytes));
  }
  const std::vector<std::string> differences = check_identities(identities);
  if (differences.empty()) return identities;
  fail(ErrorKind::kDisagreement, "ranks aren't parts of one run:\n  {}", fmt::join(differences, "\n  "));
}

}  // namespace orrery::launch
