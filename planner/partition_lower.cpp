#include "planner/partition_lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "planner/partition_order.hpp"
#include "planner/role_optimizer.hpp"
#include "planner/role_writer.hpp"
#include "planner/stage_builder.hpp"

namespace orrery {
namespace {

// What one device does, written down event by event.
class DeviceRole {
 public:
  DeviceRole(const PartitionProblem& problem, const Partition& partition, std::int32_t device,
             SymbolTable& symbols)
      : problem_(problem), graph_(problem.graph()), out_(symbols), state_{problem.plan(), out_, {}, {}} {
    out_.role.name = fmt::format("gpu{}", device);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (partition.device(OpId(static_cast<std::int64_t>(o))) != device) continue;
      for (const TensorId input : graph_.ops[o].inputs) {
        if (graph_[input].kind == TensorKind::kParameter && !parameter_of_.contains(input)) {
          add_parameter(input);
        }
      }
    }
  }

  // Returns the instruction.
  std::int32_t compute(const PlacedLaunch& placed, std::int32_t microbatch) {
    const std::vector<OpId>& ops = placed.launch.ops;
    out_.open(planned(placed), microbatch);
    touched_.clear();
    for (const OpId op : ops) {
      for (const TensorId input : graph_[op].inputs) {
        const OpId producer = graph_[input].producer;
        if (producer.valid() && std::ranges::find(ops, producer) != ops.end()) continue;
        await(input, microbatch);
        touch(buffer_of(input, microbatch), false);
      }
    }
    for (const OpId op : ops) {
      for (const TensorId output : graph_[op].outputs) touch(buffer_of(output, microbatch), true);
    }
    for (const auto& [buffer, writes] : touched_) out_.touch(buffer, writes);
    const std::int32_t made = out_.close();
    for (const OpId op : ops) {
      for (const TensorId output : graph_[op].outputs) made_[{microbatch, output}] = made;
    }
    return made;
  }

  // `offset`: where the other device's rank is on `axis`.
  void send(TensorId tensor, std::int32_t microbatch, std::int32_t device, AxisId axis, std::int32_t offset) {
    open_message(tensor, microbatch, fmt::format("to_gpu{}", device),
                 Send{axis, offset, problem_.bytes(tensor)});
    out_.after(made_.at({microbatch, tensor}));
    out_.touch(buffer_of(tensor, microbatch), false);
    out_.close();
  }

  void receive(TensorId tensor, std::int32_t microbatch, std::int32_t device, AxisId axis,
               std::int32_t offset, std::int32_t after) {
    open_message(tensor, microbatch, fmt::format("from_gpu{}", device),
                 Recv{axis, offset, problem_.bytes(tensor)});
    out_.after(after);
    out_.touch(buffer_of(tensor, microbatch), true);
    received_[{microbatch, tensor}] = out_.close();
  }

  Role finish(AxisId world) {
    RoleOptimizer(state_).finish(world,
                                 RoleGradients(state_, 1));  // No bucket: every gradient is whole here.
    return std::move(out_.role);
  }

 private:
  using Instance = std::pair<std::int32_t, TensorId>;  // Micro-batch, tensor.

  void add_parameter(TensorId tensor) {
    const Tensor& data = graph_[tensor];
    RoleParameter parameter;
    parameter.tensor = tensor;
    parameter.block = parameter.last_block = data.block;
    parameter.elements = problem_.sharding().stored_elements(tensor);
    const std::string name = without_layer(data.name);
    const auto add = [&](const std::string& label, MemoryCategory category, DType dtype) {
      Buffer buffer;
      buffer.label = out_.symbols.label(label);
      buffer.layer = data.block;
      buffer.category = category;
      buffer.bytes = parameter.elements * size_bytes(dtype);
      buffer.persistent = true;
      buffer.tensor = tensor;
      buffer.placement = problem_.sharding().stored(tensor);
      out_.role.buffers.push_back(buffer);
      return static_cast<std::int32_t>(std::ssize(out_.role.buffers) - 1);
    };
    parameter.weights = add(name, MemoryCategory::kParameters, problem_.plan().compute_dtype);
    parameter.gradient = add(name + ".gradient", MemoryCategory::kGradients, problem_.plan().gradient_dtype);
    parameter_of_[tensor] = state_.parameters.size();
    state_.parameters.push_back(std::move(parameter));
  }

  const RoleParameter& parameter(TensorId tensor) const {
    return state_.parameters[parameter_of_.at(tensor)];
  }

  // What is the same for every micro-batch.
  const TemplateInstruction& planned(const PlacedLaunch& placed) {
    const auto [known, inserted] = planned_.try_emplace(placed.launch.ops.front());
    TemplateInstruction& compute = known->second;
    if (!inserted) return compute;
    std::string name;
    for (const OpId op : placed.launch.ops)
      name += (name.empty() ? "" : "+") + without_layer(graph_[op].name);
    compute.label = out_.symbols.label(name);
    compute.layer = graph_[placed.launch.ops.front()].block;
    compute.purpose = placed.phase == Phase::kForward ? Purpose::kForward : Purpose::kBackward;
    compute.ops = placed.launch.ops;
    Kernel kernel = problem_.kernel(placed.launch);
    kernel.label = compute.label;
    compute.work = Compute{out_.symbols.kernel(kernel)};
    return compute;
  }

  void touch(std::int32_t buffer, bool writes) {
    const auto known = std::ranges::find(touched_, buffer, [](const auto& operand) { return operand.first; });
    if (known == touched_.end()) {
      touched_.emplace_back(buffer, writes);
    } else {
      known->second = known->second || writes;
    }
  }

  // Streams are in order: what the device has waited for once, and all before it from there, has come.
  void await(TensorId tensor, std::int32_t microbatch) {
    const auto found = received_.find({microbatch, tensor});
    if (found == received_.end()) return;
    const StreamId stream = out_.role.instructions[static_cast<std::size_t>(found->second)].stream;
    const auto [awaited, inserted] = awaited_.try_emplace(stream, -1);
    if (awaited->second >= found->second) return;
    awaited->second = found->second;
    out_.after(found->second);
  }

  std::int32_t buffer_of(TensorId tensor, std::int32_t microbatch) {
    const Tensor& data = graph_[tensor];
    if (data.kind == TensorKind::kParameter) return parameter(tensor).weights;
    if (data.kind == TensorKind::kParameterGradient) return parameter(data.gradient_of).gradient;
    const auto [known, inserted] = buffers_.try_emplace({microbatch, tensor});
    if (!inserted) return known->second;
    const auto [label, is_new] = labels_.try_emplace(tensor);
    if (is_new) label->second = out_.symbols.label(without_layer(data.name));
    Buffer buffer;
    buffer.label = label->second;
    buffer.layer = data.block;
    buffer.microbatch = microbatch;
    buffer.category =
        data.kind == TensorKind::kGradient ? MemoryCategory::kWorkspace : MemoryCategory::kActivations;
    buffer.bytes = problem_.bytes(tensor);
    buffer.tensor = tensor;
    buffer.placement = problem_.sharding().stored(tensor);
    known->second = static_cast<std::int32_t>(std::ssize(out_.role.buffers));
    out_.role.buffers.push_back(buffer);
    return known->second;
  }

  // A stream for each direction and other device, so that a message that isn't due holds up none that is.
  void open_message(TensorId tensor, std::int32_t microbatch, const std::string& peer, const Work& work) {
    const auto [stream, inserted] = streams_.try_emplace(peer, out_.role.streams.size());
    if (inserted) out_.role.streams.push_back({peer, 0});
    TemplateInstruction planned;
    planned.label = out_.symbols.label(without_layer(graph_[tensor].name) + "." + peer);
    planned.layer = graph_[tensor].block;
    planned.stream = static_cast<std::int32_t>(stream->second);
    planned.purpose = Purpose::kPipeline;
    planned.work = work;
    out_.open(planned, microbatch);
  }

  const PartitionProblem& problem_;
  const Graph& graph_;
  RoleWriter out_;
  RoleDraft state_;                               // Without buckets: nobody else has a part of a gradient.
  std::map<TensorId, std::size_t> parameter_of_;  // Into state_.parameters.
  std::map<OpId, TemplateInstruction> planned_;   // By the first op of a launch.
  std::map<TensorId, LabelId> labels_;            // Of buffers.
  std::map<std::string, std::size_t> streams_;    // By name: of messages.
  std::map<Instance, std::int32_t> buffers_, made_, received_;
  std::map<StreamId, std::int32_t> awaited_;  // By stream of receives: the last one waited for.
  std::vector<std::pair<std::int32_t, bool>> touched_;
};

class PartitionLowering {
 public:
  PartitionLowering(const PartitionProblem& problem, const Partition& partition)
      : problem_(problem), order_(order_partition(problem, partition)) {
    for (std::int32_t device = 0; device < problem.devices(); ++device) {
      const auto used = std::ranges::find(partition.device_of, device);
      position_of_.push_back(
          used == partition.device_of.end() ? -1 : static_cast<std::int32_t>(std::ssize(roles_)));
      if (used == partition.device_of.end()) continue;
      device_at_.push_back(device);
      roles_.emplace_back(problem, partition, device, symbols_);
    }
  }

  Program run() {
    std::vector<std::int32_t> instruction(order_.events.size(), -1);  // Of launches, on their device.
    for (std::size_t e = 0; e < order_.events.size(); ++e) {
      const PartitionEvent& event = order_.events[e];
      if (event.launch >= 0) {
        const PlacedLaunch& placed = order_.launches[static_cast<std::size_t>(event.launch)];
        instruction[e] = role_of(placed.device).compute(placed, event.microbatch);
        for (const OpId op : placed.launch.ops) device_of_op_[op] = placed.device;
        continue;
      }
      message(event, event.after < 0 ? -1 : instruction[static_cast<std::size_t>(event.after)]);
    }
    return finish();
  }

 private:
  DeviceRole& role_of(std::int32_t device) {
    return roles_[static_cast<std::size_t>(position_of_[static_cast<std::size_t>(device)])];
  }

  void message(const PartitionEvent& event, std::int32_t after) {
    const std::int32_t from = device_of_op_.at(problem_.graph()[event.tensor].producer);
    const std::int32_t offset =
        position_of_[static_cast<std::size_t>(event.to)] - position_of_[static_cast<std::size_t>(from)];
    role_of(from).send(event.tensor, event.microbatch, event.to, kWorld, offset);
    role_of(event.to).receive(event.tensor, event.microbatch, from, kWorld, -offset, after);
  }

  Program finish() {
    Program program;
    program.name = problem_.graph().name;
    program.captured = problem_.plan().cuda_graphs;
    program.placements = problem_.sharding().placements();
    program.sizes = problem_.sharding().global_sizes();
    Axis world{"world", {{}}};
    for (std::size_t rank = 0; rank < roles_.size(); ++rank) {
      world.groups[0].emplace_back(static_cast<std::int64_t>(rank));
      program.role_of.emplace_back(static_cast<std::int64_t>(rank));
      program.device_of.push_back(device_at_[rank]);
      program.roles.push_back(roles_[rank].finish(roles_.size() > 1 ? kWorld : AxisId()));
    }
    if (roles_.size() > 1) program.axes.push_back(std::move(world));
    program.labels = std::move(symbols_.labels);
    program.kernels = std::move(symbols_.kernels);
    return program;
  }

  inline static const AxisId kWorld{0};

  const PartitionProblem& problem_;
  const PartitionOrder order_;
  SymbolTable symbols_;
  std::vector<std::int32_t> position_of_;  // By device; −1: not in use.
  std::vector<std::int32_t> device_at_;    // By rank.
  std::deque<DeviceRole> roles_;           // They don't move: their parts know each other.
  std::map<OpId, std::int32_t> device_of_op_;
};

}  // namespace

Program lower_partition(const PartitionProblem& problem, const Partition& partition) {
  return PartitionLowering(problem, partition).run();
}

}  // namespace orrery
