// What fails during a run, given or drawn, and how the run goes on.

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr double kLatestFault = 1e6;  // Seconds.
constexpr double kLeastFactor = 0.001;
constexpr std::int64_t kMaxSteps = 1'000'000;

// Reads the time and says whether it was there and right.
bool read_date(const Section& section, std::string_view key, SimTime& date) {
  double seconds = -1;
  section.seconds(key, seconds, kLatestFault);
  if (seconds < 0) return false;
  date = from_seconds(seconds);
  return true;
}

const Choices<Fault::What>& parts() {
  static const Choices<Fault::What> kParts = [] {
    Choices<Fault::What> choices;
    for (const Fault::What what : {Fault::What::kGpu, Fault::What::kNic, Fault::What::kNvLink,
                                   Fault::What::kNode, Fault::What::kLeaf, Fault::What::kUplink})
      choices.emplace_back(std::string(to_string(what)), what);
    return choices;
  }();
  return kParts;
}

void read_factor(const Section& section, double& factor) {
  section.number("factor", factor, 0, 1);
  if (factor > 0 && factor < kLeastFactor)
    section.fault("factor", "is less than 0.001; expected 0 (it stands still) or 0.001 to 1");
}

}  // namespace

void read_faults(const Section& file, Scenario& scenario) {
  if (file.has("watchdog")) {
    read_date(file, "watchdog", scenario.watchdog);
    if (scenario.watchdog == SimTime{}) file.fault("watchdog", "is 0; expected a time, e.g. 600s");
  }
  for (const YamlNode* item : file.items("faults")) {
    const Section section(*item, "faults", "fault", file.faults());
    const bool has_rank = section.require("rank", "the rank whose machine has the fault");
    const bool has_what =
        section.require("what", "the part that is slow: gpu, nic, nvlink, node, leaf or uplink");
    const bool has_factor = section.require("factor", "what is left of its rate, e.g. 0.5");
    if (!has_rank || !has_what || !has_factor) continue;
    std::int64_t rank = -1, peer = -1;
    Fault fault;
    fault.factor = -1;
    section.integer("rank", rank, 0, kMaxGpus - 1);
    section.integer("peer", peer, 0, kMaxGpus - 1);
    section.choice("what", fault.what, parts());
    read_factor(section, fault.factor);
    read_date(section, "from", fault.from);
    if (SimTime until; section.has("until") && read_date(section, "until", until)) {
      fault.until = until;
      if (until <= fault.from) section.fault("until", "is no later than the fault's beginning");
    }
    if (peer >= 0 && fault.what != Fault::What::kNvLink)
      section.fault("peer", "belongs to what: nvlink alone; leave it out");
    if (rank < 0 || fault.factor < 0) continue;  // Noted already.
    fault.rank = RankId(rank);
    if (peer >= 0) fault.peer = RankId(peer);
    scenario.faults.push_back(fault);
  }
}

void read_random_faults(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("random_faults");
  if (node == nullptr) return;
  const Section section(*node, "random_faults", "random_faults", file.faults());
  RandomFaults& random = scenario.random_faults;
  std::int64_t seed = 1;
  section.integer("seed", seed, 0, 1'000'000'000'000);
  random.seed = static_cast<std::uint64_t>(seed);
  if (section.require("steps", "the undisturbed steps during which faults come, e.g. 100"))
    section.integer("steps", random.steps, 1, kMaxSteps);
  if (!section.require("rates", "a list of what fails how often")) return;
  for (const YamlNode* item : section.items("rates")) {
    const Section entry(*item, section.path("rates"), "rate", file.faults());
    const bool has_what =
        entry.require("what", "the part that fails: gpu, nic, nvlink, node, leaf or uplink");
    const bool has_rate = entry.require("per_hour", "failures of one such part in an hour, e.g. 2e-5");
    if (!has_what || !has_rate) continue;
    FaultRate rate;
    entry.choice("what", rate.what, parts());
    entry.number("per_hour", rate.per_hour, 0, 1e6);
    entry.seconds("repair", rate.repair_s, kLatestFault);
    read_factor(entry, rate.factor);
    random.rates.push_back(rate);
  }
}

namespace {

void read_policies(const Section& section, RemapRequest& request) {
  if (!section.has("policies")) return;
  request.policies.clear();
  for (const YamlNode* item : section.items("policies")) {
    const auto all = all_remap_policies();
    const auto found =
        std::ranges::find_if(all, [&](RemapPolicy policy) { return item->text == to_string(policy); });
    if (item->kind != YamlNode::Kind::kScalar || found == all.end()) {
      section.faults().add(*item, section.path("policies"),
                           "is " + describe(*item) + "; expected static, re-ring or re-group");
    } else if (std::ranges::find(request.policies, *found) != request.policies.end()) {
      section.faults().add(*item, section.path("policies"), describe(*item) + " is listed twice");
    } else {
      request.policies.push_back(*found);
    }
  }
  if (request.policies.empty()) section.fault("policies", "is empty; leave it out to compare all");
}

}  // namespace

void read_remap(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("remap");
  if (node == nullptr) return;
  const Section section(*node, "remap", "remap", file.faults());
  RemapRequest& request = scenario.remap;
  read_policies(section, request);
  section.integer("steps", request.steps, 1, kMaxSteps);
  section.choice("batch", request.keep_batch, Choices<bool>{{"keep", true}, {"shrink", false}});
  section.integer("checkpoint_every", request.checkpoint_every, 1, kMaxSteps);
  RemapCosts& costs = request.costs;
  section.seconds("detect_loss", costs.detect_loss_s, kLatestFault);
  section.seconds("detect_network", costs.detect_network_s, kLatestFault);
  section.integer("detect_slow_steps", costs.detect_slow_steps, 0, kMaxSteps);
  section.seconds("init_base", costs.init_base_s, kLatestFault);
  section.seconds("init_per_rank", costs.init_per_rank_s, kLatestFault);
  section.seconds("load_kernels", costs.load_kernels_s, kLatestFault);
  section.seconds("lower", costs.lower_s, kLatestFault);
}

}  // namespace orrery
