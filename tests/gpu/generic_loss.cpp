// The loss of a divided vocabulary against the host's.
#include "tests/gpu/generic_cases.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr DType kFp32 = DType::kFp32;

struct Case {
  DType type;
  std::int64_t tokens, vocab, real, first_entry;
};

void check_case(const Case& x) {
  CAPTURE(to_string(x.type), x.tokens, x.vocab, x.real, x.first_entry);
  const std::int64_t all = x.first_entry + x.vocab + 100;
  Bytes logits = to_bytes(numbers(x.tokens * x.vocab, 1, x.type, 20), x.type);
  Bytes labels = to_bytes(whole_numbers(x.tokens, 2, all), DType::kInt64);
  // Of all ranks together: at least as large as this one's, and sums of more than this one's.
  Bytes maximum = to_bytes(numbers(x.tokens, 3, kFp32), kFp32);
  std::vector<Bytes> made(5, Bytes(static_cast<std::size_t>(x.tokens) * 4));
  made[3].resize(4);
  host::OpView view;
  view.vocab_begin = x.first_entry;
  view.vocab = x.first_entry + x.real;
  view.loss_tokens = 3 * x.tokens;
  host::Workspace workspace;
  const auto floats = [](Bytes& bytes) { return view_of(bytes, kFp32); };
  const TensorView part0[] = {view_of(logits, x.type), floats(made[0])};
  host::run_loss_part(view, 0, part0, workspace);
  Values largest = to_values(made[0], kFp32);
  for (std::size_t i = 0; i < largest.size(); ++i) {
    if (i % 2 == 0 || !std::isfinite(largest[i])) largest[i] = 11;  // Another rank's.
  }
  maximum = to_bytes(largest, kFp32);
  const TensorView part1[] = {view_of(logits, x.type), view_of(labels, DType::kInt64), floats(maximum),
                              floats(made[1]), floats(made[2])};
  host::run_loss_part(view, 1, part1, workspace);
  Values sums = to_values(made[1], kFp32);
  for (double& sum : sums) sum += 1;
  Bytes sum_of_all = to_bytes(sums, kFp32);
  const TensorView part2[] = {floats(maximum), floats(sum_of_all), floats(made[2]), floats(made[3]),
                              floats(made[4])};
  host::run_loss_part(view, 2, part2, workspace);

  const DeviceMemory on_logits(logits), on_labels(labels), all_maximum(maximum), all_sum(sum_of_all);
  DeviceMemory own_maximum = output(x.tokens, kFp32), sum = output(x.tokens, kFp32);
  DeviceMemory label_logit = output(x.tokens, kFp32), loss = output(1, kFp32), lse = output(x.tokens, kFp32);
  device::CrossEntropyPart launch;
  launch.tokens = x.tokens, launch.vocab = x.vocab, launch.real = x.real, launch.first_entry = x.first_entry;
  launch.tokens_of_mean = static_cast<double>(view.loss_tokens);
  launch.logits = on_logits.array(x.type), launch.labels = on_labels.array(DType::kInt64);
  launch.maximum = own_maximum.array(kFp32), launch.sum = sum.array(kFp32);
  launch.label_logit = label_logit.array(kFp32), launch.loss = loss.array(kFp32),
  launch.lse = lse.array(kFp32);
  const auto run = [&] { cuda::launch(launch, nullptr, nullptr, nullptr); };
  run_twice({&own_maximum}, run);
  CHECK(own_maximum.download() == made[0]);
  launch.part = 1;
  launch.maximum = all_maximum.array(kFp32);
  run_twice({&sum, &label_logit}, run);
  CHECK(label_logit.download() == made[2]);
  // Sums in another order and other exponentials.
  CHECK(relative_error(download(sum, kFp32), to_values(made[1], kFp32)) < 1e-5);
  launch.part = 2;
  launch.sum = all_sum.array(kFp32);
  run_twice({&loss, &lse}, run);
  // Logarithms in double precision, rounded once.
  CHECK(relative_error(download(loss, kFp32), to_values(made[3], kFp32)) < 1e-6);
  CHECK(relative_error(download(lse, kFp32), to_values(made[4], kFp32)) < 1e-6);
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
