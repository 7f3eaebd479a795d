#include "executor/cuda/busy_stream.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "executor/cuda/checks.hpp"

namespace orrery::cuda {
namespace {

// What the host may need between two measurements: to check, capture and instantiate the next candidate.
constexpr double kAheadMs = 2;

std::chrono::steady_clock::duration duration(double ms) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double, std::milli>(ms));
}

int launches_for(double ms, const Work& work) {
  return std::max(1, static_cast<int>(std::ceil(ms / std::max(work.ms, 1e-3))));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

BusyStream::BusyStream(cudaStream_t stream) : stream_(stream) {
  int device = 0;
  char text[32] = "";
  check(cudaGetDevice(&device), "asking for the GPU");
  check(cudaDeviceGetPCIBusId(text, sizeof text, device), "asking for the GPU's address");
  pci_bus_id_ = text;
}

void BusyStream::queued(double ms) { busy_until_ = std::max(busy_until_, Clock::now()) + duration(ms); }

void BusyStream::keep_busy(double ms) {
  if (!filler_.launch) return;
  const double left = std::chrono::duration<double, std::milli>(busy_until_ - Clock::now()).count();
  if (left >= ms) return;
  const int times = launches_for(ms - std::max(left, 0.0), filler_);
  for (int i = 0; i < times; ++i) filler_.launch();
  queued(times * filler_.ms);
}

double BusyStream::time(const Work& work, int times) {
  keep_busy(kAheadMs / 4);
  check(cudaEventRecord(begin_, stream_), "recording an event");
  for (int i = 0; i < times; ++i) work.launch();
  check(cudaEventRecord(end_, stream_), "recording an event");
  // Behind it, for the host to prepare what comes next.
  const int behind = filler_.launch ? launches_for(kAheadMs, filler_) : 0;
  for (int i = 0; i < behind; ++i) filler_.launch();
  check(cudaEventSynchronize(end_), "waiting for kernels that are timed");
  busy_until_ = Clock::now() + duration(behind * filler_.ms);
  return elapsed_ns(begin_, end_) * 1e-6 / times;
}

std::vector<TurnTime> BusyStream::compete(std::span<const Work> works, double turn_ms, int rounds) {
  const std::size_t count = works.size(), turns = count * static_cast<std::size_t>(rounds);
  const auto of_turn = [&](std::size_t turn) { return (turn % count + turn / count) % count; };
  std::vector<Event> marks;
  for (std::size_t i = 0; i <= turns; ++i) marks.emplace_back(true);
  std::vector<std::optional<double>> energy(turns + 1);
  const auto wait = [&](std::size_t mark) {
    check(cudaEventSynchronize(marks[mark]), "waiting for kernels that are timed");
    energy[mark] = nvml_.energy_j(pci_bus_id_);
  };
  keep_busy(kAheadMs);
  check(cudaEventRecord(marks[0], stream_), "recording an event");
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const Work& work = works[of_turn(turn)];
    for (int i = launches_for(turn_ms, work); i > 0; --i) work.launch();
    check(cudaEventRecord(marks[turn + 1], stream_), "recording an event");
    wait(turn);  // While the turn just queued runs.
  }
  const int behind = filler_.launch ? launches_for(kAheadMs, filler_) : 0;
  for (int i = 0; i < behind; ++i) filler_.launch();
  wait(turns);
  busy_until_ = Clock::now() + duration(behind * filler_.ms);

  std::vector<std::vector<double>> ms(count);
  std::vector<TurnTime> times(count);
  std::vector<bool> known(count, true);
  for (std::size_t turn = count; turn < turns; ++turn) {
    const std::size_t of = of_turn(turn);
    ms[of].push_back(elapsed_ns(marks[turn], marks[turn + 1]) * 1e-6 / launches_for(turn_ms, works[of]));
    known[of] = known[of] && energy[turn] && energy[turn + 1];
    if (known[of]) times[of].joules += *energy[turn + 1] - *energy[turn];
  }
  for (std::size_t i = 0; i < count; ++i) {
    times[i].ms = median(ms[i]);
    times[i].joules = known[i] ? times[i].joules / ((rounds - 1.0) * launches_for(turn_ms, works[i])) : 0;
  }
  return times;
}

}  // namespace orrery::cuda
