// Launch scripts, read without running them.

#include "scenarios/framework_shell.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

// The words of the commands, one command a line, unknown values as ${NAME}.
std::string commands(std::string_view text, const FrameworkVariables& given = {}) {
  std::string result;
  for (const ShellCommand& command : read_shell(text, "run.sh", given).commands) {
    if (!command.certain) result += "? ";
    for (std::size_t i = 0; i < command.words.size(); ++i) {
      result += (i > 0 ? " " : "") + show_unknown(command.words[i].text);
    }
    result += "\n";
  }
  return result;
}

std::string notes(std::string_view text) {
  std::string result;
  for (const std::string& note : read_shell(text, "run.sh", {}).notes) result += note + "\n";
  return result;
}

}  // namespace

TEST_CASE("words of a script are expanded", "[frameworks]") {
  CHECK(commands("A=4\nrun --a $A --b ${A}x '$A' \"$A b\"\n") == "run --a 4 --b 4x $A 4 b\n");
  CHECK(commands("A=\"x  y\"\nrun $A \"$A\"\n") == "run x y x  y\n");
  CHECK(commands("A=(1 2\n  # two more\n  3 \\\n  4)\nA+=(5)\nrun ${A[@]} \"${A[*]}\" ${A[1]}\n") ==
        "run 1 2 3 4 5 1 2 3 4 5 2\n");
  CHECK(commands("run ${A:-8} ${B:=9} $B ${C:-${B}0}\n") == "run 8 9 9 90\n");
  CHECK(commands(": \"${A:=5}\"\nexport B=${A}1\nrun $B\n") == "run 51\n");
  CHECK(commands("N=2\nrun $((8*$N)) $(( (N + 1) * 4 - 10 / 3 )) $((X*2))\n") == "run 16 9 ${X}\n");
  CHECK(commands("run $X $1 `pwd` $(hostname -i)\n") == "run ${X} ${1} ${`pwd`} ${(hostname -i)}\n");
  CHECK(commands("run $X\n", {{"X", "7"}}) == "run 7\n");
  CHECK(commands("TP=4\nrun $TP\n", {{"TP", "8"}}) == "run 8\n");  // What is given counts.
  CHECK(commands("TP=2 run a && run b || run c; run d | run e > f 2>&1 &\n") ==
        "run a\nrun b\nrun d\nrun e\n");
  CHECK(commands("cat <<EOT > f\nrun 'a\nEOT\nrun b\n") == "run b\n");
  CHECK(commands("#SBATCH --nodes=24\n#SBATCH --gpus-per-node 8\nrun $SLURM_NNODES $SLURM_GPUS_PER_NODE\n") ==
        "run 24 8\n");
}

TEST_CASE("conditions on known values are decided, others leave a mark", "[frameworks]") {
  CHECK(commands("A=1\nif [ $A -eq 1 ]; then B=x; else B=y; fi\nrun $B\n") == "run x\n");
  CHECK(commands("A=1\nif [[ $A == 2 ]]; then B=x\nelif [ $A = 1 ]; then B=y\nelse B=z\nfi\nrun $B\n") ==
        "run y\n");
  CHECK(commands("B=0\nif [ $X = 1 ]; then B=1; fi\nrun $B\n") == "run ${B}\n");
  CHECK(commands("if [ $X = 1 ]; then run a; fi\nrun b\n") == "? run a\nrun b\n");
  CHECK(commands("A=big\ncase $A in\n  small) N=1 ;;\n  big | large) N=2 ;;\n  *) N=3 ;;\nesac\nrun $N\n") ==
        "run 2\n");
  CHECK(commands("for i in 1 2; do run $i; done\nrun b\n") == "? run ${i}\nrun b\n");
  CHECK(commands("main() {\n  run a\n}\nrun b\n") == "? run a\nrun b\n");
  CHECK(commands("[ -z \"\" ] && A=1\n[ -n \"\" ] && A=2\nrun $A\n") == "run 1\n");
  // What would only be added is left away, and noted.
  const std::string added = "ARGS=(--a 1)\nif [ -n \"$X\" ]; then\n  ARGS+=(--b 2)\nfi\nrun ${ARGS[@]}\n";
  CHECK(commands(added) == "run --a 1\n");
  CHECK(notes(added) == "line 3: \"--b 2\" is added to ARGS under a condition that isn't known\n");
  CHECK_THAT(notes("source ./env.sh\n"), Contains("line 1: \"./env.sh\" isn't read"));
}

TEST_CASE("what doesn't end or grows without end is an error with its line", "[frameworks]") {
  CHECK_THROWS_WITH(commands("A=1\nrun \"a\nb\n"), Contains("run.sh:2: a quote or bracket begins here"));
  CHECK_THROWS_WITH(commands("A=(1 2\n"), Contains("run.sh:1:"));
  std::string doubling = "A=xxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  CHECK_THROWS_WITH(commands(doubling), Contains("1 MiB"));
}
