#include "planner/schedule_layout.hpp"

#include "base/error.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostSymbols = 100'000;  // Spelled out; a slip of the finger shouldn't fill memory.
constexpr int kDeepest = 16;

struct Symbol {
  char letter;
  std::size_t column;
};

class LayoutParser {
 public:
  explicit LayoutParser(std::string_view text) : text_(text) {}

  std::vector<StageContent> parse() {
    std::vector<Symbol> symbols = items(0);
    if (at_ < text_.size()) wrong(at_, "')' without its '('");
    std::vector<StageContent> stages(1);
    for (const Symbol& symbol : symbols) place(symbol, stages);
    if (phase_ == kNothing) wrong(text_.size(), "the layout has no embedding (E)");
    if (phase_ != kLoss) wrong(text_.size(), "the layout ends without the head and its loss (L)");
    return stages;
  }

 private:
  enum Phase { kNothing, kLayers, kPrediction, kLoss };

  [[noreturn]] void wrong(std::size_t at, std::string_view what) const {
    fail(ErrorKind::kInput, "pipeline layout, column {}: {}; e.g. \"Et*3|(tt|)*29,m|L\"", at + 1, what);
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == ',')) ++at_;
  }

  // Until the end or a ')', which stays.
  std::vector<Symbol> items(int depth) {
    std::vector<Symbol> result;
    for (skip_blanks(); at_ < text_.size() && text_[at_] != ')'; skip_blanks()) {
      std::vector<Symbol> item;
      const std::size_t start = at_;
      if (text_[at_] == '(') {
        if (depth == kDeepest) wrong(at_, fmt::format("groups are nested more than {} deep", kDeepest));
        ++at_;
        item = items(depth + 1);
        if (at_ == text_.size()) wrong(start, "'(' without its ')'");
        ++at_;
      } else if (std::string_view("EtmL|").find(text_[at_]) != std::string_view::npos) {
        item = {{text_[at_], at_}};
        ++at_;
      } else {
        wrong(at_, fmt::format("expected E, t, m, L, |, ( or ), found '{}'", text_[at_]));
      }
      const std::size_t times = repeats();
      if (item.size() * times > kMostSymbols || result.size() + item.size() * times > kMostSymbols) {
        wrong(start, fmt::format("more than {} symbols", kMostSymbols));
      }
      for (std::size_t i = 0; i < times; ++i) result.insert(result.end(), item.begin(), item.end());
    }
    return result;
  }

  std::size_t repeats() {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    ++at_;
    const std::size_t start = at_;
    std::size_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<std::size_t>(text_[at_] - '0');
      if (value > kMostSymbols) wrong(start, fmt::format("expected a count of at most {}", kMostSymbols));
    }
    if (value == 0) wrong(start, "expected a count from 1 on after '*'");
    return value;
  }

  void place(const Symbol& symbol, std::vector<StageContent>& stages) {
    StageContent& stage = stages.back();
    if (symbol.letter == '|') {
      stages.emplace_back();
      return;
    }
    if (phase_ == kLoss)
      wrong(symbol.column, fmt::format("'{}' after the head (L), which comes last", symbol.letter));
    if (symbol.letter == 'E') {
      if (phase_ != kNothing) wrong(symbol.column, "the embedding (E) comes once, before everything else");
      stage.embedding = true;
      phase_ = kLayers;
      return;
    }
    if (phase_ == kNothing) wrong(symbol.column, fmt::format("'{}' before the embedding (E)", symbol.letter));
    if (symbol.letter == 't') {
      if (phase_ == kPrediction) wrong(symbol.column, "a layer (t) after a prediction layer (m)");
      ++stage.layers;
    } else if (symbol.letter == 'm') {
      ++stage.prediction;
      phase_ = kPrediction;
    } else {
      stage.loss = true;
      phase_ = kLoss;
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Phase phase_ = kNothing;
};

std::string repeated(char letter, std::int32_t times) {
  if (times == 0) return "";
  return times == 1 ? std::string(1, letter) : fmt::format("{}*{}", letter, times);
}

}  // namespace

std::vector<StageContent> parse_layout(std::string_view text) { return LayoutParser(text).parse(); }

std::string to_text(std::span<const StageContent> stages) {
  std::string text;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (s > 0) text += '|';
    if (stages[s].embedding) text += 'E';
    text += repeated('t', stages[s].layers) + repeated('m', stages[s].prediction);
    if (stages[s].loss) text += 'L';
  }
  return text;
}

}  // namespace orrery
