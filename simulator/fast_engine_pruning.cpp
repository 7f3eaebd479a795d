// Which links can fill up at all, from the Job alone.

#include <algorithm>

#include "simulator/fast_engine_layout.hpp"

namespace orrery::fast {
namespace {

struct User {
  std::int32_t transfer = 0;
  std::int32_t stream = 0;
};

// Each transfer is charged to one of the streams that it holds: two transfers charged to the same stream
// never run at once. Rings and pipelines repeat a transfer many times in a row, which is worth skipping.
std::vector<User> charge(const Layout& layout, bool to_first_seat) {
  std::vector<User> users;
  std::vector<std::int32_t> charged(layout.job.transfers.size(), -1);
  for (const Rendezvous& meeting : layout.job.rendezvous) {
    const auto seats = layout.seats_of(meeting);
    const std::int32_t stream = to_first_seat ? seats.front().stream : seats.back().stream;
    auto& last = charged[static_cast<std::size_t>(meeting.transfer)];
    if (last == stream) continue;
    last = stream;
    users.push_back({meeting.transfer, stream});
  }
  return users;
}

struct Demand {
  std::int32_t stream = 0;
  Wide bytes_per_s = 0;
};

// By link: the sum over streams of the largest demand that any of the stream's transfers makes.
std::vector<Wide> demand_bounds(const Layout& layout, const std::vector<User>& users) {
  const Job& job = layout.job;
  std::vector<std::size_t> next(job.link_capacity.size() + 1, 0);
  const auto for_each_use = [&](auto&& visit) {
    for (const User& user : users) {
      const Transfer& transfer = job.transfers[static_cast<std::size_t>(user.transfer)];
      for (std::int32_t u = transfer.links.begin; u < transfer.links.end; ++u) {
        const LinkUse& use = job.link_uses[static_cast<std::size_t>(u)];
        visit(static_cast<std::size_t>(use.link), Demand{user.stream, Wide{use.count} * transfer.rate_cap});
      }
    }
  };
  for_each_use([&](std::size_t link, const Demand&) { ++next[link + 1]; });
  for (std::size_t l = 1; l < next.size(); ++l) next[l] += next[l - 1];
  std::vector<Demand> demands(next.back());
  for_each_use([&](std::size_t link, const Demand& demand) { demands[next[link]++] = demand; });

  std::vector<Wide> bounds(job.link_capacity.size(), 0);
  std::vector<Wide> largest(layout.streams.size(), 0);
  for (std::size_t l = 0; l < bounds.size(); ++l) {
    const std::size_t begin = l == 0 ? 0 : next[l - 1];
    for (std::size_t d = begin; d < next[l]; ++d) {
      Wide& of_stream = largest[static_cast<std::size_t>(demands[d].stream)];
      const Wide grown = std::max(of_stream, demands[d].bytes_per_s);
      bounds[l] += grown - of_stream;
      of_stream = grown;
    }
    for (std::size_t d = begin; d < next[l]; ++d) largest[static_cast<std::size_t>(demands[d].stream)] = 0;
  }
  return bounds;
}

// The least that each link ever has.
std::vector<std::int64_t> least_capacity(const Job& job) {
  std::vector<std::int64_t> least = job.link_capacity;
  for (const Change& change : job.changes) {
    if (change.what != Change::What::kLink) continue;
    const auto link = static_cast<std::size_t>(change.index);
    const double capacity = change.factor * static_cast<double>(job.link_capacity[link]);
    least[link] = std::min(least[link], static_cast<std::int64_t>(capacity));
  }
  return least;
}

}  // namespace

std::vector<char> links_that_can_fill(const Layout& layout) {
  const std::vector<std::int64_t> capacity = least_capacity(layout.job);
  const std::vector<Wide> by_first = demand_bounds(layout, charge(layout, true));
  const std::vector<Wide> by_last = demand_bounds(layout, charge(layout, false));
  std::vector<char> can_fill(capacity.size());
  for (std::size_t l = 0; l < capacity.size(); ++l)
    can_fill[l] = std::min(by_first[l], by_last[l]) > capacity[l];

  // The bounds count one use per transfer and link; whoever lists a link twice is left to the solver.
  std::vector<std::int32_t> last_transfer(capacity.size(), -1);
  for (std::size_t t = 0; t < layout.job.transfers.size(); ++t)
    for (std::int32_t u = layout.job.transfers[t].links.begin; u < layout.job.transfers[t].links.end; ++u) {
      const auto link = static_cast<std::size_t>(layout.job.link_uses[static_cast<std::size_t>(u)].link);
      if (last_transfer[link] == static_cast<std::int32_t>(t)) can_fill[link] = 1;
      last_transfer[link] = static_cast<std::int32_t>(t);
    }
  return can_fill;
}

}  // namespace orrery::fast
