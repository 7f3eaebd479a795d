#include "executor/launch/status_page.hpp"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/error.hpp"

namespace orrery::launch {
namespace {

// Neighbours' stores mustn't slow each other down.
constexpr std::size_t kLineBytes = 128;
static_assert(sizeof(RankStatus) <= kLineBytes);
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<RankState>::is_always_lock_free,
              "other processes only see atomics without locks");

constexpr std::size_t kEndBytes = (sizeof(EndFlag) + kLineBytes - 1) / kLineBytes * kLineBytes;

thread_local RankStatus* own_status = nullptr;
// Lies in the page; the page has to outlive it, as leave_page's caller sees to.
thread_local EndFlag* own_end = nullptr;

std::optional<RunEnd> reason_of(const EndFlag& flag) {
  const std::int32_t state = flag.state.load(std::memory_order_acquire);
  if (state == 0) return std::nullopt;
  // 1: whoever writes it may have been killed while he did.
  if (state == 1) return RunEnd{-1, "the run was ended"};
  return RunEnd{flag.rank, flag.message};
}

}  // namespace

std::size_t StatusPage::bytes(int world_size) {
  return kEndBytes + static_cast<std::size_t>(world_size) * kLineBytes;
}

StatusPage::StatusPage(SharedSegment segment, int world_size)
    : segment_(std::move(segment)), world_size_(world_size) {
  assert(segment_.bytes().size() >= bytes(world_size));
}

RankStatus& StatusPage::rank(int rank) const {
  assert(rank >= 0 && rank < world_size_);
  std::byte* place = segment_.bytes().data() + kEndBytes + static_cast<std::size_t>(rank) * kLineBytes;
  return *reinterpret_cast<RankStatus*>(place);
}

EndFlag& StatusPage::end() const { return *reinterpret_cast<EndFlag*>(segment_.bytes().data()); }

void join_page(const StatusPage& page, int rank) {
  RankStatus& status = page.rank(rank);
  const std::int64_t now_ns = monotonic_ns();
  status.pid = getpid();
  status.pid_space = own_pid_space();
  status.pid_start = process_start(getpid());
  status.step = -1;
  status.instruction = -1;
  status.moved_ns = now_ns;
  status.heartbeat_ns = now_ns;
  status.state.store(RankState::kRunning, std::memory_order_release);
  own_status = &status;
  own_end = &page.end();
}

void leave_page() {
  if (own_status != nullptr) own_status->state.store(RankState::kDone, std::memory_order_release);
  own_status = nullptr;
  own_end = nullptr;
}

void now_at(std::int64_t step, std::int32_t instruction) {
  if (own_status == nullptr) return;
  const std::int64_t now_ns = monotonic_ns();
  own_status->step.store(step, std::memory_order_relaxed);
  own_status->instruction.store(instruction, std::memory_order_relaxed);
  own_status->moved_ns.store(now_ns, std::memory_order_relaxed);
  own_status->heartbeat_ns.store(now_ns, std::memory_order_relaxed);
}

void keep_waiting() {
  if (own_status == nullptr) return;
  own_status->heartbeat_ns.store(monotonic_ns(), std::memory_order_relaxed);
  if (const std::optional<RunEnd> reason = reason_of(*own_end))
    throw Error(ErrorKind::kRuntime, reason->message);
}

void await_run_end(std::chrono::milliseconds longest) {
  const std::int64_t until_ns = monotonic_ns() + std::chrono::nanoseconds(longest).count();
  while (own_end != nullptr && monotonic_ns() < until_ns) {
    keep_waiting();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool aborted() { return own_end != nullptr && own_end->state.load(std::memory_order_acquire) != 0; }

void end_run(const StatusPage& page, const RunEnd& reason) {
  EndFlag& flag = page.end();
  std::int32_t goes_on = 0;
  if (!flag.state.compare_exchange_strong(goes_on, 1)) return;
  flag.rank = reason.rank;
  const std::size_t size = std::min(reason.message.size(), sizeof flag.message - 1);
  std::memcpy(flag.message, reason.message.data(), size);
  flag.message[size] = 0;
  flag.state.store(2, std::memory_order_release);
}

std::optional<RunEnd> run_end(const StatusPage& page) { return reason_of(page.end()); }

bool claim_report(const StatusPage& page) { return page.end().reported.exchange(1) == 0; }

std::string where_is(const RankStatus& status, int rank, const InstructionName& name) {
  if (status.state == RankState::kAbsent || status.step < 0) return "before the first step";
  const std::int32_t instruction = status.instruction;
  std::string result = fmt::format("during step {}", status.step.load());
  if (instruction < 0) return result;
  result += fmt::format(", instruction {}", instruction);
  return name ? fmt::format("{} ({})", result, name(rank, instruction)) : result;
}

std::int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

std::int64_t own_pid_space() {
  struct stat info = {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::int64_t>(info.st_ino) : 0;
}

std::int64_t process_start(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  // proc(5): "pid (name) state ppid …", the start is field 22, and the name may hold anything, ")" too.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int number = 3; number < 22; ++number) fields >> field;
  return std::strtoll(field.c_str(), nullptr, 10);
}

}  // namespace orrery::launch
