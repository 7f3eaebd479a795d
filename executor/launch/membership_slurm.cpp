// Slurm's variables, as srun's manual page lists them, and its lists of nodes and tasks.
#include <algorithm>

#include "base/error.hpp"
#include "executor/launch/membership_parts.hpp"

namespace orrery::launch {
namespace {

constexpr std::size_t kMostNodes = 1'000'000;
constexpr std::size_t kMostDigits = 12;

[[noreturn]] void refuse_list(std::string_view list, const std::string& why) {
  fail(ErrorKind::kUsage, "node list \"{}\": {}; expected something like node[03-05,9],login", list, why);
}

// "03-05" or "9", with `prefix` before each number. Leading zeros keep the width.
void add_numbers(std::string_view list, std::string_view interval, const std::string& prefix,
                 std::vector<std::string>& result) {
  const std::size_t dash = interval.find('-');
  const std::string_view first_text = interval.substr(0, dash);
  const std::string_view last_text = dash == std::string_view::npos ? first_text : interval.substr(dash + 1);
  const std::optional<int> first = membership::whole_number(first_text);
  const std::optional<int> last = membership::whole_number(last_text);
  if (!first || !last || *first < 0 || *last < *first || first_text.size() > kMostDigits) {
    refuse_list(list, fmt::format("\"{}\" is no number and no interval", interval));
  }
  const std::size_t count = static_cast<std::size_t>(*last - *first) + 1;
  if (count > kMostNodes || result.size() + count > kMostNodes) {
    refuse_list(list, "more than a million nodes");
  }
  for (int node = *first; node <= *last; ++node) {
    result.push_back(fmt::format("{}{:0{}}", prefix, node, first_text.size()));
  }
}

// One name, which may have several brackets: "rack[1-2]n[1-4]" is all of rack1's before rack2's.
std::vector<std::string> expand_name(std::string_view list, std::string_view name) {
  std::vector<std::string> result = {""};
  while (!name.empty()) {
    const std::size_t open = name.find('[');
    for (std::string& node : result) node += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = name.find(']', open);
    std::string_view inside = name.substr(open + 1, close - open - 1);
    std::vector<std::string> expanded;
    for (const std::string& prefix : result) {
      for (std::string_view rest = inside; !rest.empty();) {
        const std::size_t comma = rest.find(',');
        add_numbers(list, rest.substr(0, comma), prefix, expanded);
        rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
      }
    }
    if (expanded.empty()) refuse_list(list, "empty brackets");
    result = std::move(expanded);
    name = name.substr(close + 1);
  }
  return result;
}

// Ends of names: commas outside brackets.
std::vector<std::string_view> split_names(std::string_view list) {
  std::vector<std::string_view> names;
  std::size_t start = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char c = at < list.size() ? list[at] : ',';
    if ((c == '[' && inside) || (c == ']' && !inside)) refuse_list(list, "brackets that don't match");
    if (c == '[' || c == ']') inside = c == '[';
    if (at < list.size() && (c != ',' || inside)) continue;
    if (inside) refuse_list(list, "a bracket isn't closed");
    if (at == start) refuse_list(list, "a name is empty");
    names.push_back(list.substr(start, at - start));
    start = at + 1;
  }
  return names;
}

// The entry for `node` of "4(x2),3", which is 4, 4, 3.
int tasks_on(const Environment& environment, const std::string& name, int node) {
  const std::string expected =
      fmt::format("numbers of tasks by node, like \"4(x2),3\", with one for node {}", node);
  const std::string text = membership::need(environment, name, "Slurm", expected);
  int nodes_before = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const std::size_t times = entry.find("(x");
    const std::optional<int> tasks = membership::whole_number(entry.substr(0, times));
    std::optional<int> nodes = 1;
    if (times != std::string_view::npos) {
      if (!entry.ends_with(')')) membership::refuse(environment, name, expected);
      nodes = membership::whole_number(entry.substr(times + 2, entry.size() - times - 3));
    }
    if (!tasks || *tasks < 1 || !nodes || *nodes < 1 || *nodes > static_cast<int>(kMostNodes)) break;
    nodes_before += *nodes;
    if (node < nodes_before) return *tasks;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  membership::refuse(environment, name, expected);
}

const char* first_set(const Environment& environment, const char* first, const char* second) {
  return membership::given(environment, first) != nullptr ? first : second;
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string> result;
  for (const std::string_view name : split_names(list)) {
    for (std::string& node : expand_name(list, name)) result.push_back(std::move(node));
    if (result.size() > kMostNodes) refuse_list(list, "more than a million nodes");
  }
  return result;
}

namespace membership {

bool in_slurm_step(const Environment& environment) {
  const std::string* step = given(environment, first_set(environment, "SLURM_STEP_ID", "SLURM_STEPID"));
  if (given(environment, "SLURM_PROCID") == nullptr || step == nullptr) return false;
  // salloc's shell and batch scripts are steps with names, numbered from 0xfffffffa on (slurm.h).
  return step->size() < 10 || *step < "4294967290";
}

Membership from_slurm(const Environment& environment) {
  const std::string slurm = "Slurm";
  Membership found;
  found.launched_by = slurm;
  const char* size = first_set(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  const char* tasks = first_set(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const char* nodes = first_set(environment, "SLURM_STEP_NODELIST", "SLURM_NODELIST");
  const char* step = first_set(environment, "SLURM_STEP_ID", "SLURM_STEPID");
  found.world_size = number(environment, size, slurm, 1, kMostRanks);
  found.rank = number(environment, "SLURM_PROCID", slurm, 0, found.world_size - 1);
  found.local_size = tasks_on(environment, tasks, number(environment, "SLURM_NODEID", slurm, 0, kMostRanks));
  if (found.local_size > found.world_size) {
    refuse(environment, tasks, fmt::format("no more than the {} tasks of {}", found.world_size, size));
  }
  found.local_rank = number(environment, "SLURM_LOCALID", slurm, 0, found.local_size - 1);
  found.job_id = need(environment, "SLURM_JOB_ID", slurm, "the job's number") + "." +
                 need(environment, step, slurm, "a number");
  found.origin =
      fmt::format("Slurm (SLURM_PROCID, {}, SLURM_LOCALID, {}, {}, SLURM_JOB_ID)", size, tasks, nodes);
  const std::string first = expand_host_list(need(environment, nodes, slurm, "a list of nodes")).front();
  find_address(environment, first, fmt::format("the first node of {}", nodes), true, found);
  return found;
}

}  // namespace membership
}  // namespace orrery::launch
