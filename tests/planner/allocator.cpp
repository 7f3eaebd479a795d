#include "planner/allocator.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "base/random.hpp"
#include "planner/allocator_caching.hpp"
#include "planner/lower.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

TEST_CASE("small requests share segments of 2 MiB", "[planner][allocator]") {
  CachingAllocator allocator;
  const auto a = allocator.allocate(1);
  CHECK(allocator.block_bytes(a) == 512);
  CHECK(allocator.reserved_bytes() == 2 * kMiB);
  const auto b = allocator.allocate(513);
  CHECK(allocator.address(b) == 512);
  CHECK(allocator.block_bytes(b) == 1024);
  // 2 MiB − 1.5 KiB are left: 1 MiB fits once, not twice.
  const auto c = allocator.allocate(kMiB);
  CHECK(allocator.address(c) == 1536);
  CHECK(allocator.device_calls() == 1);
  const auto d = allocator.allocate(kMiB);
  CHECK(allocator.address(d) == 2 * kMiB);
  CHECK(allocator.device_calls() == 2);
}

TEST_CASE("large requests come from segments of 20 MiB, or of their own size", "[planner][allocator]") {
  CachingAllocator allocator;
  const auto a = allocator.allocate(kMiB + 1);  // The first that is not small.
  CHECK(allocator.block_bytes(a) == kMiB + 512);
  CHECK(allocator.reserved_bytes() == 20 * kMiB);
  const auto b = allocator.allocate(10 * kMiB);  // 19 MiB − 512 are left, and are enough.
  CHECK(allocator.address(b) == kMiB + 512);
  CHECK(allocator.device_calls() == 1);
  const auto c =
      allocator.allocate(11 * kMiB);  // Rounded to 12 MiB; what is left over is no more than 1 MiB.
  CHECK(allocator.reserved_bytes() == 32 * kMiB);
  CHECK(allocator.block_bytes(c) == 12 * kMiB);
  CHECK(allocator.device_calls() == 2);
}

TEST_CASE("the smallest free block that is large enough is taken and split", "[planner][allocator]") {
  CachingAllocator allocator;
  const auto large = allocator.allocate(40 * kMiB), middle = allocator.allocate(30 * kMiB);
  allocator.free(large);
  allocator.free(middle);
  const auto a = allocator.allocate(28 * kMiB);  // From the 30: 2 MiB are left.
  CHECK(allocator.address(a) == 40 * kMiB);
  CHECK(allocator.block_bytes(a) == 28 * kMiB);
  const auto b = allocator.allocate(2 * kMiB);
  CHECK(allocator.address(b) == 68 * kMiB);
  const auto c = allocator.allocate(39 * kMiB);  // 1 MiB would be left, which stays with it.
  CHECK(allocator.block_bytes(c) == 40 * kMiB);
  CHECK(allocator.device_calls() == 2);
}

TEST_CASE("freed neighbours of a segment are one again", "[planner][allocator]") {
  CachingAllocator allocator;
  const auto a = allocator.allocate(4 * kMiB), b = allocator.allocate(4 * kMiB),
             c = allocator.allocate(4 * kMiB);
  allocator.free(a);
  allocator.free(c);
  allocator.free(b);
  const auto whole = allocator.allocate(20 * kMiB);
  CHECK(allocator.address(whole) == 0);
  CHECK(allocator.device_calls() == 1);
}

TEST_CASE("blocks that are in use never overlap", "[planner][allocator]") {
  CachingAllocator allocator;
  Random random(3);
  std::map<std::int64_t, CachingAllocator::Block> used;  // By address.
  for (int i = 0; i < 5000; ++i) {
    if (!used.empty() && random.between(0, 99) < 48) {
      const auto gone = std::next(used.begin(), random.between(0, std::ssize(used) - 1));
      allocator.free(gone->second);
      used.erase(gone);
      continue;
    }
    const std::int64_t bytes = random.between(1, std::int64_t{1} << random.between(1, 26));
    const auto block = allocator.allocate(bytes);
    REQUIRE(allocator.block_bytes(block) >= bytes);
    const auto [at, is_new] = used.emplace(allocator.address(block), block);
    REQUIRE(is_new);
    const std::int64_t end = at->first + allocator.block_bytes(block);
    REQUIRE(end <= allocator.reserved_bytes());
    if (const auto next = std::next(at); next != used.end()) REQUIRE(end <= next->first);
    if (at != used.begin()) {
      const auto before = std::prev(at);
      REQUIRE(before->first + allocator.block_bytes(before->second) <= at->first);
    }
  }
}

TEST_CASE("allocators over the same lifetimes", "[planner][allocator]") {
  // w stays; a and b live together, c after them.
  const Program program = parse_program(R"(
role only (ranks 0):
  buffer w parameters 4MiB persistent
  buffer a activations 16MiB
  buffer b activations 12MiB
  buffer c activations 28MiB
  f0 = compute 1us writes a
  f1 = compute 1us reads a, w writes b
  f2 = compute 1us writes c
)");
  const std::vector<AllocatorUse> uses = compare_allocators(program, RoleId(0));
  REQUIRE(uses.size() == 3);
  for (const AllocatorUse& use : uses) CHECK(use.allocated_bytes == 32 * kMiB);
  // Its own: 4 + 16 + 12 + 28 MiB; three requests, each a call of the device.
  CHECK(uses[0].reserved_bytes == 60 * kMiB);
  CHECK(uses[0].requests == 3);
  CHECK(uses[0].first_device_calls == 4);
  CHECK(uses[0].later_device_calls == 3);
  CHECK(uses[0].fragmentation() == Approx(1 - 32.0 / 60));
  // Caching: w leaves 16 of its 20 MiB, a takes them; b gets 12. c fits nowhere: 28 more. 60 MiB, four calls,
  // and none in the second step.
  CHECK(uses[1].reserved_bytes == 60 * kMiB);
  CHECK(uses[1].requests == 3);
  CHECK(uses[1].first_device_calls == 3);
  CHECK(uses[1].later_device_calls == 0);
  // The plan: 4 + 28 MiB.
  CHECK(uses[2].reserved_bytes == 32 * kMiB);
  CHECK(uses[2].requests == 0);
  CHECK(uses[2].first_device_calls == 1);
  CHECK(uses[2].later_device_calls == 0);
  CHECK(uses[2].fragmentation() == 0.0);
}

TEST_CASE("a plan holds less than a caching allocator, and that less than own memory",
          "[planner][allocator]") {
  PlanShorthand plan = test::shorthand(1, 2, 1, 8);
  const Graph graph = build_training_graph(test::small_llama(), DType::kBf16);
  const Program program = lower(graph, expand(plan, graph, 2));
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const auto uses = compare_allocators(program, RoleId(static_cast<std::int64_t>(r)));
    CHECK(uses[2].reserved_bytes < uses[1].reserved_bytes);
    CHECK(uses[1].reserved_bytes < uses[0].reserved_bytes);
    CHECK(uses[1].first_device_calls < uses[0].first_device_calls);
    CHECK(uses[1].later_device_calls == 0);
  }
}

}  // namespace orrery
