#include "calibration/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"

namespace orrery {
namespace {

using Spans = std::vector<const RecordedSpan*>;
using View = std::span<const RecordedSpan* const>;

struct RankSide {
  const RecordedClass* of = nullptr;
  std::map<std::string, Spans> streams;
};

struct Sides {
  explicit Sides(const TimelineRecord& record) : of_class(record.classes.size()) {
    for (std::size_t c = 0; c < record.classes.size(); ++c) {
      const RecordedClass& one = record.classes[c];
      of_class[c].of = &one;
      for (const RecordedSpan& span : one.spans) of_class[c].streams[span.stream].push_back(&span);
      for (const std::int32_t rank : one.ranks) of_rank[rank] = &of_class[c];
    }
  }

  std::vector<RankSide> of_class;
  std::map<std::int32_t, const RankSide*> of_rank;
};

bool is_run(const RecordedSpan& span) { return span.first != span.last; }

double busy_of(View spans) {
  double busy = 0;
  for (const RecordedSpan* span : spans) busy += span->end_s - span->ready_s;
  return busy;
}

double waiting_of(View spans) {
  double waiting = 0;
  for (const RecordedSpan* span : spans) waiting += span->ready_s - span->start_s;
  return waiting;
}

// What the two sides say of the same instructions; at least one of them in a single span.
struct Group {
  View predicted, measured;
};

// Walks the two sides of one stream.
class StreamMatch {
 public:
  StreamMatch(const Spans& predicted, const Spans& measured) : predicted_(predicted), measured_(measured) {
    for (std::size_t i = 0; i < measured_.size(); ++i) {
      begins_measured_.try_emplace(measured_[i]->first, i);
      ends_measured_.try_emplace(measured_[i]->last, i);
    }
    for (std::size_t i = 0; i < predicted_.size(); ++i) {
      begins_predicted_.try_emplace(predicted_[i]->first, i);
      ends_predicted_.try_emplace(predicted_[i]->last, i);
    }
  }

  void run() {
    std::size_t p = 0, m = 0;
    while (p < predicted_.size() && m < measured_.size()) {
      if (predicted_[p]->first == measured_[m]->first) {
        meet(p, m);
      } else if (stands_later(begins_measured_, predicted_[p]->first, m)) {
        only_measured.push_back(measured_[m++]);
      } else if (stands_later(begins_predicted_, measured_[m]->first, p)) {
        only_predicted.push_back(predicted_[p++]);
      } else {
        only_predicted.push_back(predicted_[p++]);
        only_measured.push_back(measured_[m++]);
      }
    }
    only_predicted.insert(only_predicted.end(), predicted_.begin() + static_cast<std::ptrdiff_t>(p),
                          predicted_.end());
    only_measured.insert(only_measured.end(), measured_.begin() + static_cast<std::ptrdiff_t>(m),
                         measured_.end());
  }

  std::vector<Group> groups;
  Spans only_predicted, only_measured;

 private:
  using Places = std::unordered_map<std::string, std::size_t>;

  static bool stands_later(const Places& begins, const std::string& name, std::size_t than) {
    const auto at = begins.find(name);
    return at != begins.end() && at->second > than;
  }

  // Both begin with one instruction: the side with the finer grain goes on until both end with one.
  void meet(std::size_t& p, std::size_t& m) {
    const std::size_t p_end = end_of(ends_predicted_, p, measured_[m]->last);
    const std::size_t m_end = end_of(ends_measured_, m, predicted_[p]->last);
    if (p_end > p) {
      groups.push_back({View(predicted_).subspan(p, p_end - p), View(measured_).subspan(m, 1)});
      p = p_end;
      ++m;
    } else if (m_end > m) {
      groups.push_back({View(predicted_).subspan(p, 1), View(measured_).subspan(m, m_end - m)});
      ++p;
      m = m_end;
    } else {
      only_predicted.push_back(predicted_[p++]);
      only_measured.push_back(measured_[m++]);
    }
  }

  // One past the span, from `begin` on, that ends with `last`; `begin` where none does.
  static std::size_t end_of(const Places& ends, std::size_t begin, const std::string& last) {
    const auto at = ends.find(last);
    return at != ends.end() && at->second >= begin ? at->second + 1 : begin;
  }

  const Spans& predicted_;
  const Spans& measured_;
  Places begins_predicted_, begins_measured_, ends_predicted_, ends_measured_;
};

class Comparer {
 public:
  TimelineComparison compare(const TimelineRecord& predicted, const TimelineRecord& measured) {
    result_.step = {predicted.step_time_s, measured.step_time_s};
    const Sides left(predicted), right(measured);
    for (const auto& [rank, side] : left.of_rank) {
      const auto other = right.of_rank.find(rank);
      if (other == right.of_rank.end())
        result_.only_predicted_ranks.push_back(rank);
      else
        compare_rank(rank, *side, *other->second);
    }
    for (const auto& [rank, side] : right.of_rank)
      if (!left.of_rank.contains(rank)) result_.only_measured_ranks.push_back(rank);
    for (auto& [key, op] : ops_) result_.ops.push_back(std::move(op));
    const auto weight = [](const auto& entry) {
      return -(std::abs(entry.busy.difference_s()) + std::abs(entry.waiting.difference_s()));
    };
    std::ranges::stable_sort(result_.ops, {}, weight);
    std::ranges::stable_sort(result_.ranks, {}, weight);
    return std::move(result_);
  }

 private:
  void compare_rank(std::int32_t rank, const RankSide& predicted, const RankSide& measured) {
    if (predicted.of->role != measured.of->role)
      fail(ErrorKind::kInput, "rank {} has role '{}' in the prediction and '{}' in the measurement", rank,
           predicted.of->role, measured.of->role);
    result_.ranks.push_back({rank, predicted.of->role, {}, {}});
    static const Spans kNone;
    for (const auto& [stream, spans] : predicted.streams) {
      const auto other = measured.streams.find(stream);
      compare_stream(predicted.of->role, spans, other == measured.streams.end() ? kNone : other->second);
    }
    for (const auto& [stream, spans] : measured.streams)
      if (!predicted.streams.contains(stream)) compare_stream(predicted.of->role, kNone, spans);
  }

  void compare_stream(const std::string& role, const Spans& predicted, const Spans& measured) {
    StreamMatch match(predicted, measured);
    match.run();
    for (const Group& group : match.groups) add(group);
    for (const RecordedSpan* span : match.only_predicted) miss(true, role, *span);
    for (const RecordedSpan* span : match.only_measured) miss(false, role, *span);
  }

  void add(const Group& group) {
    const RecordedSpan& a = *group.predicted.front();
    const RecordedSpan& b = *group.measured.front();
    const bool run = group.predicted.size() > 1 || group.measured.size() > 1 || is_run(a) || is_run(b);
    const RecordedSpan& named = is_run(b) ? b : a;
    const std::string label = run ? named.first + " … " + named.last : a.label;
    ComparedOp& op = ops_[{label, a.purpose, a.kind}];
    op.label = label;
    op.purpose = run ? named.purpose : a.purpose;
    op.kind = run ? named.kind : a.kind;
    ++op.count;
    const ComparedTime busy{busy_of(group.predicted), busy_of(group.measured)};
    const ComparedTime waiting{waiting_of(group.predicted), waiting_of(group.measured)};
    ComparedRank& rank = result_.ranks.back();
    for (auto [sum, part] : {std::pair{&op.busy, &busy},
                             {&op.waiting, &waiting},
                             {&rank.busy, &busy},
                             {&rank.waiting, &waiting}}) {
      sum->predicted_s += part->predicted_s;
      sum->measured_s += part->measured_s;
    }
    (run ? result_.run_s : result_.single_s) += busy.measured_s;
  }

  void miss(bool predicted, const std::string& role, const RecordedSpan& span) {
    const std::string name = is_run(span) ? span.first + " … " + span.last : span.first;
    const auto [at, fresh] = missed_.try_emplace({predicted, role, name}, result_.unmatched.size());
    if (fresh) result_.unmatched.push_back({predicted, role, name, 0});
    ++result_.unmatched[at->second].ranks;
  }

  TimelineComparison result_;
  std::map<std::tuple<std::string, std::string, std::string>, ComparedOp> ops_;
  std::map<std::tuple<bool, std::string, std::string>, std::size_t> missed_;
};

}  // namespace

double ComparedTime::error() const {
  if (predicted_s == measured_s) return 0;
  if (measured_s == 0) return std::numeric_limits<double>::infinity();
  return predicted_s / measured_s - 1;
}

TimelineComparison compare_timelines(const TimelineRecord& predicted, const TimelineRecord& measured) {
  if (predicted.program_hash != measured.program_hash)
    fail(ErrorKind::kInput,
         "the two files are of different Programs: '{}' ({}) and '{}' ({}); simulate and run the same "
         "scenario with the same settings",
         predicted.program, predicted.program_hash, measured.program, measured.program_hash);
  return Comparer().compare(predicted, measured);
}

bool exceeds(const TimelineComparison& comparison, double threshold) {
  return std::abs(comparison.step.error()) > threshold;
}

}  // namespace orrery
