#pragma once
// Runs a Job by events: devices that take one compute at a time, links shared max-min fairly, speeds that
// change while something else is active. All that happens at one instant happens before any speed
// is worked out again, so that no answer depends on the order in which events of one instant are taken.

#include <cstdint>
#include <memory>
#include <vector>

#include "simulator/engine.hpp"
#include "simulator/event_engine_heap.hpp"
#include "simulator/event_engine_units.hpp"
#include "simulator/fast_engine_layout.hpp"
#include "simulator/fast_engine_steps.hpp"
#include "simulator/max_min.hpp"
#include "simulator/watchdog.hpp"

namespace orrery::fast {

class EventEngine {
 public:
  EventEngine(const Layout& layout, const EngineOptions& options);

  // THROWS Error(kInfeasible) on a deadlock, HangError when what is lost holds others up for too long.
  Timeline run(EngineCounters& counters);

 private:
  enum class Wait : std::uint8_t { kNothing, kInstruction, kHost, kDevice, kOthers, kEndOfWork };
  struct Stream {
    const Node* next = nullptr;
    std::int32_t step = 0;
    std::int32_t next_waiter = -1;
    std::int32_t transfer = -1;  // Slot, while it takes part in one that has started.
    Wait wait = Wait::kNothing;
    std::int32_t waits_for = -1;  // Instruction of the role.
  };
  struct Device {               // Of a class.
    std::int32_t running = -1;  // Stream.
    std::int32_t queued = 0;    // Streams whose compute is ready.
    std::int32_t transfers = 0;
    bool dispatch_due = false;
    bool speed_due = false;
    bool counted_busy = false;  // By the transfers it takes part in.
    bool on_core = false;       // Counted by its pool of cores.
    double factor = 1;          // By which changes of the job slow it.
    std::int64_t speed = 0;     // 0: stands still, or not settled yet.
    std::int64_t since = 0;
    Wide work_left = 0;  // At `since`, in picoseconds × full speed.
  };
  struct Pool {  // Of cores.
    std::int32_t users = 0;
    std::vector<std::int32_t> classes;
  };
  enum class Phase : std::uint8_t { kFixed, kLatency, kFlow };  // kFixed: nothing can change its end.
  struct Active {                                               // A transfer that has started.
    std::int32_t rendezvous = 0;
    std::int32_t busy_devices = 0;  // Participants that compute.
    Phase phase = Phase::kFixed;
    bool rate_due = false;
    Rate rate = 0;
    std::int64_t begin = 0;  // Of the flow.
    std::int64_t since = 0;
    Wide left = 0;  // At `since`, in bytes × kRatePerByte × picoseconds per second.
  };
  struct Progress {
    std::int32_t steps = 0;          // In which it has ended.
    std::int32_t first_waiter = -1;  // A stream, linked by next_waiter; −1: none.
  };
  struct Step {
    std::unique_ptr<StepRecord> record;
    std::int64_t missing = 0;  // Instructions.
  };

  // Streams.
  void run_instant();
  void next_instant();
  void fire(std::int32_t id);
  void drain();
  void advance(std::int32_t id);
  bool waits_for_instruction(std::int32_t id, const Node& node);
  void finish_instruction(std::int32_t id);
  void arrive(std::int32_t id);
  Step& step(std::int32_t number) {
    if (static_cast<std::size_t>(number) >= steps_.size()) add_steps(number);
    return steps_[static_cast<std::size_t>(number)];
  }
  void add_steps(std::int32_t last);
  bool close_steps();
  void let_streams_on();
  std::vector<BlockedStream> blocked() const;
  // Devices.
  void dispatch();
  std::int32_t choose(std::int32_t rank_class) const;
  void finish_compute(std::int32_t rank_class);
  void speed_due(std::int32_t rank_class);
  void settle_cores();
  std::int64_t speed_of(std::int32_t rank_class) const;
  void settle_device(std::int32_t rank_class);
  void count_busy(std::int32_t rank_class, bool busy);
  void apply_changes();
  // Transfers.
  void begin_transfer(std::int32_t rendezvous);
  void begin_flow(std::int32_t slot);
  void finish_transfer(std::int32_t slot);
  void settle_rates();
  void settle_flow(std::int32_t slot, Rate rate);
  const TransferLayout& transfer_of(const Active& active) const;
  Rate cap_of(const Active& active) const;
  bool is_stopped(const TransferLayout& transfer) const;
  void rate_due(std::int32_t slot);

  Stream& stream(std::int32_t id) { return streams_[static_cast<std::size_t>(id)]; }
  Device& device(std::int32_t id) { return devices_[static_cast<std::size_t>(id)]; }
  Active& active(std::int32_t slot) { return active_[static_cast<std::size_t>(slot)]; }
  Times& times(std::int32_t of_step, std::int32_t instruction) {
    return (*step(of_step).record)[static_cast<std::size_t>(instruction)];
  }
  const StreamLayout& plan(std::int32_t id) const { return layout_.streams[static_cast<std::size_t>(id)]; }
  // Ids in the heap: a class's compute, a stream's launch, a slot's transfer.
  std::int32_t launch_id(std::int32_t id) const { return class_count_ + id; }
  std::int32_t transfer_id(std::int32_t slot) const { return class_count_ + stream_count_ + slot; }

  const Layout& layout_;
  const std::int32_t class_count_;
  const std::int32_t stream_count_;
  const std::int64_t launch_;
  const bool speeds_vary_;
  const bool slows_transfers_;
  const std::int64_t slow_speed_;  // Of a device while a transfer is active on it,
  const std::int64_t
      full_speed_;  // and otherwise; where cores are shared, of one that has a core for itself.
  std::int64_t now_ = 0;
  std::size_t next_change_ = 0;
  std::int64_t change_date_ = kForever;
  DateHeap heap_;
  MaxMin links_;
  std::vector<char> stopped_;  // By link: a change leaves nothing of it.
  Watchdog watchdog_;
  StepEnds ends_;
  std::int32_t step_limit_;  // No stream begins this step yet.
  EngineCounters counters_;
  std::vector<Stream> streams_;
  std::vector<Device> devices_;
  std::vector<Pool> pools_;
  std::vector<Active> active_;
  std::vector<std::int32_t> free_slots_;
  std::vector<std::int32_t> missing_;  // By rendezvous: participants that have not arrived.
  std::vector<Progress> progress_;     // By instruction.
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<StepRecord>> spare_records_;
  std::vector<std::int32_t> ready_streams_;
  std::vector<std::int32_t> dispatch_due_;  // Classes.
  std::vector<std::int32_t> speed_due_;     // Classes.
  std::vector<std::int32_t> rate_due_;      // Slots.
};

}  // namespace orrery::fast
