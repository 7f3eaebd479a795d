#pragma once
// A Timeline as a file, with what another one of the same Program needs to be held against it: names instead
// of numbers, so that a prediction and a measurement can be compared without the Program.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/program.hpp"
#include "model/timeline.hpp"

namespace orrery {

inline constexpr int kTimelineFileVersion = 1;

// One run of instructions first … last of one stream; predictions have first = last. Seconds from the
// beginning of the step; what began before it is negative.
struct RecordedSpan {
  std::string stream;
  std::string first, last;  // Names within the role: "qkv.l3.m0".
  std::string label;        // Of the first; "" where the run has several.
  std::string purpose;      // Likewise, as to_string(Purpose) says it.
  std::string kind;         // Of the kernel, or of the communication: "matmul", "all-reduce", "send".
  double start_s = 0, ready_s = 0, end_s = 0;
  bool operator==(const RecordedSpan&) const = default;
};

struct RecordedClass {
  std::string role;
  std::vector<std::int32_t> ranks;  // That did the same at the same times; ascending.
  std::vector<RecordedSpan> spans;  // In the order of the role's instructions within each stream.
  bool operator==(const RecordedClass&) const = default;
};

// How a rank's clock was set against rank 0's.
struct RecordedClock {
  std::int32_t rank = 0;
  double offset_s = 0;  // Taken off already.
  double error_s = 0;   // At most so far off.
  bool operator==(const RecordedClock&) const = default;
};

struct TimelineRecord {
  std::string program;       // Its name, for reports.
  std::string program_hash;  // model/program_hash.hpp
  bool measured = false;
  std::int32_t steps = 1;  // Simulated until the period settled, or measured.
  double step_time_s = 0;
  double makespan_s = 0;  // Of an isolated step; 0: not known.
  std::vector<RecordedClass> classes;
  std::vector<RecordedClock> clocks;  // Of measurements.
  // Step time with and without the tracing that made the record, where both were measured.
  std::optional<double> traced_step_s, untraced_step_s;
  bool operator==(const TimelineRecord&) const = default;
};

// Of a prediction; a measurement changes `measured`, clocks and step times.
TimelineRecord record_timeline(const Program& program, const Timeline& timeline);

std::string to_json(const TimelineRecord& record);
// THROWS Error(kInput) "place: field: …": not such a file, another version, times out of order, a rank twice.
TimelineRecord parse_timeline_json(std::string_view text, std::string_view place);

}  // namespace orrery
