#pragma once
// A device that performs launches by plain loops on the host's memory: what lowering makes of a step can be
// run where there is no GPU. Of the kinds that decoders without experts need.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "executor/device/device.hpp"
#include "tests/device/emulated_exchange.hpp"

namespace orrery::test {

// What the devices of one process talk over: the k-th calls of a group happen once all members have come to
// them.
class Fabric {
 public:
  using Meeting = std::pair<std::string, std::int64_t>;  // Group and k.

  void post(const Meeting& meeting, Participant participant);
  bool happened(const Meeting& meeting);
  // Until somebody posts, or a while. THROWS when members' calls don't fit together.
  void wait();

 private:
  std::mutex lock_;
  std::condition_variable posted_;
  std::map<Meeting, std::vector<Participant>> waiting_;
  std::map<Meeting, bool> happened_;
  std::string fault_;
};

// `fabric`: where the rank talks to others; outlives the device.
std::unique_ptr<device::Device> emulated_device(Fabric* fabric = nullptr, RankId rank = RankId(0));

}  // namespace orrery::test
