#include "report/kernel_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

// A stream's kernels, in as many lanes as it takes for none to overlap: viewers want spans of a track nested.
struct Track {
  std::string name;
  std::vector<std::int64_t> lane_ends;  // By lane, in ns.

  std::size_t lane(std::int64_t start, std::int64_t end) {
    const auto free = std::ranges::find_if(lane_ends, [&](std::int64_t until) { return until <= start; });
    const auto lane = static_cast<std::size_t>(free - lane_ends.begin());
    if (free == lane_ends.end()) lane_ends.push_back(end);
    lane_ends[lane] = end;
    return lane;
  }
};

class Writer {
 public:
  Writer(std::ostream& out, const Program& program, const Role& role, const KernelTrace& trace)
      : out_(out), program_(program), role_(role), trace_(trace) {
    if (!trace.kernels.empty()) origin_ns_ = trace.kernels.front().start_ns;
  }

  void write() {
    out_ << Json{{"program", program_.name}, {"device", trace_.device}, {"start_ns", origin_ns_}}
                .dump()
                .insert(0, R"({"displayTimeUnit":"ns","otherData":)");
    out_ << R"(,"traceEvents":[)";
    event({{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", process_name()}}}});
    for (const KernelTrace::Kernel& kernel : trace_.kernels) write_kernel(kernel);
    for (const auto& [key, track] : tracks_) write_names(key, track);
    out_ << "\n]}\n";
  }

 private:
  // Streams of the role come first, then the device's for what belongs to no instruction.
  using Key = std::pair<bool, std::uint32_t>;
  static constexpr std::size_t kLanes = 16;  // Of a track, in the numbers of threads.

  std::string process_name() const { return fmt::format("{} – {}", trace_.device, role_.name); }

  void event(const Json& json) {
    // Names of kernels may hold anything.
    out_ << (first_ ? "\n" : ",\n") << json.dump(-1, ' ', false, Json::error_handler_t::replace);
    first_ = false;
  }

  static std::uint64_t thread(const Key& key, std::size_t lane) {
    constexpr std::uint64_t kDeviceStreams = 1'000'000;
    return (key.first ? kDeviceStreams : 0) + key.second * kLanes + std::min(lane, kLanes - 1);
  }

  void write_kernel(const KernelTrace::Kernel& kernel) {
    Json arguments = Json::object();
    Key key(true, kernel.stream);
    if (kernel.instruction >= 0) {
      const Instruction& instruction = role_.instructions[static_cast<std::size_t>(kernel.instruction)];
      key = {false, static_cast<std::uint32_t>(instruction.stream.value)};
      arguments["instruction"] = instruction_name(program_, instruction);
      arguments["index"] = kernel.instruction;
      arguments["purpose"] = to_string(instruction.purpose);
    }
    arguments["device_stream"] = kernel.stream;
    Track& track = tracks_[key];
    if (track.name.empty()) {
      track.name = key.first ? fmt::format("CUDA stream {}", key.second)
                             : role_.streams[static_cast<std::size_t>(key.second)].name;
    }
    const std::size_t lane = track.lane(kernel.start_ns, kernel.end_ns);
    event({{"ph", "X"},
           {"name", kernel.name},
           {"pid", 0},
           {"tid", thread(key, lane)},
           {"ts", 1e-3 * static_cast<double>(kernel.start_ns - origin_ns_)},
           {"dur", 1e-3 * static_cast<double>(kernel.end_ns - kernel.start_ns)},
           {"args", std::move(arguments)}});
  }

  void write_names(const Key& key, const Track& track) {
    for (std::size_t lane = 0; lane < std::min(track.lane_ends.size(), kLanes); ++lane) {
      const std::string name = lane == 0 ? track.name : fmt::format("{} ({})", track.name, lane + 1);
      const std::uint64_t id = thread(key, lane);
      event({{"ph", "M"}, {"name", "thread_name"}, {"pid", 0}, {"tid", id}, {"args", {{"name", name}}}});
      event({{"ph", "M"},
             {"name", "thread_sort_index"},
             {"pid", 0},
             {"tid", id},
             {"args", {{"sort_index", id}}}});
    }
  }

  std::ostream& out_;
  const Program& program_;
  const Role& role_;
  const KernelTrace& trace_;
  std::int64_t origin_ns_ = 0;
  std::map<Key, Track> tracks_;
  bool first_ = true;
};

}  // namespace

void write_kernel_trace(std::ostream& out, const Program& program, const Role& role,
                        const KernelTrace& trace) {
  Writer(out, program, role, trace).write();
}

}  // namespace orrery
