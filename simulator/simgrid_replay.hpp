#pragma once
// Runs a Job on SimGrid's clock: what may start when is decided here, how long it then takes by SimGrid.

#include <cstdint>
#include <memory>
#include <vector>

#include "simulator/engine.hpp"
#include "simulator/fast_engine_layout.hpp"
#include "simulator/fast_engine_steps.hpp"
#include "simulator/simgrid_world.hpp"
#include "simulator/watchdog.hpp"

namespace orrery::simgrid_engine {

// By how many picoseconds the periods of a steady state may differ: each shared transfer rounds up to the
// next one, from a clock that stands elsewhere in every step.
inline constexpr std::int64_t kPeriodTolerance = 16;

class Replay {
 public:
  Replay(const fast::Layout& layout, const EngineOptions& options);

  // Once. THROWS Error(kInfeasible) on a deadlock, and when something would never end; a fast::Stall when the
  // watchdog bites.
  void run();

  const fast::StepEnds& ends() const { return ends_; }
  const fast::StepRecord& last_step() const {
    return *steps_[static_cast<std::size_t>(ends_.count() - 1)].record;
  }
  const EngineCounters& counters() const { return counters_; }

 private:
  enum class State : std::uint8_t {
    kGoing,
    kNeedsInstruction,
    kNeedsHost,
    kQueued,
    kRunning,
    kMeeting,
    kMoving
  };
  struct Stream {
    const fast::Node* next = nullptr;
    std::int32_t step = 0;
    State state = State::kGoing;
    std::int32_t waits_for = -1;  // Instruction of the role.
    std::int32_t next_waiter = -1;
    std::int32_t transfer = -1;  // While kMoving.
  };
  // Something that is worked off at a speed that may change: 1 is full speed, 0 standstill.
  struct Effort {
    double left = 0;  // Picoseconds at full speed, at `since`.
    double speed = 0;
    std::int64_t since = 0;
  };
  struct Device {                // Of a class.
    std::int32_t running = -1;   // Stream.
    std::int32_t transfers = 0;  // It takes part in.
    double factor = 1;           // By the job's changes.
    Effort effort;
    bool counted_busy = false;
    bool occupies_core = false;
    bool looked_for = false;
    bool unsettled = false;
  };
  // A transfer is known by the stream of its first participant, which it holds.
  enum class Phase : std::uint8_t { kLatency, kAlone, kOnLinks };
  struct Transfer {
    std::int32_t rendezvous = -1;
    std::int32_t busy_devices = 0;
    Phase phase = Phase::kLatency;
    Effort effort;  // kAlone.
    bool unsettled = false;
  };
  struct Step {
    std::unique_ptr<fast::StepRecord> record;
    std::int64_t missing = 0;
  };

  void find_uses();
  WorldShape world_shape() const;

  void handle(std::int64_t now, std::span<const Due> due);
  void check_watchdog(std::int64_t next);
  void happen(Due due);
  void ring(std::int32_t alarm);
  // Streams. (simgrid_replay.cpp)
  void go_on(std::int32_t stream);
  bool has_to_wait(std::int32_t stream);
  void reach(std::int32_t stream);
  void pass(std::int32_t stream);
  void close_steps();
  std::vector<fast::BlockedStream> blocked() const;
  // Devices and transfers. (simgrid_replay_efforts.cpp)
  void look_for_compute(std::int32_t rank_class);
  void choose_computes();
  void begin_compute(std::int32_t rank_class, std::int32_t stream);
  void end_compute(std::int32_t rank_class);
  void begin_transfer(std::int32_t rendezvous);
  void begin_moving(std::int32_t transfer);
  void end_transfer(std::int32_t transfer);
  void apply_changes();
  void settle_device_later(std::int32_t rank_class);
  void settle_transfer_later(std::int32_t transfer);
  void settle();
  void occupy_cores();
  double speed_of(std::int32_t rank_class) const;
  void settle_device(std::int32_t rank_class);
  void settle_transfer(std::int32_t transfer);
  void set_speed(Effort& effort, double speed, std::int32_t alarm);

  template <class T>
  static T& at(std::vector<T>& all, std::int32_t i) {
    return all[static_cast<std::size_t>(i)];
  }
  template <class T>
  static const T& at(const std::vector<T>& all, std::int32_t i) {
    return all[static_cast<std::size_t>(i)];
  }
  const Rendezvous& meeting(std::int32_t i) const { return at(job_.rendezvous, i); }
  const orrery::Transfer& needs(std::int32_t transfer) const {
    return at(job_.transfers, meeting(at(transfers_, transfer).rendezvous).transfer);
  }
  fast::Times& times(std::int32_t step, std::int32_t instruction);
  // Alarms: computes by class, launches and transfers by stream, the next change.
  std::int32_t launch_alarm(std::int32_t stream) const { return class_count_ + stream; }
  std::int32_t transfer_alarm(std::int32_t stream) const { return class_count_ + stream_count_ + stream; }
  std::int32_t change_alarm() const { return class_count_ + 2 * stream_count_; }

  const fast::Layout& layout_;
  const Job& job_;
  const std::int32_t class_count_;
  const std::int32_t stream_count_;
  fast::StepEnds ends_;
  std::int32_t step_limit_;
  std::int64_t now_ = 0;
  std::size_t next_change_ = 0;
  fast::Watchdog watchdog_;
  EngineCounters counters_;
  std::vector<Stream> streams_;
  std::vector<Device> devices_;
  std::vector<std::int32_t> core_users_;    // By pool of cores.
  std::vector<Transfer> transfers_;         // By stream.
  std::vector<std::int32_t> missing_;       // By rendezvous: participants yet to come.
  std::vector<std::int32_t> passed_;        // By instruction: steps in which it has ended.
  std::vector<std::int32_t> first_waiter_;  // By instruction: a stream.
  std::vector<Step> steps_;
  std::vector<Due> due_;               // At this instant, yet to happen.
  std::vector<std::int32_t> going_;    // Streams to go on.
  std::vector<std::int32_t> looking_;  // Classes to choose a compute.
  std::vector<std::int32_t> unsettled_devices_, unsettled_transfers_;
  const std::vector<char> fillable_;  // By link.
  std::vector<Range> fillable_uses_;  // By transfer of the job, into uses_: links that can fill up.
  std::vector<LinkUse> uses_;
  std::vector<std::int32_t> flow_of_, stream_of_flow_;  // SimGrid's flows are numbered without gaps.
  std::unique_ptr<World> world_;
};

// By link: whether those who may use it at once could ask for more than it has at its worst. Transfers that
// hold the same stream never run at once.
std::vector<char> fillable_links(const fast::Layout& layout);

}  // namespace orrery::simgrid_engine
