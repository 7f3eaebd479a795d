#include "report/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/program_ranks.hpp"
#include "planner/memory.hpp"

namespace orrery {
namespace {

// As it stands between the quotes of a JSON string.
std::string json_escaped(const std::string& text) {
  const std::string dumped =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return dumped.substr(1, dumped.size() - 2);
}

// Names of the Chrome trace viewer's fixed palette (catapult, tracing/base/color_scheme.html).
std::string_view colour(Purpose purpose) {
  switch (purpose) {
    case Purpose::kForward: return "thread_state_running";
    case Purpose::kBackward: return "rail_response";
    case Purpose::kRecompute: return "olive";
    case Purpose::kOptimizer: return "rail_animation";
    case Purpose::kTensorParallel: return "bad";
    case Purpose::kSequenceParallel: return "thread_state_iowait";
    case Purpose::kContextParallel: return "thread_state_uninterruptible";
    case Purpose::kExpertParallel: return "heap_dump_stack_frame";
    case Purpose::kPipeline: return "yellow";
    case Purpose::kGradientReduce: return "terrible";
    case Purpose::kParameterGather: return "rail_load";
    case Purpose::kOther: return "grey";
  }
  return "grey";
}

struct WorkText {
  std::string_view kind;
  std::int64_t bytes = 0;  // Of communication.
};

WorkText describe(const Work& work) {
  if (const auto* const send = std::get_if<Send>(&work)) return {"send", send->bytes};
  if (const auto* const recv = std::get_if<Recv>(&work)) return {"recv", recv->bytes};
  if (const auto* const all = std::get_if<Collective>(&work)) return {to_string(all->kind), all->bytes};
  if (const auto* const copy = std::get_if<Copy>(&work)) {
    return {copy->to_host ? "copy to host" : "copy to device", copy->bytes};
  }
  return {"compute", 0};
}

// "stage0 – ranks 0-7,16-23 (16 ranks)".
std::string class_name(const Program& program, const RankClass& one) {
  const std::string& role = program.roles[one.role.index()].name;
  if (one.ranks.size() == 1) return fmt::format("{} – rank {}", role, one.ranks.front().value);
  return fmt::format("{} – ranks {} ({} ranks)", role, format_ranks(one.ranks), one.ranks.size());
}

// Events go to the stream as they are made: a trace of a large run doesn't fit into a tree of values.
class TraceWriter {
 public:
  TraceWriter(std::ostream& out, const Program& program, const Timeline& timeline)
      : out_(out), program_(program), timeline_(timeline), origin_(timeline.step_start) {
    for (const Span& span : timeline.spans) origin_ = std::min(origin_, span.start);
    for (const std::string& label : program.labels) labels_.push_back(json_escaped(label));
    for (const Kernel& kernel : program.kernels) kernels_.push_back(labels_[kernel.label.index()]);
  }

  void write() {
    put(R"({"displayTimeUnit":"ns","otherData":{"program":")", json_escaped(program_.name),
        R"(","step_start_us":)");
    put_time(timeline_.step_start - origin_);
    put(R"(,"step_time_us":)");
    put_time(timeline_.step_time);
    put(R"(},"traceEvents":[)");
    for (std::size_t i = 0; i < timeline_.classes.size(); ++i) write_names(i);
    for (const Span& span : timeline_.spans) write_span(span);
    write_memory();
    put("\n]}\n");
    flush();
  }

 private:
  // Appends texts and whole numbers. A trace is millions of these: format strings would take half of the
  // time.
  template <class... Parts>
  void put(const Parts&... parts) {
    (put_one(parts), ...);
  }
  void put_one(std::string_view text) { buffer_.append(text.data(), text.data() + text.size()); }
  template <std::integral Number>
  void put_one(Number number) {
    const fmt::format_int digits(number);
    buffer_.append(digits.data(), digits.data() + digits.size());
  }

  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }

  void begin_event(std::string_view begin) {
    constexpr std::size_t kFlushBytes = std::size_t{1} << 16;
    if (buffer_.size() > kFlushBytes) flush();
    put(first_ ? "\n" : ",\n", begin);
    first_ = false;
  }

  // Microseconds, exact to the picosecond. Never negative: times count from the earliest event.
  void put_time(SimTime time) {
    constexpr std::int64_t kMicrosecond = 1'000'000;
    put(time.picoseconds / kMicrosecond);
    std::int64_t fraction = time.picoseconds % kMicrosecond;
    if (fraction == 0) return;
    std::array<char, 7> digits = {'.'};
    for (std::size_t i = 6; i > 0; --i) {
      digits[i] = static_cast<char>('0' + fraction % 10);
      fraction /= 10;
    }
    put(std::string_view(digits.data(), digits.size()));
  }

  void write_names(std::size_t index) {
    const RankClass& one = timeline_.classes[index];
    const auto name = [&](std::string_view what, std::string_view thread, const std::string& value) {
      begin_event(R"({"ph":"M","name":")");
      put(what, R"(","pid":)", index, thread, R"(,"args":{"name":")", json_escaped(value), R"("}})");
    };
    const auto sort_index = [&](std::string_view what, std::string_view thread, std::size_t value) {
      begin_event(R"({"ph":"M","name":")");
      put(what, R"(","pid":)", index, thread, R"(,"args":{"sort_index":)", value, "}}");
    };
    name("process_name", "", class_name(program_, one));
    sort_index("process_sort_index", "", index);
    const Role& role = program_.roles[one.role.index()];
    for (std::size_t stream = 0; stream < role.streams.size(); ++stream) {
      const std::string thread = fmt::format(",\"tid\":{}", stream);
      name("thread_name", thread, role.streams[stream].name);
      sort_index("thread_sort_index", thread, stream);
    }
  }

  void put_name(const Instruction& instruction) {
    put(labels_[instruction.label.index()]);
    if (instruction.layer >= 0) put(".l", instruction.layer);
    if (instruction.microbatch >= 0) put(".m", instruction.microbatch);
  }

  void write_span(const Span& span) {
    const RankClass& of = timeline_.classes[static_cast<std::size_t>(span.rank_class)];
    const Role& role = program_.roles[of.role.index()];
    const Instruction& instruction = role.instructions[static_cast<std::size_t>(span.first)];
    begin_event(R"({"ph":"X","name":")");
    put_name(instruction);
    if (span.last != span.first) {
      put("..");
      put_name(role.instructions[static_cast<std::size_t>(span.last)]);
    }
    put(R"(","cat":")", to_string(instruction.purpose), R"(","cname":")", colour(instruction.purpose),
        R"(","pid":)", span.rank_class, R"(,"tid":)", span.stream.value, R"(,"ts":)");
    put_time(span.start - origin_);
    put(R"(,"dur":)");
    put_time(span.end - span.start);
    write_arguments(span, instruction);
  }

  void write_arguments(const Span& span, const Instruction& instruction) {
    const WorkText work = describe(instruction.work);
    put(R"(,"args":{"instruction":)", span.first, R"(,"kind":")", work.kind, "\"");
    if (span.last != span.first) put(R"(,"last_instruction":)", span.last);
    if (instruction.layer >= 0) put(R"(,"layer":)", instruction.layer);
    if (instruction.microbatch >= 0) put(R"(,"microbatch":)", instruction.microbatch);
    if (const auto* const compute = std::get_if<Compute>(&instruction.work)) {
      put(R"(,"kernel":")", kernels_[compute->kernel.index()], "\"");
    } else {
      put(R"(,"bytes":)", work.bytes);
    }
    if (span.ready > span.start) {
      put(R"(,"waited_us":)");
      put_time(span.ready - span.start);
    }
    put("}}");
  }

  // ---- Memory: a counter per class, from when its buffers are first and last touched.

  struct Change {
    SimTime time;
    std::int64_t bytes = 0;
  };

  void write_memory() {
    std::size_t end = 0;
    for (std::size_t begin = 0; begin < timeline_.spans.size(); begin = end) {
      const std::int32_t rank_class = timeline_.spans[begin].rank_class;
      while (end < timeline_.spans.size() && timeline_.spans[end].rank_class == rank_class) ++end;
      write_memory_of(rank_class, begin, end);
    }
  }

  void write_memory_of(std::int32_t rank_class, std::size_t begin, std::size_t end) {
    const RankClass& of = timeline_.classes[static_cast<std::size_t>(rank_class)];
    const Role& role = program_.roles[of.role.index()];
    if (role.buffers.empty()) return;
    std::int64_t live = 0;
    for (const Buffer& buffer : role.buffers) live += buffer.persistent ? buffer.bytes : 0;
    std::vector<Change> changes = memory_changes(role, begin, end);
    std::ranges::sort(changes, {}, &Change::time);
    write_counter(rank_class, std::min(timeline_.spans[begin].start, timeline_.step_start), live);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      live += changes[i].bytes;
      if (i + 1 == changes.size() || changes[i + 1].time != changes[i].time) {
        write_counter(rank_class, changes[i].time, live);
      }
    }
  }

  std::vector<Change> memory_changes(const Role& role, std::size_t begin, std::size_t end) const {
    struct Life {
      bool touched = false;
      SimTime from, to;
    };
    const std::vector<std::size_t> owners = memory_owners(role);
    std::vector<Life> lives(role.buffers.size());
    for (std::size_t i = begin; i < end; ++i) {
      const Span& span = timeline_.spans[i];
      for (std::int32_t k = span.first; k <= span.last; ++k) {
        const Range operands = role.instructions[static_cast<std::size_t>(k)].operands;
        for (std::int32_t o = operands.begin; o < operands.end; ++o) {
          Life& life = lives[owners[role.operands[static_cast<std::size_t>(o)].buffer.index()]];
          life.from = life.touched ? std::min(life.from, span.start) : span.start;
          life.to = life.touched ? std::max(life.to, span.end) : span.end;
          life.touched = true;
        }
      }
    }
    std::vector<Change> changes;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const Buffer& buffer = role.buffers[i];
      if (buffer.persistent || !lives[i].touched) continue;
      changes.push_back({lives[i].from, buffer.bytes});
      changes.push_back({lives[i].to, -buffer.bytes});
    }
    return changes;
  }

  void write_counter(std::int32_t rank_class, SimTime time, std::int64_t bytes) {
    begin_event(R"({"ph":"C","name":"memory","pid":)");
    put(rank_class, R"(,"ts":)");
    put_time(time - origin_);
    put(R"(,"args":{"bytes":)", bytes, "}}");
  }

  std::ostream& out_;
  const Program& program_;
  const Timeline& timeline_;
  SimTime origin_;  // The earliest moment shown: viewers don't take negative times.
  std::vector<std::string> labels_;
  std::vector<std::string> kernels_;
  fmt::memory_buffer buffer_;
  bool first_ = true;
};

}  // namespace

void write_trace(std::ostream& out, const Program& program, const Timeline& timeline) {
  TraceWriter(out, program, timeline).write();
}

}  // namespace orrery
