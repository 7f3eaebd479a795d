#include "cli/graph_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/units.hpp"
#include "model/graph_hash.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

// Sums over some ops.
struct Totals {
  std::int64_t ops = 0;
  double flops = 0;
  double bytes = 0;             // Read and written.
  double activation_bytes = 0;  // Made by forward ops, views not counted.
  double parameters = 0;
};

struct Explained {
  Totals all;
  double by_phase[3] = {0, 0, 0};  // Arithmetic.
  std::map<std::string, Totals> kinds;
  std::map<std::int32_t, Totals> blocks;
  std::int64_t tensors = 0, inputs = 0;
};

double activation_bytes(const LoadedGraph& loaded, const Op& op) {
  if (op.phase != Phase::kForward || op.attributes.view || op.kind == OpKind::kReshape) return 0;
  double bytes = 0;
  for (const TensorId output : op.outputs)
    bytes += static_cast<double>(size_bytes(loaded.graph, output, loaded.sizes));
  return bytes;
}

Explained explained(const LoadedGraph& loaded) {
  Explained result;
  const Graph& graph = loaded.graph;
  for (const Op& op : graph.ops) {
    const Traffic moved = traffic(graph, op, loaded.sizes);
    const double arithmetic = flops(graph, op, loaded.sizes);
    std::string kind(to_string(op.kind));
    if (only_imported(op.kind) && !op.attributes.word.empty()) kind += ":" + op.attributes.word;
    for (Totals* totals : {&result.all, &result.kinds[kind], &result.blocks[op.block]}) {
      ++totals->ops;
      totals->flops += arithmetic;
      totals->bytes += static_cast<double>(moved.read_bytes) + static_cast<double>(moved.written_bytes);
      totals->activation_bytes += activation_bytes(loaded, op);
    }
    result.by_phase[static_cast<std::size_t>(op.phase)] += arithmetic;
  }
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    ++result.tensors;
    result.inputs += tensor.kind == TensorKind::kInput ? 1 : 0;
    if (tensor.kind != TensorKind::kParameter) continue;
    const auto count =
        static_cast<double>(element_count(graph, TensorId(static_cast<std::int64_t>(i)), loaded.sizes));
    result.all.parameters += count;
    result.blocks[tensor.block].parameters += count;
  }
  return result;
}

std::string count_text(double count) { return format_count(static_cast<std::int64_t>(count)); }

std::string row(std::string_view name, const Totals& totals) {
  return fmt::format("  {:<34} {:>7} {:>12.4g} {:>11} {:>11} {:>15}\n", name, totals.ops, totals.flops,
                     format_bytes(totals.bytes), format_bytes(totals.activation_bytes),
                     count_text(totals.parameters));
}

std::string header(std::string_view first) {
  return fmt::format("\n  {:<34} {:>7} {:>12} {:>11} {:>11} {:>15}\n", first, "ops", "flops", "traffic",
                     "activations", "parameters");
}

Json json(const Totals& totals) {
  return {{"ops", totals.ops},
          {"flops", totals.flops},
          {"traffic_bytes", totals.bytes},
          {"activation_bytes", totals.activation_bytes},
          {"parameters", totals.parameters}};
}

// ---- Traces.

struct Work {
  std::int64_t count = 0;
  double bytes = 0;
  double time_s = 0;  // A sum of SimTime may be too large for one.
};

std::string kind_of(const Instruction& instruction) {
  if (std::holds_alternative<Compute>(instruction.work)) return "compute";
  if (std::holds_alternative<Send>(instruction.work)) return "send";
  if (std::holds_alternative<Recv>(instruction.work)) return "receive";
  if (std::holds_alternative<Copy>(instruction.work)) return "copy";
  return std::string(to_string(std::get<Collective>(instruction.work).kind));
}

double bytes_of(const Instruction& instruction) {
  return std::visit(
      [](const auto& work) -> double {
        if constexpr (requires { work.bytes; }) return static_cast<double>(work.bytes);
        return 0;
      },
      instruction.work);
}

std::map<std::string, Work> work_of(const Program& program, const Role& role) {
  std::map<std::string, Work> kinds;
  for (const Instruction& instruction : role.instructions) {
    Work& work = kinds[kind_of(instruction)];
    ++work.count;
    work.bytes += bytes_of(instruction);
    if (const auto* compute = std::get_if<Compute>(&instruction.work))
      work.time_s += program.kernels[compute->kernel.index()].fixed.seconds();
  }
  return kinds;
}

std::string trace_text(const LoadedGraph& loaded, const std::string& file) {
  const Program& program = loaded.trace.program;
  std::string text =
      fmt::format("{} (chakra)\n  ranks {}, roles {}\n", file, program.world_size(), program.roles.size());
  for (std::size_t i = 0; i < program.roles.size(); ++i) {
    const auto ranks =
        std::count(program.role_of.begin(), program.role_of.end(), RoleId(static_cast<std::int64_t>(i)));
    text += fmt::format("\n  {}: {} ranks, {} instructions on {} streams\n", program.roles[i].name, ranks,
                        program.roles[i].instructions.size(), program.roles[i].streams.size());
    for (const auto& [kind, work] : work_of(program, program.roles[i])) {
      text += fmt::format("    {:<16} {:>8}  {:>12}  {}\n", kind, work.count,
                          work.bytes > 0 ? format_bytes(work.bytes) : "",
                          work.time_s > 0 ? fmt::format("{:.6g} s", work.time_s) : "");
    }
  }
  return text;
}

Json trace_json(const LoadedGraph& loaded) {
  const Program& program = loaded.trace.program;
  Json roles = Json::array();
  for (std::size_t i = 0; i < program.roles.size(); ++i) {
    Json kinds = Json::object();
    for (const auto& [kind, work] : work_of(program, program.roles[i])) {
      kinds[kind] = {{"count", work.count}, {"bytes", work.bytes}, {"time_s", work.time_s}};
    }
    roles.push_back({{"name", program.roles[i].name},
                     {"ranks", std::count(program.role_of.begin(), program.role_of.end(),
                                          RoleId(static_cast<std::int64_t>(i)))},
                     {"streams", program.roles[i].streams.size()},
                     {"instructions", kinds}});
  }
  return {{"ranks", program.world_size()}, {"roles", roles}};
}

}  // namespace

std::vector<std::string> faults_of(const LoadedGraph& loaded) {
  return loaded.is_trace() ? verify(loaded.trace.program) : verify(loaded.graph);
}

std::string explain_text(const LoadedGraph& loaded, const std::string& file) {
  if (loaded.is_trace()) return trace_text(loaded, file);
  const Explained all = explained(loaded);
  std::string text = fmt::format("{} ({})\n", file, to_string(loaded.format));
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("  {:<14} {}\n", key, value);
  };
  line("hash", hash_text(graph_hash(loaded.graph)));
  line("parameters", count_text(all.all.parameters));
  line("ops", format_count(all.all.ops));
  line("tensors", fmt::format("{}, inputs {}", format_count(all.tensors), all.inputs));
  line("flops", fmt::format("{:.6g} (forward {:.6g}, backward {:.6g}, optimizer {:.6g})", all.all.flops,
                            all.by_phase[0], all.by_phase[1], all.by_phase[2]));
  line("traffic", format_bytes(all.all.bytes));
  line("activations", format_bytes(all.all.activation_bytes));
  text += header("kind");
  for (const auto& [kind, totals] : all.kinds) text += row(kind, totals);
  text += header("block");
  for (const auto& [block, totals] : all.blocks) text += row(fmt::format("{}", block), totals);
  return text;
}

std::string explain_json(const LoadedGraph& loaded, const std::string& file) {
  Json root = {{"file", file}, {"format", to_string(loaded.format)}};
  if (loaded.is_trace()) {
    root.update(trace_json(loaded));
  } else {
    const Explained all = explained(loaded);
    root["hash"] = hash_text(graph_hash(loaded.graph));
    root["tensors"] = all.tensors;
    root["inputs"] = all.inputs;
    root["layers"] = loaded.graph.layers;
    root["total"] = json(all.all);
    root["flops"] = {
        {"forward", all.by_phase[0]}, {"backward", all.by_phase[1]}, {"optimizer", all.by_phase[2]}};
    for (const auto& [kind, totals] : all.kinds) root["kinds"][kind] = json(totals);
    for (const auto& [block, totals] : all.blocks) root["blocks"][std::to_string(block)] = json(totals);
  }
  root["notes"] = loaded.notes;
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
