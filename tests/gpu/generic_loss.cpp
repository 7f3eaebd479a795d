// The loss of a divided vocabulary against the host's.
#include "tests/gpu/device_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kFp32 = DType::kFp32;

struct Case {
  DType type;
  std::int64_t tokens, vocab, real, first_entry;
};

// Of all three parts on the host. Another rank's maximum and sum come in between.
struct HostParts {
  Values logits, labels, maximum, all_maximum, sum, all_sum, label_logit, loss, lse;

  explicit HostParts(const Case& x) {
    const auto tokens = static_cast<std::size_t>(x.tokens);
    logits = numbers(tokens * static_cast<std::size_t>(x.vocab), x.type, 1, 20);
    labels = whole_numbers(tokens, 0, x.first_entry + x.vocab + 100, 2);
    maximum = sum = label_logit = lse = Values(tokens), loss = Values(1);
    view_.vocab_begin = x.first_entry;
    view_.vocab = x.first_entry + x.real;
    view_.loss_tokens = 3 * x.tokens;
    run(0, {&logits, &maximum});
    all_maximum = maximum;
    for (std::size_t i = 0; i < tokens; ++i) {
      if (i % 2 == 0 || !std::isfinite(maximum[i])) all_maximum[i] = 11;
    }
    run(1, {&logits, &labels, &all_maximum, &sum, &label_logit});
    all_sum = sum;
    for (double& x_sum : all_sum) x_sum += 1;
    all_sum = to_values(to_bytes(all_sum, kFp32), kFp32);
    run(2, {&all_maximum, &all_sum, &label_logit, &loss, &lse});
  }

 private:
  void run(int part, const std::vector<Values*>& operands) {
    std::vector<Bytes> bytes;
    std::vector<TensorView> views;
    for (const Values* values : operands) bytes.push_back(to_bytes(*values, kFp32));
    for (Bytes& each : bytes) views.push_back(view_of(each, kFp32));
    host::run_loss_part(view_, part, views, workspace_);
    for (std::size_t i = 0; i < operands.size(); ++i) *operands[i] = to_values(bytes[i], kFp32);
  }
  host::OpView view_;
  host::Workspace workspace_;
};

device::CrossEntropyPart launch_of(const Case& x, int part) {
  device::CrossEntropyPart launch;
  launch.part = part;
  launch.tokens = x.tokens, launch.vocab = x.vocab, launch.real = x.real, launch.first_entry = x.first_entry;
  launch.tokens_of_mean = 3.0 * static_cast<double>(x.tokens);
  return launch;
}

void check_case(const Case& x) {
  CAPTURE(to_string(x.type), x.tokens, x.vocab, x.real, x.first_entry);
  const HostParts wanted(x);
  const auto tokens = static_cast<std::size_t>(x.tokens);
  {
    DeviceCase device;
    device::CrossEntropyPart launch = launch_of(x, 0);
    launch.logits = device.input(wanted.logits, x.type);
    launch.maximum = device.output(tokens, kFp32);
    device.run(launch);
    CHECK(device.values(launch.maximum) == wanted.maximum);
  }
  {
    DeviceCase device;
    device::CrossEntropyPart launch = launch_of(x, 1);
    launch.logits = device.input(wanted.logits, x.type);
    launch.labels = device.input(wanted.labels, DType::kInt64);
    launch.maximum = device.input(wanted.all_maximum, kFp32);
    launch.sum = device.output(tokens, kFp32), launch.label_logit = device.output(tokens, kFp32);
    device.run(launch);
    CHECK(device.values(launch.label_logit) == wanted.label_logit);
    // Sums in another order and other exponentials.
    CHECK(relative_error(device.values(launch.sum), wanted.sum) < 1e-5);
  }
  DeviceCase device;
  device::CrossEntropyPart launch = launch_of(x, 2);
  launch.maximum = device.input(wanted.all_maximum, kFp32), launch.sum = device.input(wanted.all_sum, kFp32);
  launch.label_logit = device.input(wanted.label_logit, kFp32);
  launch.loss = device.output(1, kFp32), launch.lse = device.output(tokens, kFp32);
  device.run(launch);
  // Logarithms in double precision, rounded once.
  CHECK(relative_error(device.values(launch.loss), wanted.loss) < 1e-6);
  CHECK(relative_error(device.values(launch.lse), wanted.lse) < 1e-6);
}

}  // namespace

TEST_CASE("the parts of a divided vocabulary's loss are the host's", "[gpu]") {
  if (!have_gpu()) return;
  check_case({DType::kFp32, 6, 16, 13, 16});
  check_case({DType::kBf16, 37, 4096, 4096, 0});
  check_case({DType::kFp16, 5, 1000, 999, 3000});
  check_case({DType::kBf16, 9, 333, 331, 50});
  check_case({DType::kFp32, 3, 5, 0, 40});  // Padding alone.
  check_case({DType::kFp32, 2500, 64, 64, 64});
}
