// Communicators of a single rank, which one GPU is enough for.
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/error.hpp"
#include "executor/cuda/communicators.hpp"
#include "executor/cuda/memory.hpp"
#include "tests/gpu/device_cases.hpp"

namespace orrery::test {
namespace {

constexpr std::int64_t kCount = 1000;

bool can_run() {
  if (!have_gpu()) return false;
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast != nullptr && multicast == std::string_view("0")) return true;
  std::cout << "skipped: NCCL_NVLS_ENABLE isn't 0\n";
  return false;
}

cuda::Communicators make(cuda::CommunicatorOptions options = {}) {
  const device::AllGather alone = [](std::string_view own) { return std::vector{std::string(own)}; };
  return {{{"first", {0}, 0}, {"second", {0}, 0}}, alone, std::move(options)};
}

device::Call all_reduce(const DeviceBytes& from, const DeviceBytes& to) {
  device::Call call;
  call.count = kCount;
  call.from = from.data();
  call.to = to.data();
  return call;
}

}  // namespace

TEST_CASE("memory is registered with each communicator, and calls go on in it", "[gpu]") {
  if (!can_run()) return;
  DeviceBytes from(kCount * 4);
  const DeviceBytes to(kCount * 4);
  Bytes numbers(kCount * 4);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::byte>(i % 101);
  from.write(numbers);
  const cuda::OwnStream stream;
  cuda::Communicators communicators = make();
  const std::vector<std::span<std::byte>> memory = {{from.data(), numbers.size()},
                                                    {to.data(), numbers.size()}};
  const char* const wanted = std::getenv("NCCL_LOCAL_REGISTER");
  const bool off = wanted != nullptr && wanted == std::string_view("0");
  CHECK(communicators.register_memory(memory) == (off ? 0 : 4));
  for (const std::int32_t group : {0, 1}) {
    communicators.perform(group, std::vector{all_reduce(from, to)}, stream);
    check_cuda(cudaStreamSynchronize(stream));
    CHECK((to.read() == numbers));  // The sum over one rank.
    check_cuda(cudaMemset(to.data(), 0, numbers.size()));
  }
  CHECK(to.guards_stand());
  communicators.check();
  CHECK_FALSE(communicators.broken());
}

TEST_CASE("a wait that is ended leaves communicators to be aborted", "[gpu]") {
  if (!can_run()) return;
  const DeviceBytes from(kCount * 4), to(kCount * 4);
  const cuda::OwnStream stream;
  cuda::CommunicatorOptions options;
  bool ended = false;
  options.keep_waiting = [&] {
    if (ended) throw Error(ErrorKind::kRuntime, "rank 1 has gone");
  };
  cuda::Communicators communicators = make(options);
  communicators.register_memory(std::vector<std::span<std::byte>>{{from.data(), kCount * 4}});
  ended = true;
  device::Call wrong = all_reduce(from, to);
  wrong.kind = device::CallKind::kBroadcast;
  wrong.peer = 7;  // There is no such root; NCCL's refusal gives way to the watchdog's verdict.
  CHECK_THROWS_WITH(communicators.perform(0, std::vector{wrong}, stream), "rank 1 has gone");
  CHECK(communicators.broken());
  communicators.abort();
}

}  // namespace orrery::test
