#include "topology/import/nccl_tests_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::nccl_tests {
namespace {

// Half a unit of the last printed digit of a rate, and a little for how nccl-tests rounds on its way.
constexpr double kHalfRateDigit = 0.0056;

double half_digit(std::string_view number) {
  const std::size_t point = number.find('.');
  const auto decimals = point == std::string_view::npos ? 0 : static_cast<int>(number.size() - point - 1);
  return 0.5 * std::pow(10.0, -decimals);
}

std::vector<const NcclTestsTiming*> timings(const NcclTestsTable& table) {
  std::vector<const NcclTestsTiming*> result;
  for (const NcclTestsRow& row : table.rows) {
    if (row.out_of_place) result.push_back(&*row.out_of_place);
    if (row.in_place) result.push_back(&*row.in_place);
  }
  return result;
}

// Of the row with the most digits: busbw / algbw.
std::optional<double> measured_factor(const NcclTestsTable& table) {
  const NcclTestsTiming* best = nullptr;
  for (const NcclTestsTiming* timing : timings(table)) {
    if (best == nullptr || timing->algorithm_gb_per_s > best->algorithm_gb_per_s) best = timing;
  }
  if (best == nullptr || best->algorithm_gb_per_s < 1) return std::nullopt;
  return best->bus_gb_per_s / best->algorithm_gb_per_s;
}

void note(NcclTestsTable& table, ImportNote::Kind kind, std::int32_t line, std::string text,
          std::string remedy = {}) {
  table.notes.push_back({kind, line, std::move(text), std::move(remedy)});
}

void check_ranks(NcclTestsTable& table) {
  std::ranges::stable_sort(table.ranks, {}, &NcclTestsRank::rank);
  for (const NcclTestsRank& rank : table.ranks) table.rank_count = std::max(table.rank_count, rank.rank + 1);
  const auto listed = static_cast<std::int32_t>(table.ranks.size());
  if (listed == 0) {
    note(table, ImportNote::Kind::kMissing, 0,
         "the list of devices ('#  Rank  0 Group  0 Pid …') isn't in the text",
         "give nccl-tests' whole output");
  } else if (listed != table.rank_count) {
    note(table, ImportNote::Kind::kMissing, 0,
         fmt::format("{} of {} ranks are listed", listed, table.rank_count), "give nccl-tests' whole output");
  }
  for (std::size_t i = 0; i + 1 < table.ranks.size(); ++i) {
    const NcclTestsRank &a = table.ranks[i], &b = table.ranks[i + 1];
    if (a.rank == b.rank)
      note(table, ImportNote::Kind::kSuspect, 0, fmt::format("rank {} is listed twice", a.rank));
    if (a.host == b.host && a.device == b.device && a.pid != b.pid) {
      note(table, ImportNote::Kind::kSuspect, 0,
           fmt::format("ranks {} and {} share device {} of {}: they time each other's waiting", a.rank,
                       b.rank, a.device, a.host));
    }
  }
}

bool fits(std::string_view collective, std::int32_t ranks, double factor) {
  const auto expected = nccl_tests_bus_factor(collective, ranks);
  return expected && std::abs(*expected - factor) < 0.01 * std::max(factor, 0.1);
}

// With a reduction and no root the ratio of the two bandwidths tells an all-reduce from a reduce-scatter.
void find_collective(NcclTestsTable& table, double factor) {
  if (!table.collective.empty()) return;
  const bool reduces = table.rows.front().reduction != "none" && table.rows.front().root < 0;
  for (const std::string_view guess : {"all_reduce", "reduce_scatter"}) {
    // With two ranks an all-reduce's ratio is that of a reduce with root 0, which prints its root.
    if (!reduces || table.rank_count < 2 || !fits(guess, table.rank_count, factor)) continue;
    table.collective = std::string(guess);
    note(table, ImportNote::Kind::kAssumed, 0,
         fmt::format("the text doesn't name its collective: {} by busbw/algbw = {:.3f} on {} ranks", guess,
                     factor, table.rank_count));
    return;
  }
  note(table, ImportNote::Kind::kMissing, 0, "the text doesn't say which collective was timed",
       "name the file after it (all_gather_….txt), or keep the command line in the text");
}

// (n − 1)/n and 2(n − 1)/n say n, where the list of devices doesn't.
void find_rank_count(NcclTestsTable& table, double factor) {
  if (table.rank_count > 0) return;
  const double part = table.collective == "all_reduce" ? factor / 2 : factor;
  const bool tells = table.collective == "all_reduce" || table.collective == "all_gather" ||
                     table.collective == "reduce_scatter" || table.collective == "alltoall" ||
                     table.rows.front().reduction == "none";
  if (!tells || part <= 0.1 || part >= 0.9999) return;
  const double ranks = 1 / (1 - part);
  if (std::abs(ranks - std::round(ranks)) > 0.02 * ranks) return;
  table.rank_count = static_cast<std::int32_t>(std::lround(ranks));
  note(table, ImportNote::Kind::kAssumed, 0,
       fmt::format("{} ranks by busbw/algbw = {:.4f}", table.rank_count, factor));
}

void check_factor(NcclTestsTable& table) {
  const auto factor = nccl_tests_bus_factor(table.collective, table.rank_count);
  if (!factor) return;
  for (const NcclTestsRow& row : table.rows) {
    for (const auto* timing : {&row.out_of_place, &row.in_place}) {
      if (!*timing) continue;
      const double expected = *factor * (*timing)->algorithm_gb_per_s;
      if (std::abs(expected - (*timing)->bus_gb_per_s) <= kHalfRateDigit * (1 + *factor) + 1e-3 * expected)
        continue;
      note(table, ImportNote::Kind::kSuspect, row.line,
           fmt::format("busbw {:.2f} isn't {:.4f} · algbw {:.2f}, as it is for {} on {} ranks",
                       (*timing)->bus_gb_per_s, *factor, (*timing)->algorithm_gb_per_s, table.collective,
                       table.rank_count));
      return;
    }
  }
}

void check_sizes(NcclTestsTable& table) {
  if (table.threads == 0) {
    note(table, ImportNote::Kind::kMissing, 0,
         "the options ('# nThread …') aren't in the text: rows may be missing",
         "give nccl-tests' whole output");
  } else if (table.max_bytes == 0 || table.iterations == 0) {
    note(table, ImportNote::Kind::kSuspect, 0, "the options ('# nThread …') are torn: rows may be missing",
         "give nccl-tests' whole output");
  }
  const std::int64_t first = table.rows.front().bytes, last = table.rows.back().bytes;
  const double step = table.step_factor > 1 ? table.step_factor : 2;
  // Sizes are rounded down to whole elements for all ranks, so only more than a step is a gap.
  if (table.min_bytes > 0 && static_cast<double>(first) > 1.01 * static_cast<double>(table.min_bytes)) {
    note(table, ImportNote::Kind::kMissing, table.rows.front().line,
         fmt::format("the first row is of {} bytes, where the test began with {}: rows were cut", first,
                     table.min_bytes));
  }
  if (table.max_bytes > 0 && static_cast<double>(last) * step < 1.01 * static_cast<double>(table.max_bytes) &&
      last < table.max_bytes) {
    note(table, ImportNote::Kind::kMissing, table.rows.back().line,
         fmt::format("the last row is of {} bytes, where the test went on to {}: rows were cut", last,
                     table.max_bytes));
  }
  for (std::size_t i = 0; i + 1 < table.rows.size(); ++i) {
    const std::int64_t a = table.rows[i].bytes, b = table.rows[i + 1].bytes;
    if (b < a) {
      note(table, ImportNote::Kind::kSuspect, table.rows[i + 1].line,
           "sizes go down here: rows of two tests, or out of order");
    } else if (b == a && a > 0) {
      note(table, ImportNote::Kind::kSuspect, table.rows[i + 1].line,
           fmt::format("a second row of {} bytes", a));
    } else if (table.step_factor > 1 && a > 0 &&
               static_cast<double>(b) > 1.51 * table.step_factor * static_cast<double>(a)) {
      // Rounding down to whole elements for all ranks makes at most half a step more of one.
      note(table, ImportNote::Kind::kMissing, table.rows[i + 1].line,
           fmt::format("rows are missing between {} and {} bytes", a, b));
    }
  }
}

void check_results(NcclTestsTable& table) {
  for (const NcclTestsRow& row : table.rows) {
    for (const auto* timing : {&row.out_of_place, &row.in_place}) {
      // Older versions print the greatest relative error, which rounding makes.
      if (!*timing || !(*timing)->wrong || *(*timing)->wrong < 1) continue;
      note(table, ImportNote::Kind::kSuspect, row.line,
           fmt::format("{} wrong elements at {} bytes", *(*timing)->wrong, row.bytes));
    }
  }
  if (!table.average_bus_gb_per_s) {
    note(table, ImportNote::Kind::kMissing, 0,
         "the summary ('# Avg bus bandwidth') isn't in the text: rows may be missing at the end");
    return;
  }
  double sum = 0;
  const std::vector<const NcclTestsTiming*> all = timings(table);
  for (const NcclTestsTiming* timing : all) sum += timing->bus_gb_per_s;
  const double average = all.empty() ? 0 : sum / static_cast<double>(all.size());
  if (std::abs(average - *table.average_bus_gb_per_s) <= kHalfRateDigit + 1e-4 * average) return;
  note(table, ImportNote::Kind::kSuspect, 0,
       fmt::format("the rows' busbw is {:.3f} GB/s on average, and the summary says {:.3f}: rows are missing "
                   "or changed",
                   average, *table.average_bus_gb_per_s));
}

}  // namespace

bool adds_up(std::int64_t bytes, std::string_view time, const NcclTestsTiming& timing) {
  if (timing.time_us <= 0) return bytes == 0 && timing.algorithm_gb_per_s == 0;
  const double rate = static_cast<double>(bytes) / timing.time_us / 1e3;
  // A relative error of the time is one of the rate; the second order matters where the time has two digits.
  const double relative = half_digit(time) / timing.time_us;
  return std::abs(rate - timing.algorithm_gb_per_s) <= kHalfRateDigit + rate * relative * (1 + 2 * relative);
}

void check_table(NcclTestsTable& table) {
  check_ranks(table);
  if (const auto factor = measured_factor(table)) {
    find_collective(table, *factor);
    find_rank_count(table, *factor);
  } else if (table.collective.empty()) {
    find_collective(table, 0);
  }
  check_factor(table);
  check_sizes(table);
  check_results(table);
}

}  // namespace orrery::nccl_tests
