#include <nlohmann/json.hpp>

#include "report/summary.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

Json by_purpose(const std::vector<std::pair<Purpose, double>>& seconds) {
  Json object = Json::object();
  for (const auto& [purpose, value] : seconds) object[std::string(to_string(purpose))] = value;
  return object;
}

Json if_known(double seconds) { return seconds > 0 ? Json(seconds) : Json(nullptr); }

Json memory_by_stage(const Summary& summary, const Program& program) {
  std::vector<std::int64_t> ranks(program.roles.size());
  for (const RoleId role : program.role_of) {
    if (role.valid()) ++ranks[role.index()];
  }
  Json list = Json::array();
  for (std::size_t role = 0; role < summary.peak_by_role.size(); ++role) {
    const PeakMemory& peak = summary.peak_by_role[role];
    Json categories = Json::object();
    for (int i = 0; i < kMemoryCategoryCount; ++i) {
      categories[std::string(to_string(static_cast<MemoryCategory>(i)))] =
          peak.by_category[static_cast<std::size_t>(i)];
    }
    list.push_back({{"role", program.roles[role].name},
                    {"ranks", ranks[role]},
                    {"bytes", peak.bytes},
                    {"by_category", std::move(categories)}});
  }
  return list;
}

Json program_counts(const Summary& summary, const Program& program) {
  std::size_t instructions = 0;
  std::map<std::string, std::int64_t> collectives;
  for (const Role& role : program.roles) {
    instructions += role.instructions.size();
    for (const Instruction& instruction : role.instructions) {
      const auto* const collective = std::get_if<Collective>(&instruction.work);
      if (collective != nullptr) ++collectives[std::string(to_string(collective->kind))];
    }
  }
  return {{"collectives", collectives},
          {"roles", program.roles.size()},
          {"instructions", instructions},
          {"ranks", program.role_of.size()},
          {"rank_classes", summary.rank_classes}};
}

}  // namespace

std::string to_json(const Summary& summary, const Scenario& scenario, const Program& program) {
  const Json json = {
      {"scenario", scenario.name},
      {"engine", scenario.engine},
      {"plan", summary.plan},
      {"gpus", summary.gpus},
      {"tokens", summary.tokens},
      {"step_time_s", summary.step_time_s},
      {"step_time_low_s", if_known(summary.step_time_low_s)},
      {"step_time_high_s", if_known(summary.step_time_high_s)},
      {"makespan_s", summary.makespan_s},
      {"tokens_per_s_per_gpu", summary.tokens_per_s_per_gpu},
      {"tflops_per_gpu", summary.tflops_per_gpu},
      {"mfu", summary.mfu},
      {"compute_fraction", summary.compute_fraction},
      {"bubble_fraction", summary.bubble_fraction},
      {"exposed_comm_fraction", summary.exposed_comm_fraction},
      {"communication_fraction", summary.communication_fraction},
      {"overlap_ratio", summary.overlap_ratio},
      {"exposed_s", by_purpose(summary.exposed_s)},
      {"exposed_waiting_s", by_purpose(summary.exposed_waiting_s)},
      {"peak_memory_bytes", summary.peak_memory_bytes},
      {"planned_memory_bytes", summary.planned_memory_bytes},
      {"memory_bound_bytes", summary.memory_bound_bytes},
      {"gpu_memory_bytes", scenario.cluster.node.gpu.memory_bytes},
      {"memory", memory_by_stage(summary, program)},
      {"cost_per_million_tokens", summary.cost_per_million_tokens},
      {"currency", scenario.prices.currency},
      {"steps", summary.steps},
      {"step_times_s", summary.step_times_s},
      {"settled", summary.settled},
      {"program", program_counts(summary, program)},
      {"warnings", summary.warnings},
      {"notes", scenario.notes},
  };
  // Names come from files: bytes that aren't UTF-8 are replaced, as JSON can't hold them.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
