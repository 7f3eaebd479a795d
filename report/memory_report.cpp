#include "report/memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/units.hpp"
#include "model/program_ranks.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;
using Bytes = std::array<std::int64_t, kMemoryCategoryCount>;

std::int64_t total(const Bytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::vector<MemoryPoint> course(const Role& role) {
  const std::vector<MemoryPoint> points = memory_timeline(role);
  std::vector<MemoryPoint> highest(kCourseColumns);
  const auto instructions = static_cast<std::int64_t>(role.instructions.size()) + 1;  // With the one before.
  constexpr auto kColumns = static_cast<std::int64_t>(kCourseColumns);
  std::size_t next = 0;
  for (std::int64_t column = 0; column < kColumns; ++column) {
    MemoryPoint& point = highest[static_cast<std::size_t>(column)];
    if (next > 0) point = points[next - 1];  // Still so when the window begins.
    while (next < points.size() &&
           (points[next].instruction + std::int64_t{1}) * kColumns / instructions <= column) {
      if (total(points[next].by_category) > total(point.by_category)) point = points[next];
      ++next;
    }
  }
  return highest;
}

std::vector<RankId> ranks_of(const Program& program, RoleId role) {
  std::vector<RankId> ranks;
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
    if (program.role_of[rank] == role) ranks.emplace_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

std::string peak_place(const RoleMemory& memory, const Program& program) {
  const Role& role = program.roles[memory.role.index()];
  if (memory.peak.instruction < 0) return "before the step's first instruction";
  const auto index = static_cast<std::size_t>(memory.peak.instruction);
  return fmt::format("{}, instruction {} of {}", instruction_name(program, role.instructions[index]),
                     index + 1, role.instructions.size());
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

// Drawn from the bottom up: what stays through the step, then what comes and goes.
constexpr std::array<char, kMemoryCategoryCount> kInk = {'P', 'G', 'O', '+', '.', '~'};
constexpr int kCurveRows = 12;

std::string curve(const RoleMemory& memory) {
  const std::int64_t peak = std::max<std::int64_t>(memory.peak.bytes, 1);
  std::string text;
  for (int row = kCurveRows; row > 0; --row) {
    // The middle of the row's band decides; a column that reaches the peak fills the top row.
    const double level = (row - 0.5) / kCurveRows * static_cast<double>(peak);
    std::string line =
        row == kCurveRows ? fmt::format("  {:>8.2f} |", gib(peak)) : std::string(11, ' ') + "|";
    for (const MemoryPoint& point : memory.course) {
      std::int64_t below = 0;
      char ink = ' ';
      for (std::size_t c = 0; c < point.by_category.size() && ink == ' '; ++c) {
        below += point.by_category[c];
        if (static_cast<double>(below) >= level) ink = kInk[c];
      }
      line += ink;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += "      0.00 +" + std::string(kCourseColumns, '-') + " one step, in issue order\n";
  text += "            P parameters  G gradients  O optimizer  + activations  . workspace  ~ communication\n";
  return text;
}

Json categories(const Bytes& bytes) {
  Json object = Json::object();
  for (int c = 0; c < kMemoryCategoryCount; ++c) {
    object[std::string(to_string(static_cast<MemoryCategory>(c)))] = bytes[static_cast<std::size_t>(c)];
  }
  return object;
}

Json role_json(const RoleMemory& memory, const Program& program, bool offsets) {
  const Role& role = program.roles[memory.role.index()];
  Json points = Json::array();
  for (const MemoryPoint& point : memory.course) points.push_back(categories(point.by_category));
  Json allocators = Json::array();
  for (const AllocatorUse& use : memory.allocators) {
    allocators.push_back({{"name", use.name},
                          {"allocated_bytes", use.allocated_bytes},
                          {"reserved_bytes", use.reserved_bytes},
                          {"fragmentation", use.fragmentation()},
                          {"requests_per_step", use.requests},
                          {"first_device_calls", use.first_device_calls},
                          {"later_device_calls", use.later_device_calls}});
  }
  Json object = {{"role", role.name},
                 {"ranks", format_ranks(ranks_of(program, memory.role))},
                 {"peak_bytes", memory.peak.bytes},
                 {"peak_at", peak_place(memory, program)},
                 {"at_peak", categories(memory.peak.by_category)},
                 {"course", std::move(points)},
                 {"plan",
                  {{"arena_bytes", memory.plan.arena_bytes},
                   {"persistent_bytes", memory.plan.persistent_bytes},
                   {"issue_bytes", memory.plan.issue_bytes},
                   {"bound_bytes", memory.plan.bound_bytes},
                   {"gap", memory.plan.gap()},
                   {"unordered_buffers", memory.plan.unordered.size()}}},
                 {"buffers", memory.buffers},
                 {"buffer_bytes", memory.buffer_bytes},
                 {"allocators", std::move(allocators)}};
  if (!offsets) return object;
  Json places = Json::array();
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    if (memory.plan.offsets[b] < 0) continue;
    places.push_back({{"buffer", program.labels[buffer.label.index()]},
                      {"layer", buffer.layer},
                      {"microbatch", buffer.microbatch},
                      {"bytes", buffer.bytes},
                      {"offset", memory.plan.offsets[b]}});
  }
  object["offsets"] = std::move(places);
  return object;
}

}  // namespace

RoleMemory role_memory(const Program& program, RoleId id) {
  const Role& role = program.roles[id.index()];
  const ExecutionOrder order(program, id);
  RoleMemory memory;
  memory.role = id;
  memory.peak = peak_memory(role);
  memory.course = course(role);
  memory.plan = plan_memory(role, order);
  memory.allocators = {use_of_own_memory(role, order), use_of_caching(role, order),
                       use_of_plan(role, order, memory.plan)};
  const std::vector<Lifetime> lives = lifetimes(role);
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    if (role.buffers[b].persistent || lives[b].first < 0) continue;
    ++memory.buffers;
    memory.buffer_bytes += role.buffers[b].bytes;
  }
  return memory;
}

std::string to_table(const RoleMemory& memory, const Scenario& scenario, const Program& program) {
  const std::int64_t capacity = scenario.cluster.node.gpu.memory_bytes;
  std::string text = fmt::format("{} (ranks {}): peak {:.2f} GiB", program.roles[memory.role.index()].name,
                                 format_ranks(ranks_of(program, memory.role)), gib(memory.peak.bytes));
  if (capacity > 0) text += fmt::format(" of {:.2f}", gib(capacity));
  text += fmt::format("\n  at {}\n ", peak_place(memory, program));
  for (int c = 0; c < kMemoryCategoryCount; ++c) {
    text += fmt::format(" {} {:.2f}{}", to_string(static_cast<MemoryCategory>(c)),
                        gib(memory.peak.by_category[static_cast<std::size_t>(c)]),
                        c + 1 < kMemoryCategoryCount ? "," : " GiB\n\n");
  }
  text += curve(memory);

  const MemoryPlan& plan = memory.plan;
  text += fmt::format(
      "\n  memory plan: an arena of {:.2f} GiB, {:.2f} % above the bound of {:.2f} (live at once whatever "
      "the\n"
      "  timing of streams; {:.2f} in issue order)\n"
      "  one step's {} transient buffers have {:.2f} GiB and share {:.2f}: each byte serves {:.1f} times\n\n",
      gib(plan.arena_bytes), 100 * plan.gap(), gib(plan.bound_bytes), gib(plan.issue_bytes),
      format_count(memory.buffers), gib(memory.buffer_bytes), gib(plan.arena_bytes - plan.persistent_bytes),
      static_cast<double>(memory.buffer_bytes) /
          static_cast<double>(std::max<std::int64_t>(plan.arena_bytes - plan.persistent_bytes, 1)));
  text += fmt::format("  {:<14}{:>14}{:>14}{:>15}{:>16}{:>26}\n", "allocator", "asked for GiB", "held GiB",
                      "fragmentation", "requests a step", "cudaMalloc first, later");
  for (const AllocatorUse& use : memory.allocators) {
    text += fmt::format(
        "  {:<14}{:>14.2f}{:>14.2f}{:>13.1f} %{:>16}{:>26}\n", use.name, gib(use.allocated_bytes),
        gib(use.reserved_bytes), 100 * use.fragmentation(), format_count(use.requests),
        fmt::format("{}, {}", format_count(use.first_device_calls), format_count(use.later_device_calls)));
  }
  return text;
}

std::string to_json(const std::vector<RoleMemory>& roles, const Scenario& scenario, const Program& program,
                    bool offsets) {
  Json list = Json::array();
  for (const RoleMemory& memory : roles) list.push_back(role_json(memory, program, offsets));
  const Json root = {{"scenario", scenario.name},
                     {"gpu_memory_bytes", scenario.cluster.node.gpu.memory_bytes},
                     {"role_count", program.roles.size()},
                     {"roles", std::move(list)}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
