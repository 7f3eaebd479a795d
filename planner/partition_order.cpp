#include "planner/partition_order.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

// Launches are cut where ops of different devices meet.
std::vector<PlacedLaunch> place_launches(const PartitionProblem& problem, const Partition& partition) {
  std::vector<PlacedLaunch> placed;
  for (const Launch& launch : problem.launches()) {
    for (std::size_t o = 0; o < launch.ops.size(); ++o) {
      const std::int32_t device = partition.device(launch.ops[o]);
      if (o == 0 || placed.back().device != device) {
        placed.push_back({{}, device, problem.graph()[launch.ops[o]].phase});
      }
      placed.back().launch.ops.push_back(launch.ops[o]);
    }
  }
  return placed;
}

class ListScheduler {
 public:
  ListScheduler(const PartitionProblem& problem, const Partition& partition, std::int32_t microbatches)
      : problem_(problem), microbatches_(microbatches), devices_(problem.devices()) {
    order_.launches = place_launches(problem, partition);
    const std::set<std::int32_t> used(partition.device_of.begin(), partition.device_of.end());
    in_flight_ = static_cast<std::int32_t>(std::ssize(used));
    state_.resize(static_cast<std::size_t>(devices_));
    channel_free_.resize(static_cast<std::size_t>(devices_ * devices_));
    connect();
  }

  PartitionOrder run() {
    for (std::int32_t m = 0; m < std::min(in_flight_, microbatches_); ++m) release(m);
    dispatch();
    while (!coming_.empty()) {
      now_ = std::get<0>(coming_.top());
      while (!coming_.empty() && std::get<0>(coming_.top()) == now_) {
        const Happening next = std::get<2>(coming_.top());
        coming_.pop();
        if (next.launch >= 0) {
          finish(next);
        } else {
          arrive(next.tensor, next.device, next.microbatch);
        }
      }
      dispatch();
    }
    order_.makespan = now_;
    return std::move(order_);
  }

 private:
  // A launch has ended, or a tensor has come to a device.
  struct Happening {
    std::int32_t launch = -1;
    TensorId tensor;
    std::int32_t device = 0;
    std::int32_t microbatch = 0;
    auto operator<=>(const Happening&) const = default;
  };
  using Coming = std::tuple<SimTime, std::int64_t, Happening>;  // When; the earlier found first.

  struct Device {
    // Of what is ready: forward after backward, micro-batch, launch.
    std::set<std::tuple<bool, std::int32_t, std::int32_t>> ready;
    bool busy = false;
    std::int32_t last_ended = -1;  // Event of the launch that ended last.
    std::int32_t under_way = -1;   // Event of the launch that runs.
  };
  struct Readers {
    std::int32_t device = 0;
    std::vector<std::int32_t> launches;
  };

  // Which launches wait for which tensors.
  void connect() {
    const Graph& graph = problem_.graph();
    std::vector<std::int32_t> launch_of(graph.ops.size(), -1);
    for (std::size_t l = 0; l < order_.launches.size(); ++l) {
      for (const OpId op : order_.launches[l].launch.ops)
        launch_of[op.index()] = static_cast<std::int32_t>(l);
      time_.push_back(problem_.time(order_.launches[l].launch));
    }
    waits_.assign(order_.launches.size(), 0);
    made_.resize(order_.launches.size());
    readers_.resize(graph.tensors.size());
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const TensorId tensor(static_cast<std::int64_t>(t));
      if (!problem_.travels(tensor)) continue;
      const std::int32_t maker = launch_of[graph[tensor].producer.index()];
      made_[static_cast<std::size_t>(maker)].push_back(tensor);
      std::map<std::int32_t, std::set<std::int32_t>> by_device;
      for (const OpId reader : problem_.index().readers[t]) {
        const std::int32_t launch = launch_of[reader.index()];
        if (launch >= 0 && launch != maker) by_device[launch_at(launch).device].insert(launch);
      }
      for (const auto& [device, launches] : by_device) {
        readers_[t].push_back({device, {launches.begin(), launches.end()}});
        for (const std::int32_t launch : launches) ++waits_[static_cast<std::size_t>(launch)];
      }
    }
    missing_.resize(static_cast<std::size_t>(microbatches_));
    unfinished_.assign(static_cast<std::size_t>(microbatches_),
                       static_cast<std::int32_t>(std::ssize(order_.launches)));
  }

  const PlacedLaunch& launch_at(std::int32_t launch) const {
    return order_.launches[static_cast<std::size_t>(launch)];
  }
  Device& device_at(std::int32_t device) { return state_[static_cast<std::size_t>(device)]; }

  void release(std::int32_t microbatch) {
    missing_[static_cast<std::size_t>(microbatch)] = waits_;
    for (std::size_t l = 0; l < waits_.size(); ++l) {
      if (waits_[l] == 0) make_ready(static_cast<std::int32_t>(l), microbatch);
    }
  }

  void make_ready(std::int32_t launch, std::int32_t microbatch) {
    const PlacedLaunch& placed = launch_at(launch);
    device_at(placed.device).ready.emplace(placed.phase == Phase::kForward, microbatch, launch);
  }

  void dispatch() {
    for (Device& device : state_) {
      if (device.busy || device.ready.empty()) continue;
      const auto [forward, microbatch, launch] = *device.ready.begin();
      device.ready.erase(device.ready.begin());
      device.busy = true;
      device.under_way = static_cast<std::int32_t>(std::ssize(order_.events));
      order_.events.push_back({launch, {}, -1, microbatch, -1});
      expect(now_ + time_[static_cast<std::size_t>(launch)],
             {launch, {}, launch_at(launch).device, microbatch});
    }
  }

  void expect(SimTime when, const Happening& what) { coming_.emplace(when, found_++, what); }

  void finish(const Happening& ended) {
    Device& device = device_at(ended.device);
    device.busy = false;
    device.last_ended = device.under_way;
    for (const TensorId tensor : made_[static_cast<std::size_t>(ended.launch)]) {
      for (const Readers& readers : readers_[tensor.index()]) {
        if (readers.device == ended.device) {
          arrive(tensor, ended.device, ended.microbatch);
        } else {
          send(tensor, ended.device, readers.device, ended.microbatch);
        }
      }
    }
    const std::int32_t next = ended.microbatch + in_flight_;
    if (--unfinished_[static_cast<std::size_t>(ended.microbatch)] == 0 && next < microbatches_) release(next);
  }

  void send(TensorId tensor, std::int32_t from, std::int32_t to, std::int32_t microbatch) {
    order_.events.push_back({-1, tensor, to, microbatch, device_at(to).last_ended});
    SimTime& free = channel_free_[static_cast<std::size_t>(from * devices_ + to)];
    const auto [known, inserted] = paths_.try_emplace({from, to});
    if (inserted) known->second = problem_.router().path(from, to);
    const Path& path = known->second;
    const double seconds = path.latency_s + static_cast<double>(problem_.bytes(tensor)) / path.bytes_per_s();
    free = std::max(free, now_) + from_seconds(seconds);
    expect(free, {-1, tensor, to, microbatch});
  }

  void arrive(TensorId tensor, std::int32_t device, std::int32_t microbatch) {
    for (const Readers& readers : readers_[tensor.index()]) {
      if (readers.device != device) continue;
      for (const std::int32_t launch : readers.launches) {
        std::int32_t& missing =
            missing_[static_cast<std::size_t>(microbatch)][static_cast<std::size_t>(launch)];
        if (--missing == 0) make_ready(launch, microbatch);
      }
    }
  }

  const PartitionProblem& problem_;
  const std::int32_t microbatches_;
  const std::int32_t devices_;
  std::int32_t in_flight_ = 1;
  PartitionOrder order_;
  std::vector<SimTime> time_;                       // By launch.
  std::vector<std::int32_t> waits_;                 // By launch: tensors that others make for it.
  std::vector<std::vector<TensorId>> made_;         // By launch.
  std::vector<std::vector<Readers>> readers_;       // By tensor: other launches.
  std::vector<std::vector<std::int32_t>> missing_;  // By micro-batch and launch.
  std::vector<std::int32_t> unfinished_;            // By micro-batch: launches.
  std::vector<Device> state_;
  std::vector<SimTime> channel_free_;  // From device · devices + to device.
  std::map<std::pair<std::int32_t, std::int32_t>, Path> paths_;
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> coming_;
  std::int64_t found_ = 0;
  SimTime now_;
};

}  // namespace

PartitionOrder order_partition(const PartitionProblem& problem, const Partition& partition,
                               std::int32_t microbatches) {
  return ListScheduler(problem, partition, microbatches > 0 ? microbatches : problem.microbatches()).run();
}

}  // namespace orrery
