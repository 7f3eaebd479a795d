#include "executor/device/unique_ids.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "base/error.hpp"
#include "executor/launch/wire.hpp"

namespace orrery::device {
namespace {

struct Told {
  std::vector<std::int32_t> ranks;
  std::int32_t position = 0;
  std::string id;
};
struct OfRank {
  std::string device;
  std::map<std::string, Told> groups;  // By name.
};

std::string text_of(const std::vector<Group>& groups, std::string_view device,
                    const std::function<std::string()>& make_id) {
  launch::Writer writer;
  writer.text(device);
  writer.number(std::ssize(groups));
  for (const Group& group : groups) {
    writer.text(group.name);
    writer.number(group.position);
    writer.number(std::ssize(group.ranks));
    for (const std::int32_t rank : group.ranks) writer.number(rank);
    writer.text(group.position == 0 ? make_id() : std::string());
  }
  return writer.bytes();
}

OfRank read(std::string_view text) {
  launch::Reader reader(text);
  OfRank told;
  told.device = reader.text();
  for (std::int64_t groups = reader.number(); groups > 0; --groups) {
    Told& group = told.groups[reader.text()];
    group.position = static_cast<std::int32_t>(reader.number());
    for (std::int64_t ranks = reader.number(); ranks > 0; --ranks) {
      group.ranks.push_back(static_cast<std::int32_t>(reader.number()));
    }
    group.id = reader.text();
  }
  return told;
}

// What the member at `position` says of the group, which has to be what this rank thinks.
const Told& told_by(const std::vector<OfRank>& all, const Group& group, std::size_t position) {
  const auto member = static_cast<std::size_t>(group.ranks[position]);
  if (member >= all.size()) {
    fail(ErrorKind::kRuntime,
         "group '{}' wants rank {}, and {} ranks have met: start as many as the plan has", group.name, member,
         all.size());
  }
  const auto found = all[member].groups.find(group.name);
  const bool fits = found != all[member].groups.end() && found->second.ranks == group.ranks &&
                    found->second.position == static_cast<std::int32_t>(position);
  if (!fits) {
    fail(
        ErrorKind::kRuntime,
        "rank {} doesn't know group '{}' as the others do: all ranks have to run one scenario with one build",
        member, group.name);
  }
  return found->second;
}

void check_devices(const std::vector<OfRank>& all, const Group& group) {
  std::map<std::string, std::int32_t> seen;
  for (const std::int32_t rank : group.ranks) {
    const std::string& device = all[static_cast<std::size_t>(rank)].device;
    if (device.empty()) continue;
    const auto [found, inserted] = seen.try_emplace(device, rank);
    if (inserted) continue;
    fail(ErrorKind::kRuntime,
         "ranks {} and {} are both on GPU {}, and meet in group '{}': a GPU can have one rank only; start as "
         "many "
         "ranks on each host as it has GPUs, or set CUDA_VISIBLE_DEVICES for each rank",
         found->second, rank, device, group.name);
  }
}

}  // namespace

std::string with_nccl_host(const std::string& device) {
  const char* const host = std::getenv("NCCL_HOSTID");
  return host == nullptr ? device : fmt::format("{} of host '{}'", device, host);
}

std::vector<std::string> share_ids(int rank, const std::vector<Group>& groups, std::string_view device,
                                   const std::function<std::string()>& make_id, const AllGather& all_gather) {
  std::vector<OfRank> all;
  for (const std::string& text : all_gather(text_of(groups, device, make_id))) all.push_back(read(text));
  std::vector<std::string> ids;
  for (const Group& group : groups) {
    if (group.ranks[static_cast<std::size_t>(group.position)] != rank) {
      fail(ErrorKind::kRuntime, "group '{}' has another rank where rank {} should stand", group.name, rank);
    }
    for (std::size_t m = 0; m < group.ranks.size(); ++m) told_by(all, group, m);
    check_devices(all, group);
    ids.push_back(told_by(all, group, 0).id);
  }
  return ids;
}

}  // namespace orrery::device
