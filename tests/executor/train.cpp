// Texts, the order of samples, learning rates.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "executor/train/batches.hpp"
#include "executor/train/learning_rate.hpp"

namespace orrery {
namespace {

class TemporaryText {
 public:
  explicit TemporaryText(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("orrery-text-" + std::to_string(std::hash<std::string>{}(text)))) {
    std::ofstream(path_) << text;
  }
  ~TemporaryText() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string letters(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + i % 26);
  return text;
}

}  // namespace

TEST_CASE("a file of tokens has numbers of one width", "[train]") {
  const TemporaryText text("abcd");
  CHECK(TokenFile(text.path(), 1).size() == 4);
  CHECK(TokenFile(text.path(), 1)[1] == 'b');
  CHECK(TokenFile(text.path(), 2).size() == 2);
  CHECK(TokenFile(text.path(), 2)[0] == 'a' + 256 * 'b');
  CHECK(TokenFile(text.path(), 1).largest() == 'd');
  const TemporaryText odd("abc");
  CHECK_THROWS_WITH(TokenFile(odd.path(), 2), Catch::Contains("has 3 bytes; expected tokens of 2 bytes"));
  CHECK_THROWS_WITH(TokenFile("/nowhere/text", 1), Catch::Contains("/nowhere/text: can't be read"));
  const TemporaryText empty("");
  CHECK_THROWS_AS(TokenFile(empty.path(), 1), Error);
}

// 41 tokens: ten windows of four and the token after.
TEST_CASE("each pass over a text takes every window once, in another order", "[train]") {
  const TemporaryText text(letters(41));
  const TokenFile tokens(text.path(), 1);
  const SampleOrder order(tokens, 4, 9);
  REQUIRE(order.windows() == 10);
  std::vector<std::vector<std::int64_t>> passes;
  for (int pass = 0; pass < 3; ++pass) {
    std::set<std::int64_t> seen;
    auto& of_pass = passes.emplace_back();
    for (int i = 0; i < 10; ++i) {
      of_pass.push_back(order.begin(10 * pass + i));
      CHECK(of_pass.back() % 4 == 0);
      seen.insert(of_pass.back());
    }
    CHECK(seen.size() == 10);
    CHECK(*seen.rbegin() == 36);
  }
  CHECK(passes[0] != passes[1]);
  CHECK(passes[1] != passes[2]);
  CHECK(SampleOrder(tokens, 4, 10).begin(0) + SampleOrder(tokens, 4, 10).begin(1) !=
        order.begin(0) + order.begin(1));
  CHECK_THROWS_WITH(SampleOrder(tokens, 41, 1), Catch::Contains("a sequence and the token after it take 42"));
}

TEST_CASE("labels are the tokens after, and shares of a batch don't depend on who asks", "[train]") {
  const TemporaryText text(letters(200));
  const TokenFile tokens(text.path(), 1);
  Batches small(tokens, {4, 1, 4}, 3, 0, 6);
  Batches large(tokens, {4, 2, 4}, 3, 0, 6);
  for (std::int64_t step = 0; step < 6; ++step) {
    for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      std::vector<std::int64_t> ids(8), labels(8), first(4), second(4);
      large.fill(step, microbatch, false, ids);
      large.fill(step, microbatch, true, labels);
      small.fill(step, 2 * microbatch, false, first);
      small.fill(step, 2 * microbatch + 1, false, second);
      first.insert(first.end(), second.begin(), second.end());
      CHECK(ids == first);
      for (std::size_t i = 0; i < 8; ++i) {
        if (i % 4 < 3) CHECK(labels[i] == ids[i + 1]);
        CHECK((labels[i] - 'a') == (ids[i] - 'a' + 1) % 26);
      }
    }
  }
}

// Warm-up to 1 in 4 steps; then 8 steps of cosine to 0.2: half of the way at x = 1/2.
TEST_CASE("a learning rate warms up and decays", "[train]") {
  LearningRate rate = {1.0, 0.2, 4, 12, Decay::kCosine};
  CHECK(rate.at(0) == 0.25);
  CHECK(rate.at(3) == 1.0);
  CHECK(rate.at(4) == Approx(1.0));
  CHECK(rate.at(8) == Approx(0.6));
  CHECK(rate.at(12) == Approx(0.2));
  CHECK(rate.at(100) == Approx(0.2));
  rate.decay = Decay::kLinear;
  CHECK(rate.at(6) == Approx(0.8));
  rate.decay = Decay::kConstant;
  CHECK(rate.at(100) == 1.0);
}

}  // namespace orrery
