// `orrery run`: the same bits however its ranks are run, what it writes, and what bad input and dead ranks
// end with.

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// Four ranks, 11,000 weights, a text of 4,000 bytes beside it.
std::string write_scenario(const Scratch& scratch, const std::string& plan = "dp: 2, pp: 2",
                           const std::string& training = "steps: 4, warmup: 1") {
  std::string text;
  for (int line = 0; text.size() < 4000; ++line) text += std::to_string(line * line) + " is a square\n";
  scratch.write("text.txt", text);
  return scratch
      .write("run.yaml",
             "name: tiny\n"
             "model: {hidden: 16, layers: 4, heads: 2, ffn: 32, vocab: 128}\n"
             "sequence: 16\n"
             "global_batch: 8\n"
             "cluster: {host: {cores: 2, slots: 8, memory: 1GiB}}\n"
             "plan: {microbatch: 1, precision: fp32, reduction: ordered, kernel_set: orrery-host,\n"
             "  vocab_multiple: 1, " +
                 plan + "}\ntraining: {data: text.txt, " + training + "}\n")
      .string();
}

json result_of(const std::string& arguments) {
  const Outcome outcome = run_orrery("run " + arguments + " --json -");
  CAPTURE(arguments, outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  return json::parse(outcome.out);
}

// What doesn't depend on the time.
json bits_of(const json& result) {
  return {result["parameter_hash"], result["loss"], result["grad_norm"], result["program_hash"],
          result["peak_memory_bytes"]};
}

std::string free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(listener);
  return std::to_string(ntohs(address.sin_port));
}

// Four processes as a launcher starts them; rank 2 is given `of_rank_2` beside `arguments`. Their standard
// errors come one after the other, then "codes" with theirs. `meanwhile` finds in $ranks the processes that
// watch over them, so that none runs for longer than a minute.
Outcome launch_four(const std::string& arguments, const std::string& meanwhile = "",
                    const std::string& of_rank_2 = "") {
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  return shell("ranks=; for r in 0 1 2 3; do more=; [ $r -ne 2 ] || more='" + of_rank_2 +
               "'\n"
               "RANK=$r WORLD_SIZE=4 LOCAL_RANK=$r LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
               free_port() + " timeout 60 \"$ORRERY\" run " + arguments + " $more 2>" + folder +
               "/err$r & ranks=\"$ranks $!\"\ndone\n" + meanwhile +
               "\ncodes=; for rank in $ranks; do wait $rank; codes=\"$codes $?\"; done\n"
               "cat " +
               folder + "/err*; echo codes$codes");
}

// Shell: the processes that a process has started, oldest first.
const std::string kChildren =
    "children() { grep -ls \"^PPid:[[:space:]]*$1$\" /proc/[0-9]*/status | sed 's|/proc/||; s|/status||' | "
    "sort -n; }\n";

// A run that goes on until somebody ends it.
const std::string kEndless = " --steps 300000";

}  // namespace

TEST_CASE("threads, processes and launched ranks train to the same bits, twice", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  const json threads = result_of(file);
  CHECK(threads["ranks"] == "4 threads");
  CHECK(bits_of(result_of(file)) == bits_of(threads));
  const json processes = result_of(file + " --processes --pin");
  CHECK(processes["ranks"] == "4 processes");
  CHECK(bits_of(processes) == bits_of(threads));
  const std::string launched = (scratch / "launched.json").string();
  const Outcome outcome = launch_four(file + " --json " + launched);
  CAPTURE(outcome.out, outcome.err);
  CHECK_THAT(outcome.out, Contains("codes 0 0 0 0"));
  const json of_launched = json::parse(read(launched));
  CHECK(of_launched["ranks"] == "4 processes, launched by torchrun");
  CHECK(bits_of(of_launched) == bits_of(threads));
  // Ordered sums: neither does it matter how many ranks there are.
  const json alone = result_of(file + " --set plan.dp=1 --set plan.pp=1");
  CHECK(alone["parameter_hash"] == threads["parameter_hash"]);
  CHECK(alone["loss"] == threads["loss"]);
  CHECK(result_of(file + " --set training.seed=2")["parameter_hash"] != threads["parameter_hash"]);
}

TEST_CASE("a run's JSON, log, trace and table say what happened", "[cli]") {
  const Scratch scratch;
  const std::string file =
      write_scenario(scratch, "dp: 2", "steps: 4, warmup: 1, learning_rate: 0.01, learning_rate_warmup: 2");
  const std::string log = (scratch / "log.jsonl").string(), trace = (scratch / "trace.json").string();
  const json result = result_of(file + " --log " + log + " --trace " + trace);
  CHECK(result["scenario"] == "tiny");
  CHECK(result["backend"] == "host");
  CHECK(result["steps"] == 4);
  CHECK(result["loss"].size() == 4);
  CHECK(result["grad_norm"].size() == 4);
  CHECK(result["final_loss"] == result["loss"][3]);
  CHECK(result["final_grad_norm"] == result["grad_norm"][3]);
  CHECK(result["loss"][3] < result["loss"][0]);
  CHECK(result["step_times_s"].size() == 3);  // All but the one of the warm-up.
  CHECK(result["step_time_s"] > 0);
  CHECK(result["tokens_per_step"] == 8 * 16);
  for (const char* key : {"parameter_hash", "plan_hash", "program_hash"}) CHECK(result[key].is_string());
  CHECK(result["workspace_bytes"].is_number());
  std::istringstream lines(read(log));
  std::string line;
  std::size_t step = 0;
  for (; std::getline(lines, line); ++step) {
    const json of_step = json::parse(line);
    CHECK(of_step["step"] == step);
    CHECK(of_step["loss"] == result["loss"][step]);
    CHECK(of_step["grad_norm"] == result["grad_norm"][step]);
    if (step == 0) CHECK(of_step["learning_rate"] == Approx(0.005));  // The first of two steps of warm-up.
  }
  CHECK(step == 4);
  CHECK(json::parse(read(trace))["traceEvents"].size() > 100);
  const Outcome table = run_orrery("run " + file + " --steps 2 --set plan.clip_gradients=false");
  CHECK(table.code == 0);
  CHECK_THAT(table.out, Contains("tiny: 2 steps on 2 threads (host)") && Contains("peak memory"));
  CHECK_THAT(table.out, !Contains("gradient norm"));  // Nobody asked for it.
}

TEST_CASE("ranks take the memory that was planned for them", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  for (const char* plan : {"", " --set plan.zero=3", " --set plan.recompute=full --set plan.zero=1",
                           " --set plan.tp=2 --set plan.dp=1", " --set plan.schedule=zb-h1"}) {
    CAPTURE(plan);
    const json result = result_of(file + plan);
    CHECK(result["peak_memory_bytes"] > 10'000);
    CHECK(result["peak_memory_bytes"] == result["predicted_memory_bytes"]);
  }
}

TEST_CASE("bad input for a run ends with its code and names the culprit", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  const auto refused = [&](const std::string& arguments, int code, const std::string& message) {
    const Outcome outcome = run_orrery("run " + file + " " + arguments);
    CAPTURE(arguments, outcome.err);
    CHECK(outcome.code == code);
    CHECK_THAT(outcome.err, Contains(message));
    CHECK(outcome.out.empty());
  };
  scratch.write("odd.bin", "abc");
  scratch.write("short.txt", "too short");
  scratch.write("beyond.txt", std::string(100, '\xff'));
  const auto data = [&](const char* name) { return "--set training.data=" + (scratch / name).string(); };
  refused(data("none.txt"), 3, "none.txt: can't be read: No such file");
  refused(data("odd.bin") + " --set training.token_bytes=2", 3, "odd.bin: has 3 bytes; expected tokens of 2");
  refused(data("short.txt"), 3, "short.txt: has 9 tokens; a sequence and the token after it take 17");
  refused(data("beyond.txt"), 3, "beyond.txt: has token 255; the model's vocabulary ends at 127");
  refused("--set training.steps=0", 3, "training.steps");
  refused("--set training.stepps=1", 3, "did you mean \"steps\"?");
  refused("--steps 0", 2, "--steps");
  refused("--json /nowhere/result.json", 5, "/nowhere/result.json");
  refused("--log " + scratch.folder().string(), 5, "it is a folder");
  refused("--set plan.dp=3", 4, "3");
}

TEST_CASE("launched ranks that aren't those of the plan are refused", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  const Outcome few = shell(
      "RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 \"$ORRERY\" "
      "run " +
      file);
  CHECK(few.code == 2);
  CHECK_THAT(few.err, Contains("has launched 3 ranks; the plan has 4"));
  CHECK(shell("RANK=zero WORLD_SIZE=4 \"$ORRERY\" run " + file).code == 2);
  for (const char* other :
       {"--set plan.zero=1", "--set training.learning_rate_floor=0.5", "--set training.beta1=0.8"}) {
    const Outcome outcome = launch_four(file, "", other);
    CAPTURE(other, outcome.out, outcome.err);
    CHECK_THAT(outcome.out, Contains("codes 6 6 6 6"));
    CHECK_THAT(outcome.out, Contains("plan: rank 2 has") && Contains("the others (ranks 0-1, 3) have"));
  }
}

TEST_CASE("a killed rank ends the run on all others", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch) + kEndless;
  SECTION("forked") {
    const std::string main = (scratch / "main").string();
    const Outcome outcome = shell(
        kChildren + "timeout 60 sh -c 'echo $$ >" + main + "; exec \"$ORRERY\" run " + file +
        " --processes' & watcher=$!\n"
        "for i in $(seq 100); do set -- $(children $(cat " +
        main +
        ")); [ $# -ne 4 ] || break; sleep 0.05; done 2>/dev/null\n"
        "sleep 0.3; kill -KILL $3; wait $watcher; echo code $?\n"  // Children in order of birth: rank 0 to 3.
        "for rank in $*; do [ ! -e /proc/$rank ] || echo left $rank; done; echo ranks $#");
    CAPTURE(outcome.err);
    CHECK(outcome.out == "code 5\nranks 4\n");
    CHECK_THAT(outcome.err, Contains("rank 2 was killed by signal 9 (Killed)"));
  }
  SECTION("launched") {
    const Outcome outcome =
        launch_four(file, kChildren + "sleep 0.7; set -- $ranks; kill -KILL $(children $3)");
    CAPTURE(outcome.out);
    CHECK_THAT(outcome.out, Contains("rank 2 has gone"));
    CHECK_THAT(outcome.out, Contains("codes 5 5 137 5"));
  }
}

TEST_CASE("mpirun launches ranks that train to the same bits", "[cli]") {
  if (shell("mpirun --version").out.find("Open MPI") == std::string::npos) {
    std::cout << "skipped: no mpirun of Open MPI\n";
    return;
  }
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  const Outcome outcome = shell(
      "env -u RANK -u WORLD_SIZE OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun "
      "--oversubscribe -n 4 \"$ORRERY\" run " +
      file + " --json " + (scratch / "result.json").string());
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const json result = json::parse(read(scratch / "result.json"));
  CHECK(result["ranks"] == "4 processes, launched by Open MPI");
  CHECK(bits_of(result) == bits_of(result_of(file)));
}

// Two network namespaces, each with a /dev/shm of its own, joined by a pair of virtual Ethernet devices.
TEST_CASE("two hosts train to the same bits as threads", "[cli]") {
  const Scratch scratch;
  const std::string file = write_scenario(scratch);
  const std::string json_file = (scratch / "result.json").string();
  scratch.write("host.sh",
                "mount -t tmpfs none /dev/shm || exit 1\n"
                "for local in 0 1; do LOCAL_RANK=$local RANK=$((2 * $1 + local)) \"$ORRERY\" run " +
                    file + " --json " + json_file +
                    " & ranks=\"$ranks $!\"; done\n"
                    "code=0; for rank in $ranks; do wait $rank || code=$?; done; exit $code\n");
  const Outcome outcome = shell(
      "a=orrery-a-$$ b=orrery-b-$$ pair=orr$$\n"
      "trap 'ip netns del $a; ip netns del $b' EXIT\n"
      "{ ip netns add $a && ip netns add $b && ip link add $pair netns $a type veth peer name $pair netns $b "
      "&&\n"
      "ip -n $a addr add 10.79.0.1/24 dev $pair && ip -n $b addr add 10.79.0.2/24 dev $pair &&\n"
      "ip -n $a link set $pair up && ip -n $b link set $pair up && ip -n $a link set lo up &&\n"
      "ip -n $b link set lo up && unshare -m true; } 2>/dev/null || { echo skipped; exit 0; }\n"
      "export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.79.0.1 MASTER_PORT=4000\n"
      "ip netns exec $a timeout 60 unshare -m sh " +
      (scratch / "host.sh").string() + " 0 & one=$!\nip netns exec $b timeout 60 unshare -m sh " +
      (scratch / "host.sh").string() + " 1 & two=$!\nwait $one || exit 1; wait $two || exit 1; echo trained");
  if (outcome.out == "skipped\n") {
    std::cout << "skipped: no network namespaces (needs root, iproute2 and the kernel's veth)\n";
    return;
  }
  CAPTURE(outcome.out, outcome.err);
  REQUIRE_THAT(outcome.out, Contains("trained"));
  CHECK(bits_of(json::parse(read(json_file))) == bits_of(result_of(file)));
}
