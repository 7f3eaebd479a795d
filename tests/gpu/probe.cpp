// The CUDA probe: its figures where there is a GPU, a clear refusal where there is none.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace {

#ifdef ORRERY_CUDA_PROBE
struct Answer {
  int exit_code = -1;
  std::string text;  // Standard output and standard error.
};

Answer run_probe(const std::string& arguments) {
  Answer answer;
  FILE* const pipe = popen((ORRERY_CUDA_PROBE " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("can't start " ORRERY_CUDA_PROBE);
  std::array<char, 4096> part{};
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) {
    answer.text.append(part.data(), got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) answer.exit_code = WEXITSTATUS(status);
  return answer;
}

bool is_without_gpu(const Answer& answer) {
  return answer.exit_code == 5 &&
         answer.text.find("no usable NVIDIA GPU on this machine") != std::string::npos;
}

// A bundle is without it.
bool have_probe() {
  if (access(ORRERY_CUDA_PROBE, X_OK) == 0) return true;
  std::cout << "skipped: no probe at " ORRERY_CUDA_PROBE "\n";
  return false;
}
#endif

}  // namespace

TEST_CASE("the probe refuses arguments that it doesn't know", "[gpu]") {
#ifdef ORRERY_CUDA_PROBE
  if (!have_probe()) return;
  for (const char* arguments : {"--only copies,lunches", "--json", "everything"}) {
    const Answer answer = run_probe(arguments);
    CAPTURE(arguments, answer.text);
    CHECK(answer.exit_code == 2);
    CHECK(answer.text.find("usage: orrery-cuda-probe") != std::string::npos);
  }
#else
  std::cout << "skipped: built without a CUDA compiler, so there is no probe\n";
#endif
}

TEST_CASE("the probe runs, or says that there is no GPU and ends with 5", "[gpu]") {
#ifdef ORRERY_CUDA_PROBE
  if (!have_probe()) return;
  const Answer answer = run_probe("--only launches");
  CAPTURE(answer.exit_code, answer.text);
  CHECK((answer.exit_code == 0 || is_without_gpu(answer)));
#else
  std::cout << "skipped: built without a CUDA compiler, so there is no probe\n";
#endif
}

TEST_CASE("the probe's figures are physically possible", "[gpu]") {
#ifdef ORRERY_CUDA_PROBE
  if (!have_probe()) return;
  const Answer answer = run_probe("--only copies,launches");
  if (is_without_gpu(answer)) {
    std::cout << "skipped: no NVIDIA GPU here\n";
    return;
  }
  CAPTURE(answer.exit_code, answer.text);
  REQUIRE(answer.exit_code == 0);
  const auto json = nlohmann::json::parse(answer.text.substr(answer.text.find("{\n")));
  // Bounds of physics, not of speed: no GPU of today moves 20 TB/s or replays a node in a nanosecond.
  CHECK(json.at("copies").at("device_memcpy_bytes_per_s").get<double>() > 0);
  CHECK(json.at("copies").at("device_memcpy_bytes_per_s").get<double>() < 20e12);
  CHECK(json.at("launches").at("graph_node_s").get<double>() > 1e-9);
  CHECK(json.at("launches").at("host_launch_s").get<double>() > 1e-9);
#else
  std::cout << "skipped: built without a CUDA compiler, so there is no probe\n";
#endif
}
