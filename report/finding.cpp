#include "report/finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orrery {
namespace {

// Long lines of logs are shown as far as a terminal is wide.
std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 96;
  return text.size() <= kMost ? text : text.substr(0, kMost - 3) + "...";
}

std::string place(const Evidence& evidence) {
  return evidence.line > 0 ? fmt::format("{}:{}", evidence.file, evidence.line) : evidence.file;
}

std::string cost(const Finding& finding) {
  std::string text = finding.stops_run ? "stops the run" : "";
  if (finding.now_gb_per_s && finding.mended_gb_per_s && finding.loss() == 0)
    text += fmt::format("{}none by NCCL's search: {:.4g} GB/s either way ({})", text.empty() ? "" : "; ",
                        *finding.now_gb_per_s, finding.rate_of);
  else if (finding.now_gb_per_s && finding.mended_gb_per_s)
    text +=
        fmt::format("{}{:.4g} GB/s instead of {:.4g} ({}, -{:.0f} %)", text.empty() ? "" : "; ",
                    *finding.now_gb_per_s, *finding.mended_gb_per_s, finding.rate_of, 100 * finding.loss());
  return text.empty() ? "doesn't follow from these files" : text;
}

}  // namespace

double Finding::loss() const {
  if (!now_gb_per_s || !mended_gb_per_s || !(*mended_gb_per_s > 0)) return 0;
  return std::max(0.0, 1 - *now_gb_per_s / *mended_gb_per_s);
}

void order_by_cost(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) {
    if (a.stops_run != b.stops_run) return a.stops_run;
    return a.loss() > b.loss();
  });
}

std::string to_table(const std::vector<Finding>& findings) {
  if (findings.empty()) return "Nothing found.\n";
  std::string text;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    text += fmt::format("{}. {} [{}]\n", i + 1, finding.title, finding.id);
    text += fmt::format("   cost      {}\n", cost(finding));
    for (const Evidence& evidence : finding.evidence)
      text += fmt::format("   evidence  {}: {}\n", place(evidence), shortened(evidence.text));
    text += fmt::format("   cause     {}\n", finding.cause);
    text += fmt::format("   remedy    {}\n", finding.remedy);
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry{{"id", finding.id}, {"title", finding.title}};
    entry["stops_run"] = finding.stops_run;
    entry["loss"] = finding.loss();
    if (finding.now_gb_per_s) entry["now_gb_per_s"] = *finding.now_gb_per_s;
    if (finding.mended_gb_per_s) entry["mended_gb_per_s"] = *finding.mended_gb_per_s;
    if (!finding.rate_of.empty()) entry["rate_of"] = finding.rate_of;
    entry["evidence"] = nlohmann::ordered_json::array();
    for (const Evidence& evidence : finding.evidence)
      entry["evidence"].push_back(
          {{"file", evidence.file}, {"line", evidence.line}, {"text", evidence.text}});
    entry["cause"] = finding.cause;
    entry["remedy"] = finding.remedy;
    list.push_back(std::move(entry));
  }
  // Lines of logs may hold anything.
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
