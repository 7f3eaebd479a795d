// dtype.hpp and suggest.hpp: words that people write.
#include <catch2/catch.hpp>

#include <array>

#include "base/dtype.hpp"
#include "base/suggest.hpp"

using namespace orrery;

TEST_CASE("every number format has a word, and the word leads back", "[base]") {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    CAPTURE(to_string(type));
    CHECK(parse_dtype(to_string(type)) == type);
    CHECK(size_bytes(type) > 0);
  }
  CHECK(to_string(DType::kBf16) == "bf16");
  CHECK_FALSE(parse_dtype("BF16").has_value());
  CHECK_FALSE(parse_dtype("").has_value());
  CHECK(size_bytes(DType::kTf32) == 4);
  CHECK(size_bytes(DType::kFp8) == 1);
}

TEST_CASE("the nearest known word is within a third of its length in edits", "[base]") {
  const std::array<std::string, 4> known{"vocab_size", "hidden_size", "num_layers", "tp"};
  CHECK(nearest("vocab_size", known) == "vocab_size");
  CHECK(nearest("vocabsize", known) == "vocab_size");    // One insertion.
  CHECK(nearest("vocab_szie", known) == "vocab_size");   // One swap.
  CHECK(nearest("hiden_sise", known) == "hidden_size");  // One insertion, one replacement.
  CHECK(nearest("num_layerss", known) == "num_layers");  // One deletion.
  CHECK(nearest("pt", known) == "tp");                   // One swap, in a word too short for a third.
  CHECK_FALSE(nearest("learning_rate", known).has_value());
  CHECK_FALSE(nearest("vocab_size", {}).has_value());
  CHECK_FALSE(nearest(std::string(100'000, 'v'), known).has_value());
  CHECK(did_you_mean("vocab_szie", known) == "; did you mean \"vocab_size\"?");
  CHECK(did_you_mean("learning_rate", known).empty());
}
