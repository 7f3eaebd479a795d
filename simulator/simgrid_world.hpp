#pragma once
// SimGrid as clock and as solver of shared links: alarms are kernel timers, flows are Comms over the very
// links that they are given, so that rates are plain max-min. A process has one world, as it can have one
// simgrid::s4u::Engine.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "simulator/job.hpp"

namespace orrery::simgrid_engine {

// No date is later.
inline constexpr std::int64_t kNever = 9'000'000'000'000'000'000;

// Alarms and flows are named by the caller's numbers, from 0.
struct Due {
  bool flow = false;  // Has moved its bytes; otherwise an alarm.
  std::int32_t id = 0;
};

struct WorldShape {
  std::span<const std::int64_t> link_capacity;  // Bytes per second; links without use cost nothing.
  std::vector<char> link_used;                  // By link.
  std::vector<char> link_varies;                // By link: set_capacity() will be called.
  std::int32_t alarms = 0;
  std::int32_t flows = 0;
  bool caps_vary = false;  // set_cap() will be called.
};

class World {
 public:
  explicit World(const WorldShape& shape);
  ~World();

  // Moves the alarm when it is set already.
  void set_alarm(std::int32_t id, std::int64_t picoseconds);
  void clear_alarm(std::int32_t id);

  void start_flow(std::int32_t id, std::int64_t bytes, std::int64_t cap, std::span<const LinkUse> uses);
  void set_cap(std::int32_t id, double bytes_per_s);
  void set_capacity(std::int32_t link, double bytes_per_s);

  // Calls `handler` with all that falls on one picosecond, picosecond by picosecond, until nothing is left or
  // the handler throws. Ends of flows are rounded up to the picosecond; all those after SimTime's last date
  // come at kNever.
  using Handler = std::function<void(std::int64_t picoseconds, std::span<const Due> due)>;
  void run(Handler handler);

  std::int32_t max_live_flows() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::simgrid_engine
