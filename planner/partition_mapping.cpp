#include "planner/partition_mapping.hpp"

#include <cassert>
#include <limits>

namespace orrery {
namespace {

constexpr std::int32_t kExactDevices = 8;  // 8! = 40,320 mappings, most of them never reached.
// Sums in another order differ in the last digits; what is nearer than this is equal.
constexpr double kSame = 1e-9;

class Mapper {
 public:
  Mapper(const PieceGraph& parts, const std::vector<double>& seconds_per_byte, std::int32_t devices)
      : parts_(parts), seconds_(seconds_per_byte), devices_(devices) {
    device_of_.assign(static_cast<std::size_t>(parts.vertices()), -1);
    taken_.assign(static_cast<std::size_t>(devices), false);
  }

  std::vector<std::int32_t> run() {
    if (devices_ <= kExactDevices) {
      search(0, 0);
      return best_;
    }
    start_greedily();
    exchange();
    return device_of_;
  }

 private:
  // What the part adds to those that have a device, on this one.
  double added_s(std::size_t part, std::int32_t device) const {
    double sum = 0;
    for (const auto& [other, bytes] : parts_.traffic[part]) {
      const std::int32_t at = device_of_[static_cast<std::size_t>(other)];
      if (at >= 0)
        sum += static_cast<double>(bytes) * seconds_[static_cast<std::size_t>(device * devices_ + at)];
    }
    return sum;
  }

  // Every mapping, leaving a branch as soon as it is no better than the best one.
  void search(std::size_t part, double cost_s) {
    if (cost_s >= best_cost_s_ * (1 - kSame)) return;
    if (part == device_of_.size()) {
      best_cost_s_ = cost_s;
      best_ = device_of_;
      return;
    }
    for (std::int32_t device = 0; device < devices_; ++device) {
      if (taken_[static_cast<std::size_t>(device)]) continue;
      const double more_s = added_s(part, device);
      place(part, device);
      search(part + 1, cost_s + more_s);
      taken_[static_cast<std::size_t>(device)] = false;
      device_of_[part] = -1;
    }
  }

  void place(std::size_t part, std::int32_t device) {
    device_of_[part] = device;
    taken_[static_cast<std::size_t>(device)] = true;
  }

  // The part that talks most to those that are placed, where that costs least.
  void start_greedily() {
    for (std::size_t placed = 0; placed < device_of_.size(); ++placed) {
      std::size_t next = device_of_.size();
      std::int64_t most = -1;
      for (std::size_t part = 0; part < device_of_.size(); ++part) {
        if (device_of_[part] >= 0) continue;
        std::int64_t bytes = 0;
        for (const auto& [other, between] : parts_.traffic[part]) {
          if (device_of_[static_cast<std::size_t>(other)] >= 0) bytes += between;
        }
        if (bytes > most) next = part, most = bytes;
      }
      std::int32_t best = -1;
      double least_s = std::numeric_limits<double>::infinity();
      for (std::int32_t device = 0; device < devices_; ++device) {
        if (taken_[static_cast<std::size_t>(device)]) continue;
        const double cost_s = added_s(next, device);
        if (cost_s < least_s * (1 - kSame) || best < 0) best = device, least_s = cost_s;
      }
      place(next, best);
    }
  }

  // Moves a part to a free device, or exchanges it with the part there, while that saves something.
  void exchange() {
    double cost_s = mapping_cost_s(parts_, device_of_, seconds_, devices_);
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t part = 0; part < device_of_.size(); ++part) {
        for (std::int32_t device = 0; device < devices_; ++device) {
          std::vector<std::int32_t> changed = device_of_;
          for (std::int32_t& other : changed) {
            if (other == device) other = device_of_[part];
          }
          changed[part] = device;
          const double changed_s = mapping_cost_s(parts_, changed, seconds_, devices_);
          if (changed_s >= cost_s * (1 - kSame)) continue;
          device_of_ = std::move(changed);
          cost_s = changed_s;
          improved = true;
        }
      }
    }
  }

  const PieceGraph& parts_;
  const std::vector<double>& seconds_;
  const std::int32_t devices_;
  std::vector<std::int32_t> device_of_;  // By part; −1: none yet.
  std::vector<bool> taken_;              // By device.
  std::vector<std::int32_t> best_;
  double best_cost_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::vector<double> seconds_per_byte(const Router& router) {
  const std::int32_t devices = router.cluster().gpu_count();
  std::vector<double> seconds;
  for (std::int32_t from = 0; from < devices; ++from) {
    for (std::int32_t to = 0; to < devices; ++to) {
      seconds.push_back(from == to ? 0 : 1 / router.path(from, to).bytes_per_s());
    }
  }
  return seconds;
}

double mapping_cost_s(const PieceGraph& parts, const std::vector<std::int32_t>& device_of,
                      const std::vector<double>& seconds_per_byte, std::int32_t devices) {
  double sum = 0;
  for (std::size_t part = 0; part < device_of.size(); ++part) {
    for (const auto& [other, bytes] : parts.traffic[part]) {
      if (static_cast<std::size_t>(other) < part) continue;  // Once for each pair.
      const std::int32_t to = device_of[static_cast<std::size_t>(other)];
      sum += static_cast<double>(bytes) *
             seconds_per_byte[static_cast<std::size_t>(device_of[part] * devices + to)];
    }
  }
  return sum;
}

std::vector<std::int32_t> map_parts(const PieceGraph& parts, const std::vector<double>& seconds_per_byte,
                                    std::int32_t devices) {
  assert(parts.vertices() <= devices);
  return Mapper(parts, seconds_per_byte, devices).run();
}

}  // namespace orrery
