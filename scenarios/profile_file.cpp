#include "scenarios/profile_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.hpp"
#include "model/json_tree.hpp"
#include "model/program.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "orrery-profile";
constexpr double kLongest = 1e4;  // Seconds.
constexpr std::int64_t kMany = std::int64_t{1} << 50;

// A figure of one number, and how `provenance` calls it.
struct Figure {
  const char* key;
  const char* stem;
  double Profile::* member;
  double min, max;
};
constexpr std::array kFigures{
    Figure{"matmul_efficiency", "matmul_efficiency", &Profile::matmul_efficiency, 1e-6, 1},
    Figure{"attention_efficiency", "attention_efficiency", &Profile::attention_efficiency, 1e-6, 1},
    Figure{"attention_backward_efficiency", "attention_backward_efficiency",
           &Profile::attention_backward_efficiency, 1e-6, 1},
    Figure{"memory_efficiency", "memory_efficiency", &Profile::memory_efficiency, 1e-6, 1},
    Figure{"sustained_slowdown", "sustained_slowdown", &Profile::sustained_slowdown, 1, 100},
    Figure{"launch_s", "launch", &Profile::launch_s, 0, 1},
    Figure{"graph_node_s", "graph_node", &Profile::graph_node_s, 0, 1},
    Figure{"kernel_floor_s", "kernel_floor", &Profile::kernel_floor_s, 0, 1},
    Figure{"instruction_s", "instruction", &Profile::instruction_s, 0, 1},
    Figure{"cores_together", "cores_together", &Profile::cores_together, 0, 4096},
    Figure{"compute_interference", "compute_interference", &Profile::compute_interference, 1, 100},
    Figure{"transfer_interference", "transfer_interference", &Profile::transfer_interference, 1, 100},
    Figure{"step_latency_s", "step_latency", &Profile::step_latency_s, 0, 1},
    Figure{"network_step_latency_s", "network_step_latency", &Profile::network_step_latency_s, 0, 1},
    Figure{"collective_base_s", "collective_base", &Profile::collective_base_s, 0, 1},
    Figure{"message_bytes_per_s", "message_bytes_per_s", &Profile::message_bytes_per_s, 0, 1e18},
};
constexpr const char* kOnCore = "communication_on_core";

// ---- Writing.

// What the provenance says of a figure, without its value.
std::string source_of(const Profile& profile, std::string_view stem) {
  for (const std::string& line : profile.provenance) {
    if (!line.starts_with(stem) || line.size() <= stem.size()) continue;
    const char next = line[stem.size()];
    const std::size_t colon = line.find(": ");
    if ((next == ' ' || next == ':') && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "default";
}

Json sampled(Json entry, double sigma, std::int64_t samples, const std::string& source) {
  entry["sigma"] = sigma;
  entry["samples"] = samples;
  entry["source"] = source;
  return entry;
}

Json to_json(const MeasuredKernel& kernel) {
  const Json entry = {{"label", kernel.label},
                      {"kind", kernel.kind},
                      {"dtype", to_string(kernel.dtype)},
                      {"m", kernel.m},
                      {"n", kernel.n},
                      {"k", kernel.k},
                      {"batch", kernel.batch},
                      {"flops", kernel.flops},
                      {"read_bytes", kernel.read_bytes},
                      {"written_bytes", kernel.written_bytes},
                      {"seconds", kernel.seconds}};
  return sampled(entry, kernel.sigma, kernel.samples, kernel.source);
}

Json to_json(const KernelFit& fit) {
  const Json entry = {{"kind", fit.kind},
                      {"label", fit.label},
                      {"base_s", fit.base_s},
                      {"flops_per_s", fit.flops_per_s},
                      {"bytes_per_s", fit.bytes_per_s}};
  return sampled(entry, fit.sigma, fit.samples, fit.source);
}

Json to_json(const CollectiveFit& fit) {
  const Json entry = {{"kind", fit.kind},
                      {"ranks", fit.ranks},
                      {"base_s", fit.base_s},
                      {"seconds_per_byte", fit.seconds_per_byte}};
  return sampled(entry, fit.sigma, fit.samples, fit.source);
}

Json to_json(const MessageFit& fit) {
  const Json entry = {{"base_s", fit.base_s}, {"seconds_per_byte", fit.seconds_per_byte}};
  return sampled(entry, fit.sigma, fit.samples, fit.source);
}

template <class T>
Json list_of(const std::vector<T>& entries) {
  Json list = Json::array();
  for (const T& entry : entries) list.push_back(to_json(entry));
  return list;
}

// ---- Reading.

std::string kernel_kind(const JsonObject& entry) {
  const std::string word = entry.text("kind");
  std::string known;
  for (int k = static_cast<int>(KernelKind::kMatmul); k <= static_cast<int>(KernelKind::kAccumulate); ++k) {
    const std::string_view kind = to_string(static_cast<KernelKind>(k));
    if (word == kind) return word;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind);
  }
  entry.wrong("kind", fmt::format("is '{}'; expected one of {}", word, known));
}

std::string collective_kind(const JsonObject& entry) {
  const std::string word = entry.text("kind");
  std::string known;
  for (int k = 0; k <= static_cast<int>(CollectiveKind::kBroadcast); ++k) {
    const std::string_view kind = to_string(static_cast<CollectiveKind>(k));
    if (word == kind) return word;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind);
  }
  entry.wrong("kind", fmt::format("is '{}'; expected one of {}", word, known));
}

template <class T>
void read_sampled(const JsonObject& entry, T& into) {
  into.sigma = entry.number("sigma", 0, 10);
  into.samples = entry.integer("samples", 1, kMany);
  into.source = entry.text("source");
}

MeasuredKernel read_kernel(const JsonObject& entry) {
  entry.only({"label", "kind", "dtype", "m", "n", "k", "batch", "flops", "read_bytes", "written_bytes",
              "seconds", "sigma", "samples", "source"});
  MeasuredKernel kernel;
  kernel.label = entry.text("label");
  kernel.kind = kernel_kind(entry);
  const auto dtype = parse_dtype(entry.text("dtype"));
  if (!dtype) entry.wrong("dtype", "is no number format; expected e.g. fp32");
  kernel.dtype = *dtype;
  kernel.m = entry.integer("m", 0, kMany);
  kernel.n = entry.integer("n", 0, kMany);
  kernel.k = entry.integer("k", 0, kMany);
  kernel.batch = entry.integer("batch", 1, kMany);
  kernel.flops = entry.number("flops", 0, 1e30);
  kernel.read_bytes = entry.integer("read_bytes", 0, kMany);
  kernel.written_bytes = entry.integer("written_bytes", 0, kMany);
  kernel.seconds = entry.number("seconds", 0, kLongest);
  read_sampled(entry, kernel);
  return kernel;
}

KernelFit read_kernel_fit(const JsonObject& entry) {
  entry.only({"kind", "label", "base_s", "flops_per_s", "bytes_per_s", "sigma", "samples", "source"});
  KernelFit fit;
  fit.kind = kernel_kind(entry);
  if (entry.has("label")) fit.label = entry.text("label");
  fit.base_s = entry.number("base_s", 0, kLongest);
  fit.flops_per_s = entry.number("flops_per_s", 0, 1e24);
  fit.bytes_per_s = entry.number("bytes_per_s", 0, 1e24);
  for (const char* key : {"flops_per_s", "bytes_per_s"})
    if (const double rate = entry.number(key, 0, 1e24); rate > 0 && rate < 1)
      entry.wrong(key, fmt::format("is {}; expected 1 or more, or 0: costs nothing", rate));
  read_sampled(entry, fit);
  return fit;
}

CollectiveFit read_collective_fit(const JsonObject& entry) {
  entry.only({"kind", "ranks", "base_s", "seconds_per_byte", "sigma", "samples", "source"});
  CollectiveFit fit;
  fit.kind = collective_kind(entry);
  fit.ranks = static_cast<std::int32_t>(entry.integer("ranks", 2, 1 << 20));
  fit.base_s = entry.number("base_s", 0, kLongest);
  fit.seconds_per_byte = entry.number("seconds_per_byte", 0, 1);
  read_sampled(entry, fit);
  return fit;
}

MessageFit read_message_fit(const JsonObject& entry) {
  entry.only({"base_s", "seconds_per_byte", "sigma", "samples", "source"});
  MessageFit fit;
  fit.base_s = entry.number("base_s", 0, kLongest);
  fit.seconds_per_byte = entry.number("seconds_per_byte", 0, 1);
  read_sampled(entry, fit);
  return fit;
}

template <class T, class Read, class Key>
void read_list(const JsonObject& file, const char* key, std::vector<T>& into, Read read, Key key_of) {
  if (!file.has(key)) return;
  std::set<decltype(key_of(std::declval<const T&>()))> seen;
  into.clear();
  for (const JsonObject& entry : file.objects(key)) {
    into.push_back(read(entry));
    if (!seen.insert(key_of(into.back())).second)
      entry.wrong("kind", "and what else tells it apart stand there twice; drop one of the two");
  }
}

void set_provenance(Profile& profile, const std::string& stem, const std::string& line) {
  std::erase_if(profile.provenance, [&](const std::string& known) {
    return known.starts_with(stem + " ") || known.starts_with(stem + ":");
  });
  profile.provenance.push_back(line);
}

void read_figures(const JsonObject& figures, Profile& profile) {
  figures.only({kFigures[0].key, kFigures[1].key, kFigures[2].key, kFigures[3].key, kFigures[4].key,
                kFigures[5].key, kFigures[6].key, kFigures[7].key, kFigures[8].key, kFigures[9].key,
                kFigures[10].key, kFigures[11].key, kFigures[12].key, kFigures[13].key, kFigures[14].key,
                kFigures[15].key, kOnCore});
  static_assert(kFigures.size() == 16);
  for (const Figure& figure : kFigures) {
    if (!figures.has(figure.key)) continue;
    const JsonObject entry = figures.object(figure.key);
    entry.only({"value", "source"});
    profile.*figure.member = entry.number("value", figure.min, figure.max);
    set_provenance(profile, figure.stem,
                   fmt::format("{} {:.4g}: {}", figure.stem, profile.*figure.member, entry.text("source")));
  }
  if (!figures.has(kOnCore)) return;
  const JsonObject entry = figures.object(kOnCore);
  entry.only({"value", "source"});
  profile.communication_on_core = entry.boolean("value");
  set_provenance(profile, kOnCore,
                 fmt::format("{} {}: {}", kOnCore, profile.communication_on_core, entry.text("source")));
}

// The fits' own deviations take the place of what was believed of the models that they replace.
void set_errors(Profile& profile) {
  for (const KernelFit& fit : profile.kernel_fits) {
    if (!fit.label.empty()) continue;
    KernelErrors& errors = profile.errors;
    CostError& error = fit.kind == "matmul"               ? errors.matmul
                       : fit.kind == "attention"          ? errors.attention
                       : fit.kind == "attention-backward" ? errors.attention_backward
                                                          : errors.memory;
    error = {fit.sigma, fit.sigma};
  }
  double sigma = profile.message_fit ? profile.message_fit->sigma : 0;
  for (const CollectiveFit& fit : profile.collective_fits) sigma = std::max(sigma, fit.sigma);
  if (!profile.message_fit && profile.collective_fits.empty()) return;
  profile.collectives.node_latency = profile.collectives.node_bandwidth = {sigma, sigma};
}

}  // namespace

std::string profile_json(const Profile& profile, const GpuType& device) {
  Json file;
  file["format"] = kFormat;
  file["version"] = kProfileFileVersion;
  file["name"] = profile.name;
  file["device"] = device.name;
  Json figures;
  for (const Figure& figure : kFigures)
    figures[figure.key] = {{"value", profile.*figure.member}, {"source", source_of(profile, figure.stem)}};
  figures[kOnCore] = {{"value", profile.communication_on_core}, {"source", source_of(profile, kOnCore)}};
  file["figures"] = figures;
  if (profile.message_fit) file["message"] = to_json(*profile.message_fit);
  file["collectives"] = list_of(profile.collective_fits);
  file["kernel_fits"] = list_of(profile.kernel_fits);
  file["kernels"] = list_of(profile.kernels);
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void read_profile_json(std::string_view text, std::string_view place, const GpuType& device,
                       Profile& profile) {
  const JsonNode root = parse_json_tree(text, place);
  const JsonObject file(root, place);
  file.only(
      {"format", "version", "name", "device", "figures", "message", "collectives", "kernel_fits", "kernels"});
  if (file.text("format") != kFormat)
    file.wrong("format", fmt::format("is '{}'; expected {}", file.text("format"), kFormat));
  file.integer("version", kProfileFileVersion, kProfileFileVersion);
  if (const std::string name = file.text("device"); name != device.name)
    file.wrong("device",
               fmt::format("is '{}', but the cluster has {}; a Profile holds for the device that it "
                           "was measured on",
                           name, device.name));
  Profile read = profile;
  read.name = file.text("name");
  if (file.has("figures")) read_figures(file.object("figures"), read);
  if (file.has("message")) read.message_fit = read_message_fit(file.object("message"));
  read_list(file, "collectives", read.collective_fits, read_collective_fit,
            [](const CollectiveFit& fit) { return std::tuple(fit.kind, fit.ranks); });
  read_list(file, "kernel_fits", read.kernel_fits, read_kernel_fit,
            [](const KernelFit& fit) { return std::tuple(fit.kind, fit.label); });
  read_list(file, "kernels", read.kernels, read_kernel, [](const MeasuredKernel& kernel) {
    return std::tuple(kernel.label, kernel.kind, kernel.dtype, kernel.m, kernel.n, kernel.k, kernel.batch,
                      kernel.flops, kernel.read_bytes, kernel.written_bytes);
  });
  set_errors(read);
  read.provenance.push_back(fmt::format("profile {}: read from {}", read.name, place));
  const auto count = [&](const char* what, std::size_t entries) {
    if (entries > 0) read.provenance.push_back(fmt::format("{} {}: {}", entries, what, place));
  };
  count("measured kernels", read.kernels.size());
  count("kernel fits", read.kernel_fits.size());
  count("collective fits", read.collective_fits.size());
  count("message fits", read.message_fit ? 1 : 0);
  profile = std::move(read);
}

void read_profile_file(const std::filesystem::path& file, const GpuType& device, Profile& profile) {
  std::ifstream stream(file, std::ios::binary);
  std::error_code ignored;
  if (!stream || !std::filesystem::is_regular_file(file, ignored))
    fail(ErrorKind::kInput, "{}: can't be read; expected a Profile in JSON", file.string());
  std::ostringstream text;
  text << stream.rdbuf();
  read_profile_json(text.str(), file.string(), device, profile);
}

}  // namespace orrery
