#include "executor/runtime/measure.hpp"

#include <barrier>
#include <chrono>
#include <mutex>
#include <thread>

#include "executor/launch/shared_segment.hpp"
#include "executor/runtime/perform.hpp"
#include "executor/runtime/state.hpp"

namespace orrery::host {
namespace {

using Clock = std::chrono::steady_clock;

// One copy of the rank, with memory of its own.
class Copy {
 public:
  Copy(const Graph& graph, const Program& program, RankId rank, const RunCallbacks& callbacks)
      : rank_(rank),
        segment_(launch::SharedSegment::anonymous(static_cast<std::size_t>(
            layout_of(program.roles[program.role_of[rank.index()].index()], {}).bytes))),
        world_(program, memory(program), {}),
        tables_(graph, world_),
        bound_(bind_computes(graph, world_, rank)),
        performer_(graph, world_, rank, callbacks) {
    new (world_.memory(rank)) RankHeader;
    initialize(tables_, bound_, {});
  }

  void round(std::vector<std::vector<double>>* seconds) {
    for (std::size_t i = 0; i < bound_.instructions.size(); ++i) {
      const std::vector<Action>& actions = bound_.instructions[i].actions;
      if (actions.empty()) continue;
      const auto start = Clock::now();
      for (const Action& action : actions) performer_.perform(action, 0);
      const std::chrono::duration<double> took = Clock::now() - start;
      if (seconds != nullptr) (*seconds)[i].push_back(took.count());
    }
  }
  std::size_t instructions() const { return bound_.instructions.size(); }

 private:
  std::vector<std::byte*> memory(const Program& program) const {
    std::vector<std::byte*> by_rank(program.role_of.size(), nullptr);
    by_rank[rank_.index()] = segment_.bytes().data();
    return by_rank;
  }

  RankId rank_;
  launch::SharedSegment segment_;
  World world_;
  Tables tables_;
  BoundRank bound_;
  Performer performer_;
};

}  // namespace

std::vector<std::vector<double>> measure_computes(const Graph& graph, const Program& program, RankId rank,
                                                  const RunCallbacks& callbacks,
                                                  const MeasureOptions& options) {
  std::vector<std::vector<double>> all;
  std::mutex lock;
  std::barrier<> together(options.copies);
  const auto measure = [&] {
    Copy copy(graph, program, rank, callbacks);
    std::vector<std::vector<double>> seconds(copy.instructions());
    copy.round(nullptr);
    together.arrive_and_wait();
    for (std::int32_t round = 0; round < options.rounds; ++round) copy.round(&seconds);
    const std::lock_guard guard(lock);
    all.resize(seconds.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      all[i].insert(all[i].end(), seconds[i].begin(), seconds[i].end());
    }
  };
  std::vector<std::thread> others;
  for (std::int32_t copy = 1; copy < options.copies; ++copy) others.emplace_back(measure);
  measure();
  for (std::thread& other : others) other.join();
  return all;
}

}  // namespace orrery::host
