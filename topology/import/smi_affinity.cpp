#include "topology/import/smi_affinity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace orrery {
namespace {

// What a row says, before it is believed.
struct Tail {
  const SmiRow* row = nullptr;
  SmiDevice* device = nullptr;
  std::string cpus = {}, numa = {}, gpu_numa = {};
  bool blank_cpus = false;
  std::string glued = {};  // CPU list and NUMA node, perhaps; or a CPU list that is cut.
};

bool is_value(const std::string& field) { return smi_number_list(field) || field == "N/A"; }

// "0N/A" are two fields.
std::vector<std::string> split_fields(const std::vector<std::string>& tail) {
  std::vector<std::string> fields;
  for (std::string field : tail) {
    for (std::size_t at = field.find("N/A"); at != std::string::npos && field != "N/A";
         at = field.find("N/A")) {
      if (at > 0) fields.push_back(field.substr(0, at));
      if (at == 0) fields.emplace_back("N/A");
      field = field.substr(at == 0 ? 3 : at);
    }
    fields.push_back(field);
  }
  return fields;
}

// Widths of the ranges of a list; none where it isn't one: "240-25", "24-47,".
std::optional<std::vector<std::int64_t>> widths(std::string_view list) {
  std::vector<std::int64_t> found;
  std::int64_t last = -1;
  while (true) {
    const std::string_view item = list.substr(0, list.find(','));
    std::int64_t first = 0, end = 0;
    const char* stop = item.data() + item.size();
    const auto low = std::from_chars(item.data(), stop, first);
    if (low.ec != std::errc()) return std::nullopt;
    end = first;
    if (low.ptr != stop) {
      if (*low.ptr != '-') return std::nullopt;
      const auto high = std::from_chars(low.ptr + 1, stop, end);
      if (high.ec != std::errc() || high.ptr != stop) return std::nullopt;
    }
    if (first <= last || end < first) return std::nullopt;
    last = end;
    found.push_back(end - first + 1);
    if (item.size() == list.size()) return found;
    list.remove_prefix(item.size() + 1);
  }
}

struct Columns {
  bool cpus = false, numa = false, gpu_numa = false;
};

Columns columns_of(const SmiTable& table) {
  if (table.cpu_column) return {true, table.numa_column, table.gpu_numa_column};
  std::size_t most = 0;
  for (const SmiRow& row : table.rows) {
    const auto fields = split_fields(row.tail);
    most = std::max(most, static_cast<std::size_t>(std::count_if(fields.begin(), fields.end(), is_value)));
  }
  return {most >= 1, most >= 2, most >= 3};
}

// Sorts the fields of one row by what they must be.
void sort_fields(Tail& tail, const Columns& columns) {
  std::vector<std::string> fields = split_fields(tail.row->tail);
  while (!fields.empty() && fields.back().empty()) fields.pop_back();
  if (tail.row->tabbed && fields.size() >= 2 && fields[0].empty()) {
    tail.blank_cpus = true;
    tail.numa = fields[1];
    if (fields.size() > 2) tail.gpu_numa = fields.back();
    return;
  }
  std::erase_if(fields, [](const std::string& field) { return !is_value(field); });
  const std::size_t wanted = std::size_t{columns.cpus} + columns.numa + columns.gpu_numa;
  const bool has_last =
      columns.gpu_numa && (fields.size() >= wanted || (fields.size() >= 2 && fields.back() == "N/A"));
  if (has_last) {
    tail.gpu_numa = fields.back();
    fields.pop_back();
  }
  if (!columns.numa || fields.size() >= 2) {
    if (!fields.empty()) tail.cpus = fields[0];
    if (fields.size() >= 2) tail.numa = fields[1];
  } else if (fields.size() == 1) {
    const bool small = fields[0].size() <= 2 && fields[0].find_first_of(",-") == std::string::npos;
    tail.blank_cpus = has_last && small;
    (tail.blank_cpus ? tail.numa : tail.glued) = fields[0];
  } else if (has_last) {
    tail.blank_cpus = true;
  }
}

// Lists that can be trusted, to judge the others by.
struct Known {
  std::set<std::string> lists;
  std::set<std::vector<std::int64_t>> widths;
};

Known known_lists(const std::vector<Tail>& tails) {
  Known known;
  for (const Tail& tail : tails) {
    const auto shape = widths(tail.cpus);
    if (tail.cpus.empty() || tail.row->cut || !shape) continue;
    known.lists.insert(tail.cpus);
    known.widths.insert(*shape);
  }
  return known;
}

// "0-31,64-950" is 0-31,64-95 and node 0: hardware threads make ranges of one width, or the widths of other
// rows. Both halves are told only where one way of cutting gives that.
bool unglue(Tail& tail, const Known& known) {
  std::vector<std::size_t> ways;
  for (std::size_t digits = 1; digits <= 2 && digits < tail.glued.size(); ++digits) {
    const auto shape = widths(std::string_view(tail.glued).substr(0, tail.glued.size() - digits));
    if (!shape || !smi_number_list(tail.glued.substr(tail.glued.size() - digits))) continue;
    const bool even = shape->size() > 1 && shape->front() > 1 &&
                      std::equal(shape->begin() + 1, shape->end(), shape->begin());
    if (even || known.widths.count(*shape) > 0) ways.push_back(tail.glued.size() - digits);
  }
  if (ways.size() != 1) return false;
  tail.cpus = tail.glued.substr(0, ways[0]);
  tail.numa = tail.glued.substr(ways[0]);
  return true;
}

std::string same_numa(const Tail& tail, const std::vector<Tail>& tails) {
  for (const Tail& other : tails) {
    if (&other != &tail && !other.row->cut && other.cpus == tail.cpus && !other.numa.empty())
      return other.numa;
  }
  return "";
}

constexpr const char* kNuma = "numactl --hardware, and cat /sys/bus/pci/devices/BUS_ID/numa_node";

void settle_list(Tail& tail, const std::vector<Tail>& tails, const Known& known,
                 std::vector<ImportNote>& notes) {
  const auto note = [&](ImportNote::Kind kind, const std::string& text) {
    notes.push_back({kind, tail.row->line, fmt::format("{}: {}", tail.device->label, text),
                     kind == ImportNote::Kind::kRepaired ? "" : kNuma});
  };
  if (!tail.glued.empty()) {
    if (known.lists.count(tail.glued) > 0) {
      tail.cpus = tail.glued;
      tail.numa = same_numa(tail, tails);
      note(ImportNote::Kind::kRepaired,
           fmt::format("NUMA node is missing: \"{}\" from a row with the same CPUs", tail.numa));
    } else if (unglue(tail, known)) {
      note(ImportNote::Kind::kRepaired,
           fmt::format("\"{}\" taken as CPUs {} and NUMA node {}", tail.glued, tail.cpus, tail.numa));
    } else {
      note(ImportNote::Kind::kMissing,
           fmt::format("CPU list \"{}\" is cut or glued to the next column: not taken", tail.glued));
    }
    return;
  }
  const auto shape = widths(tail.cpus);
  const bool last = tail.row->cut && tail.numa.empty();
  if (!tail.cpus.empty() && tail.cpus != "N/A" &&
      (!shape || (last && known.lists.count(tail.cpus) == 0 && known.widths.count(*shape) == 0))) {
    note(ImportNote::Kind::kMissing, fmt::format("CPU list \"{}\" is cut: not taken", tail.cpus));
    tail.cpus.clear();
  }
  if (tail.row->cut && !tail.numa.empty() && tail.gpu_numa.empty() && same_numa(tail, tails) != tail.numa) {
    note(ImportNote::Kind::kAssumed,
         fmt::format("the text ends at NUMA node \"{}\": taken as whole", tail.numa));
  }
}

// nvidia-smi prints six entries at most, which leaves out most of an interleaved numbering.
bool stops_after_six(const std::string& list) {
  const auto shape = widths(list);
  return shape && shape->size() == 6 &&
         std::all_of(shape->begin(), shape->end(), [](auto width) { return width == 1; });
}

void store(const Tail& tail) {
  const auto value = [](const std::string& field) { return field == "N/A" ? std::string() : field; };
  SmiDevice& device = *tail.device;
  if (!device.cpu_affinity.empty() || !device.numa_affinity.empty()) return;  // A second row of the same GPU.
  device.cpu_affinity = value(tail.cpus);
  device.numa_affinity = value(tail.numa);
  std::int32_t id = 0;
  const char* end = tail.gpu_numa.data() + tail.gpu_numa.size();
  const auto [stop, error] = std::from_chars(tail.gpu_numa.data(), end, id);
  if (error == std::errc() && stop == end && !tail.row->cut) device.gpu_numa_id = id;
}

void note_blank(const std::vector<std::string>& labels, const char* what, const char* remedy,
                std::vector<ImportNote>& notes) {
  if (labels.empty()) return;
  notes.push_back(
      {ImportNote::Kind::kMissing, 0, fmt::format("{}: {}", fmt::join(labels, ", "), what), remedy});
}

}  // namespace

void read_smi_affinities(const SmiTable& table, std::vector<SmiDevice>& devices,
                         std::vector<ImportNote>& notes) {
  const Columns columns = columns_of(table);
  if (!columns.cpus) {
    notes.push_back({ImportNote::Kind::kMissing, 0, "the matrix has no CPU Affinity column", kNuma});
    return;
  }
  std::vector<Tail> tails;
  for (const SmiRow& row : table.rows) {
    const auto device = std::find_if(devices.begin(), devices.end(), [&](const SmiDevice& other) {
      return other.label == row.label && other.gpu;
    });
    if (device == devices.end()) continue;
    tails.push_back({.row = &row, .device = &*device});
    sort_fields(tails.back(), columns);
  }
  const Known known = known_lists(tails);
  std::vector<std::string> blank, six;
  for (Tail& tail : tails) {
    if (tail.cpus.empty() && tail.glued.empty()) blank.push_back(tail.device->label);
    settle_list(tail, tails, known, notes);
    store(tail);
    if (stops_after_six(tail.cpus)) six.push_back(tail.device->label);
  }
  note_blank(blank, "CPU Affinity is blank: the process may not use those CPUs, or the row is cut",
             "nvidia-smi topo -m outside the container or job, or numactl --hardware", notes);
  note_blank(six, "the CPU list has six entries, where nvidia-smi stops; there may be more",
             "lscpu -e=CPU,NODE", notes);
}

}  // namespace orrery
