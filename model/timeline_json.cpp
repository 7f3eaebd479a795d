#include "model/timeline_json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "base/error.hpp"
#include "model/json_tree.hpp"
#include "model/program_hash.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "orrery-timeline";
constexpr double kLongest = 1e7;  // Seconds: some four months.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

// The double nearest to the whole picoseconds, which prints with as few digits as they have.
double seconds(SimTime time) { return static_cast<double>(time.picoseconds) / 1e12; }

std::string kind_of(const Program& program, const Work& work) {
  return std::visit(
      [&](const auto& one) -> std::string {
        using T = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<T, Compute>)
          return std::string(to_string(program.kernels[one.kernel.index()].kind));
        else if constexpr (std::is_same_v<T, Collective>)
          return std::string(to_string(one.kind));
        else if constexpr (std::is_same_v<T, Send>)
          return "send";
        else if constexpr (std::is_same_v<T, Recv>)
          return "recv";
        else
          return "copy";
      },
      work);
}

RecordedSpan record_span(const Program& program, const Role& role, const Span& span, SimTime step_start) {
  const Instruction& first = role.instructions[static_cast<std::size_t>(span.first)];
  const Instruction& last = role.instructions[static_cast<std::size_t>(span.last)];
  RecordedSpan recorded;
  recorded.stream = role.streams[span.stream.index()].name;
  recorded.first = instruction_name(program, first);
  recorded.last = instruction_name(program, last);
  if (span.first == span.last) {
    recorded.label = program.labels[first.label.index()];
    recorded.purpose = to_string(first.purpose);
    recorded.kind = kind_of(program, first.work);
  }
  recorded.start_s = seconds(span.start - step_start);
  recorded.ready_s = seconds(span.ready - step_start);
  recorded.end_s = seconds(span.end - step_start);
  return recorded;
}

Json to_json(const RecordedSpan& span) {
  Json entry = {{"stream", span.stream}, {"first", span.first}};
  if (span.last != span.first) entry["last"] = span.last;
  entry["label"] = span.label;
  entry["purpose"] = span.purpose;
  entry["kind"] = span.kind;
  entry["start_s"] = span.start_s;
  if (span.ready_s != span.start_s) entry["ready_s"] = span.ready_s;
  entry["end_s"] = span.end_s;
  return entry;
}

RecordedSpan read_span(const JsonObject& entry) {
  entry.only({"stream", "first", "last", "label", "purpose", "kind", "start_s", "ready_s", "end_s"});
  RecordedSpan span;
  span.stream = entry.text("stream");
  span.first = entry.text("first");
  span.last = entry.has("last") ? entry.text("last") : span.first;
  span.label = entry.text("label");
  span.purpose = entry.text("purpose");
  span.kind = entry.text("kind");
  span.start_s = entry.number("start_s", -kLongest, kLongest);
  span.ready_s = entry.has("ready_s") ? entry.number("ready_s", -kLongest, kLongest) : span.start_s;
  span.end_s = entry.number("end_s", -kLongest, kLongest);
  if (span.start_s > span.ready_s || span.ready_s > span.end_s)
    entry.wrong("end_s", fmt::format("is {}, ready is {}, start is {}; expected start ≤ ready ≤ end",
                                     span.end_s, span.ready_s, span.start_s));
  return span;
}

RecordedClass read_class(const JsonObject& entry, std::set<std::int32_t>& seen) {
  entry.only({"role", "ranks", "spans"});
  RecordedClass read;
  read.role = entry.text("role");
  for (const std::int64_t rank : entry.integers("ranks", 0, kMostRanks - 1)) {
    read.ranks.push_back(static_cast<std::int32_t>(rank));
    if (!seen.insert(read.ranks.back()).second)
      entry.wrong("ranks", fmt::format("has rank {} for the second time", rank));
  }
  if (read.ranks.empty()) entry.wrong("ranks", "is empty; expected the ranks that did this");
  for (const JsonObject& span : entry.objects("spans")) read.spans.push_back(read_span(span));
  return read;
}

}  // namespace

TimelineRecord record_timeline(const Program& program, const Timeline& timeline) {
  TimelineRecord record;
  record.program = program.name;
  record.program_hash = program_hash(program);
  record.steps = timeline.steps;
  record.step_time_s = seconds(timeline.step_time);
  record.makespan_s = seconds(timeline.makespan);
  for (const RankClass& rank_class : timeline.classes) {
    RecordedClass recorded;
    recorded.role = program.roles[rank_class.role.index()].name;
    for (const RankId rank : rank_class.ranks) recorded.ranks.push_back(rank.value);
    record.classes.push_back(std::move(recorded));
  }
  for (const Span& span : timeline.spans) {
    const auto number = static_cast<std::size_t>(span.rank_class);
    const Role& role = program.roles[timeline.classes[number].role.index()];
    record.classes[number].spans.push_back(record_span(program, role, span, timeline.step_start));
  }
  return record;
}

std::string to_json(const TimelineRecord& record) {
  Json file;
  file["format"] = kFormat;
  file["version"] = kTimelineFileVersion;
  file["kind"] = record.measured ? "measured" : "predicted";
  file["program"] = record.program;
  file["program_hash"] = record.program_hash;
  file["steps"] = record.steps;
  file["step_time_s"] = record.step_time_s;
  file["makespan_s"] = record.makespan_s;
  if (record.traced_step_s) file["traced_step_s"] = *record.traced_step_s;
  if (record.untraced_step_s) file["untraced_step_s"] = *record.untraced_step_s;
  if (!record.clocks.empty()) {
    Json clocks = Json::array();
    for (const RecordedClock& clock : record.clocks)
      clocks.push_back({{"rank", clock.rank}, {"offset_s", clock.offset_s}, {"error_s", clock.error_s}});
    file["clocks"] = clocks;
  }
  Json classes = Json::array();
  for (const RecordedClass& one : record.classes) {
    Json spans = Json::array();
    for (const RecordedSpan& span : one.spans) spans.push_back(to_json(span));
    classes.push_back({{"role", one.role}, {"ranks", one.ranks}, {"spans", spans}});
  }
  file["classes"] = classes;
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

TimelineRecord parse_timeline_json(std::string_view text, std::string_view place) {
  const JsonNode root = parse_json_tree(text, place);
  const JsonObject file(root, place);
  file.only({"format", "version", "kind", "program", "program_hash", "steps", "step_time_s", "makespan_s",
             "traced_step_s", "untraced_step_s", "clocks", "classes"});
  if (file.text("format") != kFormat)
    file.wrong("format", fmt::format("is '{}'; expected {}", file.text("format"), kFormat));
  file.integer("version", kTimelineFileVersion, kTimelineFileVersion);
  TimelineRecord record;
  const std::string kind = file.text("kind");
  if (kind != "measured" && kind != "predicted")
    file.wrong("kind", fmt::format("is '{}'; expected measured or predicted", kind));
  record.measured = kind == "measured";
  record.program = file.text("program");
  record.program_hash = file.text("program_hash");
  record.steps = static_cast<std::int32_t>(file.integer("steps", 1, 1'000'000'000));
  record.step_time_s = file.number("step_time_s", 0, kLongest);
  record.makespan_s = file.number("makespan_s", 0, kLongest);
  if (file.has("traced_step_s")) record.traced_step_s = file.number("traced_step_s", 0, kLongest);
  if (file.has("untraced_step_s")) record.untraced_step_s = file.number("untraced_step_s", 0, kLongest);
  if (file.has("clocks"))
    for (const JsonObject& entry : file.objects("clocks")) {
      entry.only({"rank", "offset_s", "error_s"});
      record.clocks.push_back({static_cast<std::int32_t>(entry.integer("rank", 0, kMostRanks - 1)),
                               entry.number("offset_s", -1e18, 1e18), entry.number("error_s", 0, kLongest)});
    }
  std::set<std::int32_t> seen;
  for (const JsonObject& entry : file.objects("classes")) record.classes.push_back(read_class(entry, seen));
  return record;
}

}  // namespace orrery
