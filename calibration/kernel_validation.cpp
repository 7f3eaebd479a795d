#include "calibration/kernel_validation.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "calibration/kernel_fit.hpp"
#include "simulator/kernel_model.hpp"
#include "topology/kernel_costs.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

// Benchmarks repeat a kernel for about as long as a GPU's clocks take to react.
constexpr double kBenchmarkRun = 10e-3;

// A row that can be predicted, or why it can't.
struct Prediction {
  std::string family;
  std::string refusal;
  double seconds = 0;
  double flops = 0;  // As the sources count them, for rows that publish a rate instead of a time.
  CostError error;
};

Prediction refused(std::string reason) {
  Prediction result;
  result.refusal = std::move(reason);
  return result;
}

class Row {
 public:
  Row(const CsvRecord& record, Json shape, const GpuType& gpu)
      : notes(record["notes"]),
        kernel(record["kernel"]),
        source(record["source"]),
        gpu_(gpu),
        profile_(default_profile(gpu)),
        shape_(std::move(shape)) {}

  // The first of the names that sources use for one size. Some write numbers as texts.
  std::optional<std::int64_t> size(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      const auto found = shape_.find(key);
      if (found == shape_.end()) continue;
      if (found->is_number_integer()) return found->get<std::int64_t>();
      if (found->is_string() && !found->get_ref<const std::string&>().empty())
        return std::strtoll(found->get_ref<const std::string&>().c_str(), nullptr, 10);
    }
    return std::nullopt;
  }
  bool flag(const char* key) const {
    const auto found = shape_.find(key);
    return found != shape_.end() && (*found == true || *found == "True");
  }
  std::string text(const char* key) const {
    const auto found = shape_.find(key);
    return found != shape_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  bool says(std::string_view words) const { return notes.find(words) != std::string::npos; }
  // Published times are of single launches, some timed from the host up to the end of a synchronisation.
  double launch_s() const {
    return profile_.single_launch_s + (says("host wall clock") ? profile_.launch_s : 0);
  }

  double time(const Kernel& it) const { return kernel_seconds(it, gpu_, profile_, kBenchmarkRun); }
  double stream(double bytes) const {
    Kernel it;
    it.read_bytes = static_cast<std::int64_t>(bytes);
    return time(it);
  }
  double rows(double bytes, std::int64_t elements) const {
    return row_kernel_seconds(bytes, static_cast<double>(elements), gpu_, profile_);
  }
  Profile& profile() { return profile_; }
  const GpuType& gpu() const { return gpu_; }

  std::string notes, kernel, source;
  DType dtype = DType::kBf16;

 private:
  GpuType gpu_;
  Profile profile_;
  Json shape_;
};

std::optional<DType> dtype_of(const std::string& written) {
  if (written.starts_with("bf16") || written == "bfloat16") return DType::kBf16;
  if (written.starts_with("fp16")) return DType::kFp16;
  if (written.starts_with("fp8") || written == "mxfp8") return DType::kFp8;
  return std::nullopt;
}

// Names that sources use where the catalogue has others.
std::optional<GpuType> gpu_of(const std::string& name) {
  static const std::map<std::string, std::string> kNames{
      {"A100 SXM", "a100-sxm-80gb"}, {"B200 SXM", "b200-sxm"},  {"B300 SXM", "b300-sxm"},
      {"GB200 SXM", "gb200"},        {"GH200 SXM", "gh200"},    {"H100 SXM", "h100-sxm"},
      {"H200 SXM", "h200-sxm"},      {"A100 PCIe", "a100-pcie"}};
  const auto known = kNames.find(name);
  return catalogue_gpu(known == kNames.end() ? name : known->second);
}

Prediction predict_matmul(const Row& row, bool grouped) {
  const auto m = row.size({"m", "M", "m_per_group"}), n = row.size({"n", "N"}), k = row.size({"k", "K"});
  if (!m || !n || !k) return refused("the shape is incomplete");
  Kernel kernel = matmul_kernel(row.dtype, *m, *n, *k, row.size({"b", "groups", "ng"}).value_or(1));
  const std::int64_t out = *m * *n * kernel.batch;
  if (row.text("out_dtype") == "fp32" && row.text("accumulate") == "True") {
    kernel.read_bytes += 4 * out;  // Added to a gradient in fp32.
    kernel.written_bytes = 4 * out;
  }
  return {grouped ? "grouped matmul" : "matmul", "", row.time(kernel) + row.launch_s(), kernel.flops,
          default_profile(row.gpu()).errors.matmul};
}

// Bars of the FlashAttention papers name their implementation first; other sources measure the GPU's own.
std::string choose_attention(Row& row) {
  if (row.says("convention not stated"))
    return "attention FLOPs are counted in a way that the source doesn't state";
  if (!row.source.starts_with("Dao-AILab")) return "";
  const std::string implementation = row.notes.substr(0, row.notes.find(';'));
  if (implementation == "FlashAttention-2") {
    set_attention_kernels(row.gpu(), AttentionKernels::kLegacy, row.profile());
    return "";
  }
  if (implementation == "FlashAttention-3" || implementation == "cuDNN") return "";
  return "attention by an implementation that was not measured: " + implementation;
}

Prediction predict_attention(Row& row, bool forward, bool backward) {
  const auto queries = row.size({"s", "sq", "seq_len"}), keys = row.size({"s", "skv", "seq_len"});
  const auto heads = row.size({"h", "hq", "head_num"}), batch = row.size({"batch"});
  const auto qk = row.size({"d", "dqk", "qk_head_dim"}), v = row.size({"d", "dv", "v_head_dim"});
  if (!queries || !keys || !heads || !batch || !qk || !v) return refused("the shape is incomplete");
  if (row.size({"sliding_window"})) return refused("attention over a sliding window");
  if (const std::string reason = choose_attention(row); !reason.empty()) return refused(reason);
  const bool causal = row.flag("causal") || row.text("mask") == "top_left";
  Prediction result;
  result.family = forward && backward ? "attention both"
                  : backward          ? "attention backward"
                                      : "attention forward";
  result.error = backward ? row.profile().errors.attention_backward : row.profile().errors.attention;
  for (const bool back : {false, true}) {
    if (!(back ? backward : forward)) continue;
    // Queries and keys of one width and values of another cost what their mean does.
    const Kernel kernel =
        attention_kernel(back, row.dtype, *batch, *heads, row.size({"hkv"}).value_or(*heads), *queries, *keys,
                         (*qk + *v) / 2, causal);
    result.seconds += row.time(kernel) + row.launch_s();
    result.flops += kernel.flops;
  }
  return result;
}

// {N tokens, C channels}, or a Megatron layer's {mbs, s, hidden}. Forward reads and writes them, backward
// reads the gradient too. Frameworks' own kernels walk rows; libraries' and compilers' fused ones stream.
Prediction predict_norm(Row& row, bool backward) {
  const std::int64_t tokens =
      row.size({"N"}).value_or(row.size({"mbs"}).value_or(0) * row.size({"s"}).value_or(0));
  const std::int64_t channels = row.size({"C", "hidden"}).value_or(0);
  if (tokens <= 0 || channels <= 0) return refused("the shape is incomplete");
  const double bytes = static_cast<double>(tokens * channels * size_bytes(row.dtype)) * (backward ? 3 : 2);
  const bool fused = row.says("backend cudnn") || row.says("backend torch_compile");
  Prediction result;
  result.family = fused ? "norm, fused" : "norm";
  result.seconds = (fused ? row.stream(bytes) : row.rows(bytes, channels)) + row.launch_s();
  result.error = row.profile().errors.rows;  // Fused ones were not measured either.
  return result;
}

// Megatron's unfused attention and GELU, one kernel each but for products backward, which are two. Scores are
// mbs · heads · s · s; a dropout writes, and reads again, a byte of mask each.
Prediction predict_megatron(Row& row, bool backward) {
  const auto heads = row.size({"heads"}), hidden = row.size({"hidden"}), batch = row.size({"mbs"}),
             s = row.size({"s"});
  if (!heads || !hidden || !batch || !s) return refused("the shape is incomplete");
  const double scores = static_cast<double>(*batch * *heads * *s * *s);
  const double wide = static_cast<double>(*batch * *s * 4 * *hidden);
  Prediction result;
  result.error = row.profile().errors.memory;
  result.family = "element-wise";
  if (row.kernel.find("bmm") != std::string::npos) {
    const std::int64_t d = *hidden / *heads, products = *batch * *heads;
    const Kernel square = matmul_kernel(row.dtype, *s, *s, d, products),
                 thin = matmul_kernel(row.dtype, *s, d, *s, products);
    const bool makes_scores = row.kernel.find("QK^T") != std::string::npos;
    // Of scores, the gradients are thin products; of the context, one is a square one.
    result.seconds = !backward ? row.time(makes_scores ? square : thin)
                               : row.time(thin) + row.time(makes_scores ? thin : square) + row.launch_s();
    result.family = "matmul, batched";
    result.error = row.profile().errors.matmul;
  } else if (row.kernel.starts_with("masked softmax")) {
    result.seconds = row.stream(scores * (backward ? 6 : 4));
  } else if (row.kernel.starts_with("dropout")) {
    result.seconds = row.stream(scores * 5);
  } else {
    result.seconds = row.stream(wide * (backward ? 6 : 4));
  }
  result.seconds += row.launch_s();
  return result;
}

Prediction predict(Row& row) {
  const std::string& kernel = row.kernel;
  const bool backward = kernel.ends_with("_bwd");
  if (kernel == "gemm" || kernel.starts_with("gemm (best")) return predict_matmul(row, false);
  if (kernel == "grouped_gemm") return predict_matmul(row, true);
  if (kernel == "attention_fwd+bwd") return predict_attention(row, true, true);
  if (kernel == "attention_fwd" || kernel == "attention_bwd")
    return predict_attention(row, !backward, backward);
  if (kernel.find("norm") != std::string::npos) return predict_norm(row, backward);
  if (row.source.starts_with("eth-easl/sailor")) return predict_megatron(row, backward);
  return refused("no model of this kernel");
}

// The repository that a source begins with.
std::string short_source(const std::string& source) { return source.substr(0, source.find(' ')); }

class Report {
 public:
  void refuse(const CsvRecord& record, const std::string& family, const std::string& reason) {
    ++refused_[{short_source(record["source"]), record["gpu"], family, reason}];
  }

  void read(const CsvRecord& record) {
    const std::string& kernel = record["kernel"];
    const auto gpu = gpu_of(record["gpu"]);
    if (!gpu) return refuse(record, kernel, "the catalogue has no such GPU");
    const auto dtype = dtype_of(record["dtype"]);
    if (!dtype) return refuse(record, kernel, "no such number format here: " + record["dtype"]);
    const auto rate = record.number_if_given("tflops"), time = record.number_if_given("time_us");
    if (!rate && !time) return refuse(record, kernel, "neither a time nor TFLOP/s are published");
    Json shape = Json::parse(record["shape_json"], nullptr, false);
    if (!shape.is_object()) fail(ErrorKind::kInput, "{}: shape_json is no JSON object", record.place());
    Row row(record, std::move(shape), *gpu);
    row.dtype = *dtype;
    if (gpu->peak(*dtype) <= 0) return refuse(record, kernel, "the GPU has no such arithmetic");
    const Prediction prediction = predict(row);
    if (!prediction.refusal.empty()) return refuse(record, kernel, prediction.refusal);
    const double measured = time ? *time * 1e-6 : prediction.flops / (*rate * 1e12);
    if (!(measured > 0)) fail(ErrorKind::kInput, "{}: the measured time has to be positive", record.place());
    const TimeInterval interval = kernel_interval(prediction.seconds, prediction.error);
    report_.rows.push_back({record["id"], short_source(record["source"]), record["gpu"], prediction.family,
                            measured, prediction.seconds, interval.lower_s, interval.upper_s});
  }

  ValidationReport finish() && {
    for (const auto& [key, count] : refused_) {
      const auto& [source, gpu, family, reason] = key;
      report_.refused.push_back({source, gpu, family, reason, count});
    }
    group_rows(report_);
    return std::move(report_);
  }

 private:
  ValidationReport report_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::int64_t> refused_;
};

}  // namespace

ValidationReport validate_kernels(const std::filesystem::path& file) {
  Report report;
  for (const CsvRecord& record : read_csv(file.string()).records) report.read(record);
  return std::move(report).finish();
}

}  // namespace orrery
