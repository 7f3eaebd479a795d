#include <catch2/catch.hpp>

#include "model/program.hpp"

namespace orrery {
namespace {

using Faults = std::vector<std::string>;

Faults faults_of(std::string_view text) { return verify(parse_program(text)); }

// One role, one compute: sound until somebody breaks it.
Program small() { return parse_program("role a (ranks 0): x = compute 1us; y = compute 1us after x"); }

TEST_CASE("a sound program has no faults", "[program]") {
  CHECK(verify(Program{}).empty());
  CHECK(verify(small()).empty());
  CHECK(faults_of("axis pp [0-3]\n"
                  "role first (ranks 0):   s = send 1MB to next\n"
                  "role middle (ranks 1-2): r = recv 1MB from previous; s = send 1MB to next after r\n"
                  "role last (ranks 3):    r = recv 1MB from previous\n")
            .empty());
  // Positions wrap around: in a ring of two, next and previous are the same rank, and order decides.
  CHECK(faults_of("role a (ranks 0): s0 = send 1MB to next; s1 = send 2MB to previous\n"
                  "role b (ranks 1): r0 = recv 1MB from next; r1 = recv 2MB from previous\n")
            .empty());
}

TEST_CASE("a send needs its receive", "[program]") {
  CHECK(
      faults_of("role a (ranks 0): s0 = send 1MB to next; s1 = send 2MB to next\n"
                "role b (ranks 1): r0 = recv 1MB from previous\n") ==
      Faults{
          "axis 'world': rank 0 (role 'a') to rank 1 (role 'b'): 2 sends but 1 receives; s1 has no receive"});
  CHECK(
      faults_of("role a (ranks 0): s0 = send 1MB to next\n"
                "role b (ranks 1): r0 = recv 1MB from previous; r1 = recv 1MB from previous\n") ==
      Faults{"axis 'world': rank 0 (role 'a') to rank 1 (role 'b'): 1 sends but 2 receives; r1 has no send"});
  CHECK(faults_of("role a (ranks 0): s0 = send 1MB to next\n"
                  "role b (ranks 1): r0 = recv 4KiB from previous\n") ==
        Faults{"axis 'world': rank 0 (role 'a') to rank 1 (role 'b'): s0 sends 1MB but r0 receives 4KiB"});
  // A receive that nobody sends to, seen from the receiver alone.
  CHECK(
      faults_of("role a (ranks 0): x = compute 1us\nrole b (ranks 1): r0 = recv 1MB from previous\n") ==
      Faults{"axis 'world': rank 0 (role 'a') to rank 1 (role 'b'): 0 sends but 1 receives; r0 has no send"});
  CHECK(
      faults_of("world 2\nrole a (ranks 0): s0 = send 1MB to next") ==
      Faults{"axis 'world': rank 0 (role 'a') to rank 1 (idle): 1 sends but 0 receives; s0 has no receive"});
  CHECK(faults_of("role a (ranks 0): s0 = send 1MB to next") ==
        Faults{
            "axis 'world': rank 0 (role 'a'): s0 sends to or from itself: +1 in its group leads back to it"});
}

TEST_CASE("members of a group agree on their collectives", "[program]") {
  CHECK(faults_of("role a (ranks 0-1): c = all-reduce 1MB; d = all-gather 1MB\n"
                  "role b (ranks 2): c = all-reduce 1MB; d = all-gather 2MB\n") ==
        Faults{"axis 'world': collective 1 is all-gather 1MB bf16 (d) for rank 0 (role 'a') but all-gather "
               "2MB bf16 "
               "(d) for rank 2 (role 'b')"});
  CHECK(
      faults_of("role a (ranks 0): c = all-reduce 1MB\nrole b (ranks 1): c = all-reduce 1MB fp32\n").size() ==
      1);
  CHECK(faults_of("role a (ranks 0): c = all-reduce 1MB\nrole b (ranks 1): c = broadcast 1MB\n").size() == 1);
  CHECK(faults_of("role a (ranks 0): c = all-reduce 1MB; d = all-reduce 1MB\n"
                  "role b (ranks 1): c = all-reduce 1MB\n") ==
        Faults{"axis 'world': rank 0 (role 'a') has 2 collectives but rank 1 (role 'b') has 1; the first one "
               "more is "
               "d"});
  // Other groups of the axis don't matter to each other.
  CHECK(faults_of("axis tp [0-1] [2-3]\n"
                  "role a (ranks 0-1): c = all-reduce 1MB\n"
                  "role b (ranks 2-3): c = all-reduce 2MB\n")
            .empty());
  CHECK(faults_of("axis tp [0-1]\nrole a (ranks 0-2): c = all-reduce 1MB\n") ==
        Faults{"role 'a' communicates on axis 'tp', but rank 2 is in no group of it"});
  CHECK(faults_of("role a (ranks 0-1): c = all-reduce 0B\n") ==
        Faults{"role 'a': c: all-reduce of 0 bytes; expected at least one, or no collective at all"});
}

TEST_CASE("ranks have one device and one group each", "[program]") {
  CHECK(faults_of("devices 3,3\nrole a (ranks 0-1):") == Faults{"ranks 0 and 1 are both on device 3"});
  CHECK(faults_of("devices -1\nrole a (ranks 0):") ==
        Faults{"rank 0 has no device; only an idle rank may be without"});
  CHECK(faults_of("world 1\ndevices -1").empty());
  CHECK(faults_of("axis tp [0-1] [1-2]\nrole a (ranks 0-2):") ==
        Faults{"axis 'tp': rank 1 is in groups 0 and 1; expected one"});
  CHECK(faults_of("axis tp []\nrole a (ranks 0):") == Faults{"axis 'tp': group 0 is empty"});
}

TEST_CASE("ids, ranges and numbers that no text could say", "[program]") {
  const auto broken = [](auto&& how) {
    Program program = small();
    how(program);
    return verify(program);
  };
  CHECK(
      broken([](Program& p) { p.roles[0].edges[0].instruction = 1; }) ==
      Faults{
          "role 'a': y: waits for y, which comes no earlier; expected an earlier instruction or the previous "
          "step"});
  CHECK(broken([](Program& p) { p.roles[0].edges[0] = {1, true}; }).empty());
  CHECK(broken([](Program& p) { p.roles[0].edges[0].instruction = 7; }) ==
        Faults{"role 'a': y: waits for instruction 7 of 2"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[1].after.end = 2; }) ==
        Faults{"role 'a': y: its dependencies lie outside the role's edges"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].operands = {3, 2}; }) ==
        Faults{"role 'a': x: its operands lie outside the role's operands"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[1].label = p.roles[0].instructions[0].label; }) ==
        Faults{"role 'a': x: the name appears twice"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].label = LabelId(99); }) ==
        Faults{"role 'a': instruction 0: has no label"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].stream = StreamId(); }) ==
        Faults{"role 'a': x: stream -1 of 1"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].work = Compute{KernelId(5)}; }) ==
        Faults{"role 'a': x: kernel 5 of 1"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].work = Send{AxisId(2), 1, -1}; }) ==
        Faults{"role 'a': x: axis 2 of 0", "role 'a': x: sends -1 bytes"});
  CHECK(broken([](Program& p) { p.roles[0].instructions[0].layer = -2; }) ==
        Faults{"role 'a': x: negative layer or micro-batch"});
  CHECK(broken([](Program& p) {
          p.roles[0].buffers = {{LabelId(0), -1, -1, MemoryCategory::kGradients, -5, false, -1}};
        }) == Faults{"role 'a': buffer x: negative size or offset"});
  CHECK(broken([](Program& p) {
          p.roles[0].buffers.resize(2);
          p.roles[0].buffers[0].label = p.roles[0].buffers[1].label = LabelId(0);
        }) == Faults{"role 'a': buffer x: the name appears twice"});
  CHECK(broken([](Program& p) {
          p.roles[0].buffers = {{LabelId(0), 0}, {LabelId(0), 1}};
          p.roles[0].buffers[0].behind = BufferId(1);
          p.roles[0].buffers[1].behind = BufferId(0);
          p.roles[0].buffers[1].persistent = true;
        }) == Faults{"role 'a': buffer x.l0: is behind buffer 1, which isn't declared before it",
                     "role 'a': buffer x.l1: is behind a buffer of another category or lifetime"});
  CHECK(broken([](Program& p) { p.kernels[0].flops = -1; }).size() == 1);
  CHECK(broken([](Program& p) { p.labels.push_back("x"); }) == Faults{"label 'x' appears twice"});
  CHECK(broken([](Program& p) { p.role_of[0] = RoleId(4); }) ==
        Faults{"rank 0 plays role 4, and there are 1 roles"});
  CHECK(broken([](Program& p) { p.device_of.clear(); }) ==
        Faults{"0 devices for 1 ranks; expected one per rank"});
  CHECK(broken([](Program& p) { p.axes.push_back({"tp", {{RankId(8)}}}); }) ==
        Faults{"axis 'tp': group 0 names rank 8, and there are 1 ranks"});
  // Everything at once, not the first fault only.
  CHECK(broken([](Program& p) {
          p.kernels[0].m = -1;
          p.roles[0].instructions[0].layer = -2;
          p.device_of.clear();
        }).size() == 3);
}

TEST_CASE("a buffer takes over memory that nobody needs any more", "[program]") {
  const auto with = [](const std::string& buffers, const std::string& instructions) {
    return faults_of("role a (ranks 0):\n  buffer x activations 8B\n" + buffers + instructions);
  };
  const std::string y = "  buffer y activations 8B in-place-of x\n";
  const std::string begin = "  f = compute 1us writes x\n  g = compute 1us reads x writes y\n";
  CHECK(with(y, begin + "  h = compute 1us reads y\n").empty());
  CHECK(with(y + "  buffer z activations 8B in-place-of y\n", begin + "  h = compute 1us reads y writes z\n")
            .empty());
  CHECK(with(y, begin + "  h = compute 1us reads y, x\n") ==
        Faults{"role 'a': buffer y: h touches x after g has begun this one in its place"});
  CHECK(with(y, "  f = compute 1us writes x\n  g = compute 1us reads x, y\n") ==
        Faults{"role 'a': buffer y: g is the first to touch it and doesn't write it, in place of x"});
  CHECK(with(y, "  f = compute 1us writes x\n") ==
        Faults{"role 'a': buffer y: nothing touches it, in place of x"});
  const Faults unlike = {"role 'a': buffer y: is in place of a buffer of another size or category"};
  CHECK(with("  buffer y activations 9B in-place-of x\n", begin) == unlike);
  CHECK(with("  buffer y workspace 8B in-place-of x\n", begin) == unlike);
  CHECK(with("  buffer y activations 8B persistent in-place-of x\n", begin) ==
        Faults{"role 'a': buffer y: is in place of another, and persistent buffers keep their memory"});
  CHECK(
      with(y + "  buffer z activations 8B in-place-of x\n", begin + "  h = compute 1us reads y writes z\n") ==
      Faults{"role 'a': buffer z: another buffer is in place of the same one"});
  CHECK(with("  buffer y activations 8B in-place-of y\n", begin) ==
        Faults{"role 'a': buffer y: is in place of buffer 1, which isn't declared before it"});
}

TEST_CASE("coordinates say where a rank stands on each axis", "[program]") {
  const Program program = parse_program("world 5\naxis tp [0,1] [3,2]\naxis pp [0,3]\nrole a (ranks 0-3):");
  const auto where = coordinates(program);
  REQUIRE(where.size() == 2);
  REQUIRE(where[0].size() == 5);
  CHECK(where[0][2].group == 1);
  CHECK(where[0][2].position == 1);
  CHECK(where[0][3].position == 0);
  CHECK(where[1][3].position == 1);
  CHECK(where[1][1].group == -1);
  CHECK(where[0][4].group == -1);
}

}  // namespace
}  // namespace orrery
