#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/random.hpp"
#include "model/program.hpp"
#include "model/program_ranks.hpp"
#include "tests/model/program_random.hpp"

namespace orrery {
namespace {

// The form in which people write programs, as in program.hpp.
const char* const kByHand = R"(
    role first (ranks 0):  f0 = compute 10us
                           s0 = send 1MB to next after f0
    role second (ranks 1): r0 = recv 1MB from previous
                           f1 = compute 10us after r0)";

std::string error_of(std::string_view text) {
  try {
    parse_program(text, "p.txt");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

std::vector<RankId> ranks(const std::vector<std::int64_t>& values) {
  std::vector<RankId> ids;
  for (const std::int64_t value : values) ids.emplace_back(value);
  return ids;
}

void check_round_trip(const Program& program) {
  const std::string text = to_text(program);
  INFO(text);
  const Program again = parse_program(text);
  CHECK(again == program);
  CHECK(to_text(again) == text);
}

TEST_CASE("a program written by hand is what it says", "[program]") {
  const Program program = parse_program(kByHand);
  CHECK(verify(program).empty());
  CHECK(program.world_size() == 2);
  CHECK(program.device_of == std::vector<std::int32_t>{0, 1});
  REQUIRE(program.axes.size() == 1);
  CHECK(program.axes[0] == Axis{"world", {ranks({0, 1})}});

  REQUIRE(program.roles.size() == 2);
  const Role& first = program.roles[0];
  CHECK(first.name == "first");
  CHECK(first.streams == std::vector<Stream>{{"compute", 0}, {"send", 0}});
  REQUIRE(first.instructions.size() == 2);
  CHECK(instruction_name(program, first.instructions[1]) == "s0");
  CHECK(std::get<Send>(first.instructions[1].work) == Send{AxisId(0), 1, 1'000'000});
  CHECK(first.edges == std::vector<Edge>{{0, false}});
  const Role& second = program.roles[1];
  CHECK(std::get<Recv>(second.instructions[0].work) == Recv{AxisId(0), -1, 1'000'000});

  // Both computes launch the same kernel: equal times are one kernel.
  REQUIRE(program.kernels.size() == 1);
  CHECK(program.kernels[0].kind == KernelKind::kFixed);
  CHECK(program.kernels[0].fixed.picoseconds == 10'000'000);
  CHECK(std::get<Compute>(second.instructions[1].work).kernel == KernelId(0));

  CHECK(to_text(program) ==
        "role first (ranks 0):\n"
        "  f0 = compute 10us\n"
        "  s0 = send 1MB to next after f0\n"
        "\n"
        "role second (ranks 1):\n"
        "  r0 = recv 1MB from previous\n"
        "  f1 = compute 10us after r0\n");
}

const char* const kEverything = R"(program "all of it"
captured
world 10
devices 8-15,-1,0
axis tp [0-1] x 4 step 2
axis pp [0,4] x 4 step 1
kernel qkv matmul bf16 m=8192 n=6144 k=4096 flops=412316860416 read=112MiB written=96MiB
kernel qkv~2 matmul fp8 rows e5m2 fast m=1 n=2 k=3 batch=4 flops=1e+25
kernel wait fixed fixed=5us

role first (ranks 0-3):
  stream compute
  stream comm priority -1
  stream "side stream" priority 2
  buffer w.l1 parameters 1MB persistent at 0B
  buffer x.l1.m0 activations 1KiB
  buffer x.l2.m0 activations 1KiB behind x.l1.m0
  buffer x.l3.m0 activations 1KiB in-place-of x.l1.m0
  f.l1.m0 = compute qkv for forward after @prev g.l1 reads w.l1 writes x.l1.m0 reads x.l1.m0
  r.l1.m0 = all-reduce 1MB fp32 in tp for tensor-parallel after f.l1.m0
  s.m0 = send 1KiB to next in pp on comm for pipeline after r.l1.m0
  c = copy 1KiB to host on "side stream" after f.l1.m0, r.l1.m0, @prev c
  g.l1 = all-gather 1MB in tp for parameter-gather
  b = compute qkv~2 on "side stream"

role second (ranks 4-7):
  r.m0 = recv 1KiB from -3 in pp on comm
  "f.l1" = compute wait
)";

TEST_CASE("every field of a program has its place in the text", "[program]") {
  const Program program = parse_program(kEverything);
  CHECK(to_text(program) == kEverything);
  check_round_trip(program);

  CHECK(program.name == "all of it");
  CHECK(program.captured);
  CHECK(program.world_size() == 10);
  CHECK(program.device_of == std::vector<std::int32_t>{8, 9, 10, 11, 12, 13, 14, 15, -1, 0});
  CHECK_FALSE(program.role_of[9].valid());
  CHECK(program.axes[0].groups[3] == ranks({6, 7}));
  CHECK(program.axes[1].groups[3] == ranks({3, 7}));
  CHECK(program.kernels[1].flops == 1e25);
  CHECK(program.kernels[1].batch == 4);
  CHECK(program.kernels[0].label == program.kernels[1].label);

  const Role& role = program.roles[0];
  CHECK(role.streams[2] == Stream{"side stream", 2});
  CHECK(role.buffers[0].persistent);
  CHECK(role.buffers[0].offset == 0);
  CHECK(role.buffers[1].offset == -1);
  CHECK(role.buffers[1].microbatch == 0);
  CHECK(role.buffers[2].behind == BufferId(1));
  CHECK(role.buffers[3].in_place_of == BufferId(1));
  const Instruction& forward = role.instructions[0];
  CHECK(forward.layer == 1);
  CHECK(forward.purpose == Purpose::kForward);
  CHECK(role.operands ==
        std::vector<Operand>{{BufferId(0), false}, {BufferId(1), true}, {BufferId(1), false}});
  CHECK(role.edges[0] == Edge{4, true});
  CHECK(std::get<Collective>(role.instructions[1].work).dtype == DType::kFp32);
  CHECK(std::get<Copy>(role.instructions[3].work) == Copy{true, 1024});
  CHECK(role.instructions[3].after.size() == 3);
  CHECK(std::get<Recv>(program.roles[1].instructions[0].work).offset == -3);
  // A quoted label is never split into suffixes.
  CHECK(program.roles[1].instructions[1].layer == -1);
  CHECK(program.labels[program.roles[1].instructions[1].label.index()] == "f.l1");
}

TEST_CASE("lines, comments and semicolons", "[program]") {
  const Program program = parse_program(
      "# a comment\n\nrole a (rank 0): x = compute 1us; y = compute 2us after x # behind\n"
      "  z = compute 1us after x,\n   y\n");
  CHECK(to_text(program) ==
        "role a (ranks 0):\n  x = compute 1us\n  y = compute 2us after x\n  z = compute 1us after x, y\n");
  CHECK(parse_program("") == Program{});
  CHECK(to_text(Program{}).empty());
}

TEST_CASE("text of random programs reads back to the same program", "[program][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    check_round_trip(random_program(seed));
  }
}

TEST_CASE("broken text is refused, never swallowed or crashed on", "[program][fuzz]") {
  constexpr std::string_view kAlphabet = "role(ranks 0-9)x step:=,.~@\"\\#;[]/\n +-abclmsuMB";
  int accepted = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    Random random(seed);
    std::string text = seed % 3 == 0 ? kEverything : to_text(random_program(1 + seed % 40));
    for (std::int64_t i = random.between(1, 2); i > 0 && !text.empty(); --i) {
      const auto at = static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(text.size()) - 1));
      const auto length = static_cast<std::size_t>(random.between(0, 12));
      switch (random.between(0, 4)) {
        case 0: text.erase(at, length); break;
        case 1: text.insert(at, text.substr(text.size() - 1 - at, length)); break;
        case 2: text[at] = static_cast<char>(random.next()); break;
        case 3:
          text[at] = kAlphabet[static_cast<std::size_t>(random.between(0, std::ssize(kAlphabet) - 1))];
          break;
        default:  // Another number: often still a program.
          if (const std::size_t digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
            text[digit] = static_cast<char>('0' + random.between(0, 9));
          }
      }
    }
    INFO("seed " << seed << "\n" << text);
    try {
      const Program program = parse_program(text);
      ++accepted;
      check_round_trip(program);
    } catch (const Error& error) {
      ++refused;
      CHECK(error.kind() == ErrorKind::kInput);
    }
  }
  // Both happen often, or the mutations would test nothing.
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("errors name the place, what was expected and the nearest word", "[program]") {
  CHECK(
      error_of("role a (ranks 0):\n  f0 = comptue 10us") ==
      "p.txt:2:8: unknown work 'comptue'; expected one of compute, send, recv, copy, all-reduce, all-gather, "
      "reduce-scatter, all-to-all, broadcast; did you mean \"compute\"?");
  CHECK(error_of("role a (ranks 0):\n  f0 = compute 10us\n  f1 = compute 10us after f00") ==
        "p.txt:3:27: unknown instruction of role 'a' 'f00'; expected one of f0, f1; did you mean \"f0\"?");
  CHECK(
      error_of("role a (ranks 0):\n  f0 = compute 10us after f1\n  f1 = compute 10us") ==
      "p.txt:2:27: 'f1' comes no earlier than the instruction that waits for it; expected an earlier one, or "
      "'@prev f1' for the step before");
  CHECK(error_of("role a (ranks 0): f0 = compute 1us; f0 = compute 2us") ==
        "p.txt:1:37: instruction 'f0' appears twice in role 'a'; expected another label, or a suffix such as "
        ".l3 "
        "or .m0");
  CHECK(error_of("role a (ranks 0): f0 = compute 10MB") ==
        "p.txt:1:32: '10MB' isn't a time; expected one such as 10us or 1.5ms");
  CHECK(error_of("role a (ranks 0): s = send 10us to next") ==
        "p.txt:1:28: '10us' isn't a size; expected bytes such as 4096, 1MB or 4KiB");
  CHECK(error_of("role a (ranks 0): s = send 1MB from next") == "p.txt:1:32: expected 'to', found 'from'");
  CHECK(
      error_of("role a (ranks 0):\n  s send 1MB to next") ==
      "p.txt:2:3: unknown statement, and no instruction as '=' doesn't follow: 's'; expected one of program, "
      "captured, world, devices, labels, axis, kernel, role, sizes, first-microbatch, placement");
  CHECK(error_of("role a (ranks 0,0):") ==
        "p.txt:1:9: rank 0 already plays role 'a'; expected each rank once in one role");
  CHECK(error_of("role a (ranks 0-999999999):") ==
        "p.txt:1:17: '999999999' is out of range; expected a rank from 0 to 1048575");
  CHECK(error_of("role a (ranks 0-99999 x 1000000 step 0):") ==
        "p.txt:1:23: 100000000000 numbers; expected at most 1048576");
  CHECK(error_of("axis a [] x 1000000 step 0 x 1000000 step 0") ==
        "p.txt:1:28: 1000000000000 numbers; expected at most 1048576");
  CHECK(error_of("axis a [0-7]\naxis b [0-7]\nrole r (ranks 0-7): c = all-reduce 1MB") ==
        "p.txt:3:39: there are 2 axes; expected 'in' and one of them: in a");
  CHECK(error_of("axis a [0-8]\nrole r (ranks 0-7):") ==
        "p.txt:1:1: axis 'a' names rank 8, but the world has 8 ranks; give the rank a role or say 'world 9'");
  CHECK(error_of("kernel k matmul\nkernel k matmul") ==
        "p.txt:2:8: kernel 'k' is declared already; expected another name, or 'k~2' for another shape under "
        "this "
        "name");
  CHECK(error_of("role \"a") == "p.txt:1:6: this quote isn't closed on its line");
  CHECK(error_of("devices 0-3\nrole a (ranks 0):") ==
        "p.txt:1:1: 4 devices for 1 ranks; expected one per rank");
  CHECK(error_of("role a (ranks 0): x.l99999999999 = compute 1us") ==
        "p.txt:1:19: the suffix of 'x.l99999999999' is too large; expected at most 2147483647");
}

TEST_CASE("rank lists and groups stay short", "[program]") {
  CHECK(format_numbers({}) == "none");
  const auto text = [](const std::vector<std::int64_t>& values) { return format_numbers(values); };
  CHECK(text({0}) == "0");
  CHECK(text({0, 1, 2, 3, 4, 5, 6, 7}) == "0-7");
  CHECK(text({0, 8, 16, 24}) == "0-24/8");
  CHECK(text({0, 8}) == "0,8");
  CHECK(text({0, 8, 9, 10}) == "0,8-10");
  CHECK(text({0, 1, 2, 3, 16, 17, 18, 19}) == "0-3,16-19");
  CHECK(text({3, 2, 1, 0}) == "3 x 4 step -1");
  CHECK(text({-1, -1, -1}) == "-1 x 3 step 0");

  // Tensor parallel innermost, then data, then pipeline: 8 × 128 × 16.
  std::vector<std::vector<RankId>> tensor, data, pipeline;
  for (std::int64_t i = 0; i < 16384; i += 8) {
    tensor.emplace_back();
    for (std::int64_t t = 0; t < 8; ++t) tensor.back().emplace_back(i + t);
  }
  for (std::int64_t p = 0; p < 16; ++p) {
    for (std::int64_t t = 0; t < 8; ++t) {
      data.emplace_back();
      for (std::int64_t d = 0; d < 128; ++d) data.back().emplace_back(p * 1024 + d * 8 + t);
    }
  }
  for (std::int64_t i = 0; i < 1024; ++i) {
    pipeline.emplace_back();
    for (std::int64_t p = 0; p < 16; ++p) pipeline.back().emplace_back(p * 1024 + i);
  }
  CHECK(format_groups(tensor) == "[0-7] x 2048 step 8");
  CHECK(format_groups(data) == "[0-1016/8] x 8 step 1 x 16 step 1024");
  CHECK(format_groups(pipeline) == "[0-15360/1024] x 1024 step 1");
  // Tensor, pipeline, data order: each stage's ranks lie in 128 blocks.
  std::vector<std::int64_t> stage;
  for (std::int64_t d = 0; d < 128; ++d) {
    for (std::int64_t t = 0; t < 8; ++t) stage.push_back(d * 128 + t);
  }
  CHECK(format_numbers(stage) == "0-7 x 128 step 128");
}

TEST_CASE("rank lists read back to the same order", "[program][property]") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    std::vector<RankId> values;
    while (values.size() < 60 && random.between(0, 20) > 0) {
      const std::int64_t base = random.between(0, 1000);
      const std::int64_t step = random.between(1, 5);
      for (std::int64_t i = random.between(0, 5); i >= 0; --i) values.emplace_back(base + i * step);
    }
    const Axis axis{"a", {values, values, values}};
    Program program;
    program.axes = {axis};
    program.role_of.resize(1100);
    program.device_of.resize(1100);
    INFO(to_text(program));
    CHECK(parse_program(to_text(program)) == program);
  }
}

}  // namespace
}  // namespace orrery
