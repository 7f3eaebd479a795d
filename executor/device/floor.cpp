#include "executor/device/floor.hpp"

#include <algorithm>
#include <map>

#include "executor/device/describe.hpp"

namespace orrery::device {

std::vector<FloorRow> floor_rows(const Program& program, const Role& role, const DeviceStep& step,
                                 const std::vector<LaunchTime>& times, const std::vector<Span>& spans) {
  std::map<std::string, const LaunchTime*> known;
  for (const LaunchTime& time : times) known[time.launch] = &time;
  std::map<std::string, FloorRow> by_label;
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    const std::string& label = program.labels[role.instructions[i].label.index()];
    FloorRow& row = by_label[label];
    row.label = label;
    ++row.instructions;
    row.step_us += 1e-3 * static_cast<double>(spans[i].end_ns - spans[i].start_ns);
    for (const std::vector<Launch>* launches :
         {&step.instructions[i].launches, &step.instructions[i].landing}) {
      for (const Launch& launch : *launches) {
        const auto time = known.find(describe(launch));
        if (time == known.end()) continue;
        row.alone_us += time->second->alone_us;
        row.floor_us += time->second->bytes > 0 ? time->second->copy_us : time->second->alone_us;
      }
    }
  }
  std::vector<FloorRow> rows;
  for (auto& [label, row] : by_label) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const FloorRow& a, const FloorRow& b) {
    return a.step_us - a.floor_us > b.step_us - b.floor_us;
  });
  return rows;
}

}  // namespace orrery::device
