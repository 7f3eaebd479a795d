#pragma once
// Random jobs that cannot deadlock: their instructions are made in one global order, which every stream
// keeps.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "tests/simulator/job_builder.hpp"

namespace orrery::testing {

struct RandomJobOptions {
  bool may_contend = true;  // Else every link holds the sum of all that could ever cross it.
  // Whole microseconds and tenths of megabytes make many events fall on one instant.
  bool round_times = true;
  std::int32_t operations = 40;
};

class RandomJob {
 public:
  RandomJob(std::uint64_t seed, const RandomJobOptions& options) : random_(seed), options_(options) {
    const std::int64_t classes = random_.between(1, 6);
    for (std::int64_t c = 0; c < classes; ++c) builder.add_class({0, 1, 0, 0});
    several_compute_streams_ = random_.uniform() < 0.2;
    const std::int64_t links = random_.between(1, 6);
    for (std::int64_t l = 0; l < links; ++l)
      builder.add_link(options.may_contend ? random_.between(1, 4) * kRate : 1'000 * kRate);
    for (int t = 0; t < 8; ++t) add_transfer();
    for (std::int32_t i = 0; i < options.operations; ++i) add_operation();
    spread_previous_step_edges();
    if (random_.uniform() < 0.3) builder.job.launch = {random_.between(1, 2) * 100'000};
  }

  void add_interference() {
    builder.job.compute_interference = 1.0 + 0.25 * static_cast<double>(random_.between(0, 3));
    builder.job.transfer_interference = 1.0 + 0.25 * static_cast<double>(random_.between(0, 3));
  }

  JobBuilder builder;

 private:
  static constexpr std::int64_t kRate = 100'000'000'000;

  SimTime some_time() {
    const std::int64_t unit = options_.round_times ? 1'000'000 : 1;
    return {random_.between(0, 5) * 1'000'000 / unit * unit +
            (options_.round_times ? 0 : random_.between(0, 999'999))};
  }

  void add_transfer() {
    std::vector<LinkUse> uses;
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(builder.job.link_capacity.size()); ++l)
      if (random_.uniform() < 0.4) uses.push_back({l, static_cast<std::int32_t>(random_.between(1, 2))});
    const std::int64_t bytes =
        options_.round_times ? random_.between(0, 4) * 100'000 : random_.between(0, 400'000);
    // No faster than its links let it be alone.
    std::int64_t cap = random_.between(1, 4) * kRate / 2;
    for (const LinkUse& use : uses)
      cap = std::min(cap, builder.job.link_capacity[static_cast<std::size_t>(use.link)] / use.count);
    builder.add_transfer(some_time(), bytes, cap, uses);
  }

  std::vector<Edge> some_edges(std::int32_t rank_class) {
    std::vector<Edge> edges;
    const auto known =
        static_cast<std::int64_t>(builder.job.classes[static_cast<std::size_t>(rank_class)].work.size());
    const std::int64_t count = random_.between(0, 2);
    for (std::int64_t e = 0; e < count && known > 0; ++e)
      edges.push_back({static_cast<std::int32_t>(random_.between(0, known - 1)), random_.uniform() < 0.2});
    return edges;
  }

  void add_operation() {
    const auto classes = static_cast<std::int64_t>(builder.job.classes.size());
    if (random_.uniform() < 0.5) {
      const auto c = static_cast<std::int32_t>(random_.between(0, classes - 1));
      const auto stream = static_cast<std::int32_t>(several_compute_streams_ ? random_.between(0, 1) : 0);
      builder.add_compute(c, some_time(), some_edges(c), stream);
      return;
    }
    std::vector<JobBuilder::Place> places;
    for (std::int32_t c = 0; c < classes; ++c)
      if (random_.uniform() < 0.4)
        places.push_back({c, static_cast<std::int32_t>(random_.between(2, 3)), some_edges(c)});
    if (places.empty()) places.push_back({0, 2, some_edges(0)});
    builder.add_rendezvous(static_cast<std::int32_t>(random_.between(0, 7)), places);
  }

  // A step waits for any instruction of the step before, later ones in program order too.
  void spread_previous_step_edges() {
    for (Role& role : builder.program().roles)
      for (Edge& edge : role.edges)
        if (edge.previous_step)
          edge.instruction = static_cast<std::int32_t>(
              random_.between(0, static_cast<std::int64_t>(role.instructions.size()) - 1));
  }

  Random random_;
  RandomJobOptions options_;
  bool several_compute_streams_ = false;
};

}  // namespace orrery::testing
