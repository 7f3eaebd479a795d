// The optimiser, norms of gradients, first values and hashes against the host backend.
#include "executor/kernels/optimizer.hpp"
#include "executor/runtime/state.hpp"
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

struct Segment {
  std::int64_t elements;
  DType gradient, weights;
  bool decays;
  std::size_t offset;  // In elements.
};
// Pieces of 8192: parts of one, one, several with a rest. Aligned and not.
const std::vector<Segment> kSegments = {
    {1, DType::kFp32, DType::kBf16, true, 0},      {8192, DType::kFp32, DType::kBf16, true, 0},
    {30001, DType::kFp32, DType::kBf16, false, 0}, {10007, DType::kFp32, DType::kBf16, true, 1},
    {9001, DType::kBf16, DType::kBf16, true, 0},   {9001, DType::kFp16, DType::kFp16, true, 2},
    {8195, DType::kFp32, DType::kFp32, false, 0},  {8195, DType::kBf16, DType::kFp32, true, 3}};

// All that a segment has, on the host and on the device.
struct Parts {
  Values gradient, master, first, second;
  device::UpdateSegment on_device;
  device::Array arrays[3];  // master, moments
};

std::vector<Parts> make_parts(DeviceCase& on_device) {
  std::vector<Parts> parts;
  for (std::size_t i = 0; i < kSegments.size(); ++i) {
    const Segment& s = kSegments[i];
    const auto n = static_cast<std::size_t>(s.elements);
    Parts p;
    p.gradient = numbers(n, s.gradient, 10 * i + 1);
    p.master = numbers(n, DType::kFp32, 10 * i + 2);
    p.first = numbers(n, DType::kFp32, 10 * i + 3);
    p.second = numbers(n, DType::kFp32, 10 * i + 4);
    for (double& x : p.second) x = std::abs(x);
    p.arrays[0] = on_device.changed(p.master, DType::kFp32, s.offset);
    p.arrays[1] = on_device.changed(p.first, DType::kFp32, s.offset);
    p.arrays[2] = on_device.changed(p.second, DType::kFp32, s.offset);
    p.on_device.gradient = on_device.input(p.gradient, s.gradient, s.offset);
    p.on_device.weights = s.weights == DType::kFp32 ? p.arrays[0] : on_device.output(n, s.weights, s.offset);
    p.on_device.master = reinterpret_cast<float*>(p.arrays[0].data);
    p.on_device.first_moment = reinterpret_cast<float*>(p.arrays[1].data);
    p.on_device.second_moment = reinterpret_cast<float*>(p.arrays[2].data);
    p.on_device.elements = s.elements;
    p.on_device.decays = s.decays;
    parts.push_back(p);
  }
  return parts;
}

// What the device is told by floats, as doubles.
host::AdamWSettings settings_of(const device::StepScalars& scalars, double norm_squared) {
  host::AdamWSettings settings;
  settings.learning_rate = 1e-2;
  settings.beta1 = static_cast<double>(scalars.beta1), settings.beta2 = static_cast<double>(scalars.beta2);
  settings.epsilon = static_cast<double>(scalars.epsilon);
  settings.weight_decay = 0.1;
  settings.step = 3;
  settings.gradient_scale = static_cast<double>(scalars.gradient_scale);
  if (scalars.clip_norm > 0) {
    const double norm = std::sqrt(norm_squared) * settings.gradient_scale;
    settings.gradient_scale *= std::min(1.0, static_cast<double>(scalars.clip_norm) / (norm + 1e-6));
  }
  return settings;
}

device::StepScalars make_scalars(float clip_norm) {
  device::StepScalars scalars;
  const double beta1 = static_cast<double>(scalars.beta1), beta2 = static_cast<double>(scalars.beta2);
  scalars.rest1 = static_cast<float>(1 - beta1), scalars.rest2 = static_cast<float>(1 - beta2);
  scalars.step_size = static_cast<float>(1e-2 / (1 - std::pow(beta1, 3)));
  scalars.inverse_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, 3)));
  scalars.decay = static_cast<float>(1e-2 * 0.1);
  scalars.gradient_scale = 0.25f;
  scalars.clip_norm = clip_norm;
  return scalars;
}

template <typename T>
DeviceBytes& upload(DeviceBytes& to, const T& value) {
  Bytes bytes;
  append(bytes, value);
  to.write(bytes);
  return to;
}

void check_segment(const DeviceCase& on_device, const Parts& p, const Segment& s,
                   host::AdamWSettings settings) {
  if (!s.decays) settings.weight_decay = 0;
  Bytes gradient = to_bytes(p.gradient, s.gradient), master = to_bytes(p.master, DType::kFp32);
  Bytes first = to_bytes(p.first, DType::kFp32), second = to_bytes(p.second, DType::kFp32);
  Bytes weights(p.gradient.size() * static_cast<std::size_t>(size_bytes(s.weights)));
  host::AdamWArrays arrays;
  arrays.gradient = view_of(gradient, s.gradient);
  arrays.master = reinterpret_cast<float*>(master.data());
  arrays.first = reinterpret_cast<float*>(first.data());
  arrays.second = reinterpret_cast<float*>(second.data());
  if (s.weights != DType::kFp32) arrays.weights = view_of(weights, s.weights);
  host::Workspace workspace;
  host::adamw(settings, arrays, workspace);
  // The same operations in the same order: what differs are factors that the host makes of doubles.
  CHECK(element_error(on_device.values(p.arrays[0]), to_values(master, DType::kFp32)) < 1e-5);
  CHECK(element_error(on_device.values(p.arrays[1]), to_values(first, DType::kFp32)) < 1e-5);
  CHECK(element_error(on_device.values(p.arrays[2]), to_values(second, DType::kFp32)) < 1e-5);
  if (s.weights == DType::kFp32) return;
  CHECK(element_error(on_device.values(p.on_device.weights), to_values(weights, s.weights)) <
        tolerance_of(s.weights));
}

}  // namespace

TEST_CASE("AdamW on the device is the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const float clip_norm : {0.0f, 1.5f, 1e6f}) {
    CAPTURE(clip_norm);
    DeviceCase on_device;
    const std::vector<Parts> parts = make_parts(on_device);
    const device::StepScalars scalars = make_scalars(clip_norm);
    const double norm_squared = 1234.5;
    DeviceBytes scalars_there(sizeof(scalars)), norm_there(sizeof(norm_squared));
    device::AdamW update;
    for (const Parts& p : parts) update.segments.push_back(p.on_device);
    update.scalars = reinterpret_cast<const device::StepScalars*>(upload(scalars_there, scalars).data());
    update.norm_squared = reinterpret_cast<const double*>(upload(norm_there, norm_squared).data());
    on_device.run(update);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      CAPTURE(i);
      check_segment(on_device, parts[i], kSegments[i], settings_of(scalars, norm_squared));
    }
  }
}

TEST_CASE("sums of squares on the device are the definition's", "[gpu]") {
  if (!have_gpu()) return;
  DeviceCase on_device;
  DeviceBytes to(sizeof(double));
  device::SumSquares sum;
  double wanted = 0;
  for (const std::int64_t count : {1, 7, 32768, 100003, 40000}) {
    for (const DType type : kActivationTypes) {
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        const Values x = numbers(static_cast<std::size_t>(count), type, static_cast<std::uint64_t>(count));
        sum.parts.push_back({on_device.input(x, type, offset), count});
        for (const double value : x) wanted += value * value;
      }
    }
  }
  sum.to = reinterpret_cast<double*>(to.data());
  Bytes first;
  for (int turn = 0; turn < 2; ++turn) {
    on_device.run(sum);
    if (turn == 0) first = to.read();
  }
  CHECK((first == to.read()));
  double found = 0;
  std::memcpy(&found, first.data(), sizeof(found));
  CHECK(std::abs(found / wanted - 1) < 1e-6);  // Sums of a thread are fp32.
  sum.parts.clear();
  on_device.run(sum);
  CHECK((to.read() == Bytes(sizeof(double))));
}

TEST_CASE("first values on the device have the host's bits", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : kActivationTypes) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5'000'000'017}}) {
      CAPTURE(to_string(type), first);
      DeviceCase on_device;
      const std::uint64_t key = mix64(99 ^ std::uint64_t{0x1234567});
      device::InitialValues values{
          10007, first, key, host::initial_scale(0.02), 0, on_device.output(10007, type)};
      on_device.run(values);
      Values wanted(10007);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        // As initial_value, whose key is that of a name.
        const std::uint64_t at = key + 2 * (static_cast<std::uint64_t>(first) + i);
        std::int64_t sum = 0;
        for (const std::uint64_t bits : {mix64(at), mix64(at + 1)}) {
          for (int shift = 0; shift < 64; shift += 16)
            sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
        }
        const double value = (static_cast<double>(sum) - 8 * 32767.5) * host::initial_scale(0.02);
        wanted[i] = static_cast<double>(static_cast<float>(value));
      }
      CHECK((on_device.bytes(values.to) == to_bytes(wanted, type)));
      values.scale = 0, values.constant = 1;
      on_device.run(values);
      CHECK((on_device.bytes(values.to) == to_bytes(Values(10007, 1), type)));
    }
  }
}

TEST_CASE("hashes of elements on the device are the host's", "[gpu]") {
  if (!have_gpu()) return;
  for (const DType type : {DType::kBf16, DType::kFp32}) {
    DeviceCase on_device;
    const Values x = numbers(1'000'003, type, 1);
    const device::Array start = on_device.changed(Values{5, 7}, DType::kInt64);
    const device::HashElements hash{1'000'003, 3'000'000'019, 0xabcdef0123456789ull, on_device.input(x, type),
                                    reinterpret_cast<std::uint64_t*>(start.data)};
    on_device.run(hash);
    const Bytes bytes = to_bytes(x, type);
    const auto width = static_cast<std::size_t>(size_bytes(type));
    std::uint64_t wanted[2] = {5, 7};
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, bytes.data() + i * width, width);
      const std::uint64_t key = mix64(hash.name + static_cast<std::uint64_t>(hash.first) + i) ^ bits;
      wanted[0] += mix64(key);
      wanted[1] += mix64(key ^ 0xd6e8feb86659fd93ull);
    }
    Bytes found = on_device.bytes(start);
    CHECK(std::memcmp(found.data(), wanted, sizeof(wanted)) == 0);
  }
}
