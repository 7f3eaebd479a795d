// The text that PyTorch prints of a torch.fx graph → FxProgram: what torch's compile logs, print_readable()
// and print(exported_program) write. Not Python: one call per line, as the printer writes it.

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>

#include "base/error.hpp"
#include "model/import_fx.hpp"
#include "model/import_fx_program.hpp"

namespace orrery {
namespace {

constexpr int kMostDepth = 64;
constexpr std::int64_t kMostInteger = std::int64_t{1} << 62;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The first place at depth 0 (outside brackets and strings) where `stop` begins, or npos.
std::size_t find_outside(std::string_view text, std::string_view stop, std::size_t from = 0) {
  int depth = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (depth == 0 && text.substr(i).starts_with(stop)) return i;
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const std::size_t end = text.find(c, i + 1);
      if (end == std::string_view::npos) return end;
      i = end;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// "a, b = 2, [3, 4]" → its parts.
std::vector<std::string_view> split_outside(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!trimmed(text).empty()) {
    const std::size_t comma = find_outside(text, ",");
    parts.push_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return parts;
}

// The comment behind a line, "# PlainAOTInput(idx=0)", or "".
std::string_view comment_of(std::string_view line) {
  const std::size_t mark = find_outside(line, "#");
  return mark == std::string_view::npos ? "" : trimmed(line.substr(mark + 1));
}

class FxTextReader {
 public:
  FxTextReader(std::string_view text, std::string_view place) : text_(text), place_(place) {}
  FxProgram read();

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail(ErrorKind::kInput, "{}:{}: {}", place_, line_number_, what);
  }
  bool next_line();
  void signature();
  void placeholder(std::string_view text, std::string_view comment);
  void statement();
  void assign(std::string_view left, std::string_view right);
  void returned();
  void add_results(std::string_view text, std::string_view comment);
  void call(FxNode& node, std::string_view right);
  bool operation(FxNode& node, std::string_view right);
  FxValue value(std::string_view text, int depth = 0) const;
  std::optional<FxMeta> meta(std::string_view annotation) const;
  std::string_view resolve(std::string_view name) const;

  std::string_view text_;
  std::string place_;
  std::string_view line_;
  std::int64_t line_number_ = 0;
  FxProgram program_;
  std::set<std::string, std::less<>> known_;                   // Names of nodes.
  std::map<std::string, std::string, std::less<>> alias_;      // l_x_ = L_x_
  std::map<std::string, std::string, std::less<>> described_;  // Descriptor of a placeholder → its name.
  bool done_ = false;
};

bool FxTextReader::next_line() {
  if (text_.empty()) return false;
  const std::size_t end = text_.find('\n');
  line_ = trimmed(text_.substr(0, end));
  text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
  ++line_number_;
  return true;
}

std::string_view FxTextReader::resolve(std::string_view name) const {
  const auto found = alias_.find(name);
  return found == alias_.end() ? name : std::string_view(found->second);
}

// "f32[8, 16][16, 1]cuda:0": type, sizes, and strides that say nothing new.
std::optional<FxMeta> FxTextReader::meta(std::string_view annotation) const {
  const std::size_t open = annotation.find('[');
  if (open == std::string_view::npos) return std::nullopt;  // "Sym(s0)", "Tensor": no shape is said.
  const std::size_t close = find_outside(annotation.substr(open + 1), "]");
  if (close == std::string_view::npos) wrong(fmt::format("no end of the shape in \"{}\"", annotation));
  FxMeta result;
  result.dtype = trimmed(annotation.substr(0, open));
  for (const std::string_view size : split_outside(annotation.substr(open + 1, close))) {
    result.shape.emplace_back(size);
  }
  return result;
}

// Names that torch gives to placeholders say what they are, where no descriptor does.
FxRole role_of(std::string_view name, std::string_view descriptor) {
  if (descriptor.starts_with("ParamAOTInput") || descriptor.starts_with("Param")) return FxRole::kParameter;
  if (descriptor.starts_with("Buffer")) return FxRole::kBuffer;
  if (descriptor.starts_with("TangentAOTInput") || name.starts_with("tangents_")) return FxRole::kTangent;
  if (name.find("_parameters_") != std::string_view::npos || name.starts_with("p_"))
    return FxRole::kParameter;
  if (name.find("_buffers_") != std::string_view::npos || name.starts_with("b_")) return FxRole::kBuffer;
  return FxRole::kInput;
}

void FxTextReader::placeholder(std::string_view text, std::string_view comment) {
  text = trimmed(text);
  if (text.empty() || text == "self") return;
  const std::size_t colon = text.find(':');
  FxNode node;
  node.kind = FxNode::Kind::kPlaceholder;
  node.name = trimmed(text.substr(0, colon));
  if (colon == std::string_view::npos) return;  // "primals, tangents": unpacked by a line of the body.
  std::string_view annotation = trimmed(text.substr(colon + 1));
  if (annotation.size() >= 2 && annotation.front() == '"')
    annotation = annotation.substr(1, annotation.size() - 2);
  node.outputs.push_back(meta(annotation));
  node.role = role_of(node.name, comment);
  if (!comment.empty()) described_.emplace(comment, node.name);
  known_.insert(node.name);
  program_.nodes.push_back(std::move(node));
}

// "def forward(self, x: "f32[…]", …):" on one line, or an argument a line up to "):".
void FxTextReader::signature() {
  const std::size_t open = line_.find('(');
  if (open == std::string_view::npos) wrong("expected \"def forward(…)\"");
  std::string_view rest = line_.substr(open + 1);
  const std::size_t close = find_outside(rest, ")");
  if (close != std::string_view::npos) {
    for (const std::string_view part : split_outside(rest.substr(0, close))) placeholder(part, "");
    return;
  }
  while (next_line()) {
    if (line_.starts_with(")")) return;
    const std::string_view comment = comment_of(line_);
    const std::size_t mark = find_outside(line_, "#");
    std::string_view argument = trimmed(line_.substr(0, mark));
    if (argument.ends_with(",")) argument.remove_suffix(1);
    placeholder(argument, comment);
  }
  wrong("the argument list of forward has no end");
}

FxValue FxTextReader::value(std::string_view text, int depth) const {
  text = trimmed(text);
  FxValue result;
  if (depth > kMostDepth) wrong("nested deeper than 64");
  if (text.empty()) wrong("an argument is missing");
  if (text == "None") return result;
  if (text == "True" || text == "False") {
    result.kind = FxValue::Kind::kBool;
    result.integer = text == "True" ? 1 : 0;
    result.real = static_cast<double>(result.integer);
    return result;
  }
  if ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')')) {
    result.kind = FxValue::Kind::kList;
    for (const std::string_view item : split_outside(text.substr(1, text.size() - 2))) {
      result.items.push_back(value(item, depth + 1));
    }
    return result;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.integer);
  if (error == std::errc() && end == text.data() + text.size() && result.integer > -kMostInteger &&
      result.integer < kMostInteger) {
    result.kind = FxValue::Kind::kInteger;
    result.real = static_cast<double>(result.integer);
    return result;
  }
  const auto [real_end, real_error] = std::from_chars(text.data(), text.data() + text.size(), result.real);
  if (real_error == std::errc() && real_end == text.data() + text.size()) {
    result.kind = FxValue::Kind::kReal;
    return result;
  }
  const std::string_view name = resolve(text);
  result.kind = known_.contains(name) ? FxValue::Kind::kNode : FxValue::Kind::kWord;
  result.text = name;
  return result;
}

// "a + b", "-a", "a[1]", "a.repeat(2, 1)".
bool FxTextReader::operation(FxNode& node, std::string_view right) {
  std::size_t end = 0;
  while (end < right.size() && is_word(right[end])) ++end;
  const std::string_view first = right.substr(0, end);
  const std::string_view rest = right.substr(end);
  if (known_.contains(resolve(first)) && rest.starts_with(".") && rest.ends_with(")")) {
    const std::size_t open = rest.find('(');
    if (open == std::string_view::npos) return false;
    node.target = rest.substr(0, open);
    node.arguments.push_back(value(first));
    call(node, rest.substr(open + 1, rest.size() - open - 2));
    return true;
  }
  if (known_.contains(resolve(first)) && rest.starts_with("[") && rest.ends_with("]")) {
    node.target = "getitem";
    node.arguments = {value(first), value(rest.substr(1, rest.size() - 2))};
    const bool picks = node.arguments[1].kind == FxValue::Kind::kInteger;
    node.kind = picks ? FxNode::Kind::kGetItem : FxNode::Kind::kCall;
    return true;
  }
  if (right.starts_with("-") && known_.contains(resolve(trimmed(right.substr(1))))) {
    node.target = "neg";
    node.arguments = {value(right.substr(1))};
    return true;
  }
  for (const std::string_view sign :
       {" + ", " - ", " * ", " / ", " // ", " ** ", " @ ", " == ", " < ", " > ", " & "}) {
    const std::size_t at = find_outside(right, sign);
    if (at == std::string_view::npos) continue;
    node.target = trimmed(sign);
    node.arguments = {value(right.substr(0, at)), value(right.substr(at + sign.size()))};
    return true;
  }
  return false;
}

// The arguments of a call, without their brackets.
void FxTextReader::call(FxNode& node, std::string_view arguments) {
  for (const std::string_view part : split_outside(arguments)) {
    const std::size_t equals = find_outside(part, "=");
    const std::string_view key = trimmed(part.substr(0, equals));
    const bool keyword =
        equals != std::string_view::npos && !key.empty() && std::all_of(key.begin(), key.end(), is_word);
    if (keyword) {
      node.keywords[std::string(key)] = value(part.substr(equals + 1));
    } else {
      node.arguments.push_back(value(part));
    }
  }
}

void FxTextReader::assign(std::string_view left, std::string_view right) {
  const std::size_t colon = left.find(':');
  if (left.substr(0, colon).find(',') != std::string_view::npos) return;  // Unpacks what is declared already.
  FxNode node;
  node.name = trimmed(left.substr(0, colon));
  std::string_view annotation = colon == std::string_view::npos ? "" : trimmed(left.substr(colon + 1));
  if (annotation.size() >= 2 && annotation.front() == '"')
    annotation = annotation.substr(1, annotation.size() - 2);
  const std::optional<FxMeta> type = annotation.empty() ? std::nullopt : meta(annotation);
  // Pytree code declares the placeholders in the body.
  const std::size_t open = right.find('(');
  const std::string_view called = open == std::string_view::npos ? "" : right.substr(0, open);
  if (called == "torch._C._set_grad_enabled" || called.starts_with("torch.autograd.grad_mode")) return;
  if (known_.contains(resolve(right))) {
    alias_[node.name] = resolve(right);
    return;
  }
  node.outputs.push_back(type);
  if (!operation(node, right)) {
    if (!right.ends_with(")") || called.empty()) {
      wrong(fmt::format("\"{}\" isn't a call, an operator or a name", right.substr(0, 60)));
    }
    node.target = called;
    call(node, right.substr(open + 1, right.size() - open - 2));
  }
  known_.insert(node.name);
  program_.nodes.push_back(std::move(node));
}

void FxTextReader::add_results(std::string_view text, std::string_view comment) {
  for (const std::string_view part : split_outside(text)) {
    FxResult result;
    if (part != "None") result.node = resolve(part);
    result.gradient_of = comment;
    program_.results.push_back(std::move(result));
  }
}

// "return (a, b)", or one a line with descriptors, "return pytree.tree_unflatten([".
void FxTextReader::returned() {
  done_ = true;
  std::string_view rest = trimmed(line_.substr(6));
  for (const std::string_view wrapper : {"pytree.tree_unflatten(", "(", "["}) {
    if (rest.starts_with(wrapper)) rest = trimmed(rest.substr(wrapper.size()));
  }
  if (rest.starts_with("[")) rest = trimmed(rest.substr(1));
  const std::size_t close = std::min(find_outside(rest, ")"), find_outside(rest, "]"));
  if (close != std::string_view::npos || !rest.empty()) {
    add_results(rest.substr(0, close), "");
    return;
  }
  while (next_line() && !line_.starts_with(")") && !line_.starts_with("]")) {
    std::string_view comment = comment_of(line_);
    std::string_view result = trimmed(line_.substr(0, find_outside(line_, "#")));
    if (result.ends_with(",")) result.remove_suffix(1);
    // GradAOTOutput(grad_of=PlainAOTInput(idx=0)): of the placeholder with that descriptor, unless it is an
    // input of the forward graph alone.
    constexpr std::string_view kGradient = "GradAOTOutput(grad_of=";
    std::string of;
    if (comment.starts_with(kGradient) && comment.ends_with(")")) {
      comment = comment.substr(kGradient.size(), comment.size() - kGradient.size() - 1);
      if (const auto found = described_.find(comment); found != described_.end()) of = found->second;
    }
    if (!result.empty()) add_results(result, of);
  }
}

void FxTextReader::statement() {
  if (line_.empty() || line_.front() == '#' || line_.starts_with("class ")) return;
  if (line_.starts_with("return")) return returned();
  if (line_ == "ExportedProgram:") return;
  // "; a = b = None" frees what isn't needed any more.
  const std::string_view code = trimmed(line_.substr(0, find_outside(line_, ";")));
  // An annotated name, then the first "=" outside the annotation.
  const std::size_t equals = find_outside(code, " = ");
  if (equals == std::string_view::npos) {
    const std::size_t colon = code.find(": \"");  // "primals_1: "f32[…]"  # …" in a joint graph's body.
    const std::size_t mark = find_outside(code, "#");
    if (colon == std::string_view::npos) wrong(fmt::format("\"{}\" isn't an assignment", code.substr(0, 60)));
    return placeholder(code.substr(0, mark), comment_of(code));
  }
  assign(code.substr(0, equals), trimmed(code.substr(equals + 3)));
}

FxProgram FxTextReader::read() {
  while (next_line() && !line_.starts_with("def forward(")) {
    if (line_.starts_with("class ")) {
      program_.name = trimmed(line_.substr(
          6, line_.find('(') == std::string_view::npos ? std::string_view::npos : line_.find('(') - 6));
    }
  }
  if (!line_.starts_with("def forward(")) {
    fail(ErrorKind::kInput, "{}: not the text of a torch.fx graph: expected \"def forward(self, …):\"",
         place_);
  }
  signature();
  while (!done_ && next_line()) statement();
  if (!done_) wrong("the graph has no return");
  return std::move(program_);
}

}  // namespace

Graph read_fx_text(std::string_view text, std::string_view place, const ImportOptions& options) {
  return build_fx_graph(FxTextReader(text, place).read(), place, options);
}

}  // namespace orrery
