#include <nlohmann/json.hpp>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "calibration/kernel_fit.hpp"

namespace orrery {
namespace {

using Json = nlohmann::json;

Json parse_shape(const CsvRecord& record) {
  Json shape = Json::parse(record["shape"], nullptr, false);
  if (!shape.is_object())
    fail(ErrorKind::kInput, "{}: shape is no JSON object such as {{\"m\": 64, \"n\": 64, \"k\": 64}}",
         record.place());
  return shape;
}

std::int64_t size_of(const Json& shape, const char* key, const CsvRecord& record) {
  const auto found = shape.find(key);
  if (found == shape.end() || !found->is_number_integer() || found->get<std::int64_t>() < 1)
    fail(ErrorKind::kInput, "{}: the shape needs \"{}\", a positive whole number", record.place(), key);
  return found->get<std::int64_t>();
}

MeasuredState parse_state(const CsvRecord& record) {
  const std::string& word = record["state"];
  if (word == "captured") return MeasuredState::kCaptured;
  if (word == "burst") return MeasuredState::kBurst;
  if (word == "sustained") return MeasuredState::kSustained;
  fail(ErrorKind::kInput, "{}: state is \"{}\", expected captured, burst or sustained", record.place(), word);
}

// FNV-1a: the same split on every machine.
bool held_out(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return (hash >> 32) % 3 == 0;
}

void read_attention(const Json& shape, const CsvRecord& record, bool backward, KernelMeasurement& result) {
  const std::int64_t s = size_of(shape, "s", record), d = size_of(shape, "d", record);
  const bool causal = shape.value("causal", false);
  result.kernel =
      attention_kernel(backward, result.kernel.dtype, size_of(shape, "b", record),
                       size_of(shape, "h", record), size_of(shape, "hkv", record), s, s, d, causal);
  result.implementation = shape.value("backend", "") == "flash" ? AttentionImplementation::kFlash2
                                                                : AttentionImplementation::kCudnn;
}

// Bytes that a kernel moves per element of its tensor, in elements of its type.
int streams_per_element(const std::string& name) { return name == "add" ? 3 : 2; }

KernelMeasurement read_measurement(const CsvRecord& record) {
  KernelMeasurement result;
  result.name = record["kernel"];
  const auto dtype = parse_dtype(record["dtype"]);
  if (!dtype)
    fail(ErrorKind::kInput, "{}: dtype is \"{}\", expected bf16, fp16, …", record.place(), record["dtype"]);
  const Json shape = parse_shape(record);
  result.kernel.dtype = *dtype;
  result.state = parse_state(record);
  result.seconds = record.number("time_us") * 1e-6;
  if (result.seconds <= 0) fail(ErrorKind::kInput, "{}: time_us has to be positive", record.place());
  result.held_out = held_out(record["kernel"] + record["shape"]);
  if (result.name == "matmul") {
    const std::int64_t m = size_of(shape, "m", record), n = size_of(shape, "n", record);
    const std::int64_t k = size_of(shape, "k", record);
    result.held_out = held_out(fmt::format("{},{},{}", m, n, k));  // Whatever its type and layout.
    result.kernel = matmul_kernel(*dtype, m, n, k, shape.value("batch", std::int64_t{1}));
  } else if (result.name == "attention_fwd" || result.name == "attention_bwd") {
    read_attention(shape, record, result.name == "attention_bwd", result);
  } else if (result.name == "adamw") {
    // fp32 weight, gradient and two moments read; weight and moments written.
    result.kernel.kind = KernelKind::kOptimizer;
    result.kernel.read_bytes = 16 * size_of(shape, "elements", record);
    result.kernel.written_bytes = 12 * size_of(shape, "elements", record);
  } else {
    result.kernel.m = size_of(shape, "rows", record);
    result.kernel.n = size_of(shape, "columns", record);
    const std::int64_t bytes = result.kernel.m * result.kernel.n * size_bytes(*dtype);
    result.kernel.kind = KernelKind::kElementwise;
    result.kernel.read_bytes = (streams_per_element(result.name) - 1) * bytes;
    result.kernel.written_bytes = bytes;
  }
  return result;
}

}  // namespace

Kernel matmul_kernel(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  Kernel kernel;
  kernel.kind = KernelKind::kMatmul;
  kernel.dtype = dtype;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.batch = batch;
  kernel.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
                 static_cast<double>(batch);
  // fp8 operands give a bf16 result.
  kernel.read_bytes = (m * k + k * n) * batch * size_bytes(dtype);
  kernel.written_bytes = m * n * batch * std::max<std::int64_t>(2, size_bytes(dtype));
  return kernel;
}

Kernel attention_kernel(bool backward, DType dtype, std::int64_t sequences, std::int64_t heads,
                        std::int64_t key_heads, std::int64_t queries, std::int64_t keys,
                        std::int64_t head_dim, bool causal) {
  Kernel kernel;
  kernel.kind = backward ? KernelKind::kAttentionBackward : KernelKind::kAttention;
  kernel.dtype = dtype;
  kernel.m = queries;
  kernel.n = keys;
  kernel.k = head_dim;
  kernel.batch = sequences * heads;
  const double forward = 4.0 * static_cast<double>(queries) * static_cast<double>(keys) *
                         static_cast<double>(head_dim) * static_cast<double>(kernel.batch);
  kernel.flops = forward * (backward ? 2.5 : 1) * (causal ? 0.5 : 1);
  const std::int64_t query = sequences * heads * queries * head_dim * size_bytes(dtype);
  const std::int64_t key = sequences * key_heads * keys * head_dim * size_bytes(dtype);
  // Forward reads queries, keys, values; backward the result and its gradient too, and writes three
  // gradients.
  kernel.read_bytes = query * (backward ? 3 : 1) + 2 * key;
  kernel.written_bytes = query + (backward ? 2 * key : 0);
  return kernel;
}

std::vector<KernelMeasurement> read_kernel_measurements(const std::string& file) {
  std::vector<KernelMeasurement> result;
  for (const CsvRecord& record : read_csv(file).records) result.push_back(read_measurement(record));
  return result;
}

}  // namespace orrery
