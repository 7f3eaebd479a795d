#include "topology/import/xml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <pugixml.hpp>
#include <sstream>

#include "base/error.hpp"

namespace orrery {
namespace {

// Ours are a handful deep; a PCI bus number has 8 bits, so that no tree of bridges is deeper.
constexpr std::int32_t kMaxDepth = 256;

class Lines {
 public:
  explicit Lines(std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at)
      if (text[at] == '\n') ends_.push_back(at);
  }
  std::int32_t of(std::size_t offset) const {
    return static_cast<std::int32_t>(std::ranges::lower_bound(ends_, offset) - ends_.begin()) + 1;
  }

 private:
  std::vector<std::size_t> ends_;
};

// One "<…>" that is not a comment.
struct Tag {
  std::size_t begin = 0, end = 0;  // Of the text.
  std::string_view name;
  bool closes = false, empty = false;
};

constexpr std::string_view kBlanks = " \t\r\n";

// The end of the tag that begins at `begin`; quoted values may hold a '>'. npos: the text ends in it.
std::size_t tag_end(std::string_view text, std::size_t begin) {
  char quote = 0;
  for (std::size_t at = begin + 1; at < text.size(); ++at) {
    const char letter = text[at];
    if (quote != 0) {
      if (letter == quote) quote = 0;
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '>') {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// The next tag from `at` on, comments, "<?…?>" and "<!…>" passed over; nothing at the end of what is whole.
std::optional<Tag> next_tag(std::string_view text, std::size_t at) {
  while ((at = text.find('<', at)) != std::string_view::npos) {
    const bool comment = text.substr(at).starts_with("<!--");
    const std::size_t comment_end = comment ? text.find("-->", at + 4) : 0;
    const std::size_t end = !comment                                ? tag_end(text, at)
                            : comment_end == std::string_view::npos ? comment_end
                                                                    : comment_end + 3;
    if (end == std::string_view::npos) return std::nullopt;
    if (text[at + 1] == '!' || text[at + 1] == '?') {
      at = end;
      continue;
    }
    Tag tag{at, end, {}, text[at + 1] == '/', text[end - 2] == '/'};
    const std::size_t name = at + (tag.closes ? 2 : 1);
    tag.name = text.substr(name, text.find_first_of(" \t\r\n/>", name) - name);
    return tag;
  }
  return std::nullopt;
}

std::int32_t first_entity_line(std::string_view text, const Lines& lines) {
  for (std::optional<Tag> tag = next_tag(text, 0); tag; tag = next_tag(text, tag->end)) {
    const std::size_t at = text.substr(tag->begin, tag->end - tag->begin).find('&');
    if (at != std::string_view::npos) return lines.of(tag->begin + at);
  }
  return 0;
}

// What stands between tags, where none of the files read here has anything: what is left of a tag whose
// beginning is lost, or a terminal's colours.
std::int32_t first_text_line(const pugi::xml_node& node, const Lines& lines) {
  for (const pugi::xml_node child : node.children()) {
    if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata)
      return lines.of(static_cast<std::size_t>(std::max<std::ptrdiff_t>(child.offset_debug(), 0)));
    if (const std::int32_t line = first_text_line(child, lines); line > 0) return line;
  }
  return 0;
}

// What is wrong in the structure of a text that pugixml refuses; empty: nothing that tags show.
std::string describe_fault(std::string_view text, const Lines& lines) {
  std::vector<Tag> open;
  for (std::optional<Tag> tag = next_tag(text, 0); tag; tag = next_tag(text, tag->end)) {
    if (tag->closes && open.empty())
      return fmt::format("line {}: </{}> closes nothing", lines.of(tag->begin), tag->name);
    if (tag->closes && open.back().name != tag->name)
      return fmt::format("line {}: </{}> stands where </{}> must, which closes line {}", lines.of(tag->begin),
                         tag->name, open.back().name, lines.of(open.back().begin));
    if (tag->closes)
      open.pop_back();
    else if (!tag->empty)
      open.push_back(*tag);
  }
  if (open.empty()) return "";
  return fmt::format(
      "the text ends in line {} although <{}> of line {} is not closed: it was cut, or </{}> is missing",
      lines.of(text.find_last_not_of(kBlanks)), open.back().name, lines.of(open.back().begin),
      open.back().name);
}

XmlElement convert(const pugi::xml_node& node, const Lines& lines, std::string_view file,
                   std::int32_t depth) {
  XmlElement element;
  element.name = node.name();
  element.line = lines.of(static_cast<std::size_t>(std::max<std::ptrdiff_t>(node.offset_debug(), 0)));
  if (depth > kMaxDepth)
    fail(ErrorKind::kInput, "{}: line {}: <{}> is nested deeper than {}; no machine's tree is", file,
         element.line, element.name, kMaxDepth);
  for (const pugi::xml_attribute attribute : node.attributes())
    element.attributes.push_back({attribute.name(), attribute.value()});
  for (const pugi::xml_node child : node.children())
    if (child.type() == pugi::node_element)
      element.children.push_back(convert(child, lines, file, depth + 1));
  return element;
}

void append(const XmlElement& element, pugi::xml_node parent) {
  pugi::xml_node node = parent.append_child(element.name.c_str());
  for (const XmlAttribute& attribute : element.attributes)
    node.append_attribute(attribute.name.c_str()).set_value(attribute.value.c_str());
  for (const XmlElement& child : element.children) append(child, node);
}

}  // namespace

const std::string* XmlElement::find(std::string_view attribute) const {
  const auto found = std::ranges::find(attributes, attribute, &XmlAttribute::name);
  return found == attributes.end() ? nullptr : &found->value;
}

XmlFile read_xml(std::string_view text, std::string_view file) {
  const Lines lines(text);
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_declaration, pugi::encoding_utf8);
  if (!result) {
    const std::string fault = describe_fault(text, lines);
    if (!fault.empty()) fail(ErrorKind::kInput, "{}: not well-formed XML: {}", file, fault);
    fail(ErrorKind::kInput, "{}: line {}: not well-formed XML: {}", file,
         lines.of(static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0))),
         result.description());
  }
  XmlFile read;
  const pugi::xml_node root = document.document_element();
  for (const pugi::xml_node node : document.children()) {
    if (node.type() == pugi::node_declaration) read.has_prolog = true;
    if (node.type() == pugi::node_element && node != root)
      fail(ErrorKind::kInput, "{}: line {}: a second root element <{}>; put each into a file of its own",
           file, lines.of(static_cast<std::size_t>(node.offset_debug())), node.name());
  }
  read.root = convert(root, lines, file, 1);
  read.entity_line = first_entity_line(text, lines);
  read.text_line = first_text_line(root, lines);
  return read;
}

std::optional<std::int64_t> parse_xml_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal) text.remove_prefix(2);
  if (text.starts_with('-')) return std::nullopt;
  std::int64_t value = 0;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

std::string write_xml(const XmlElement& root) {
  pugi::xml_document document;
  append(root, document);
  std::ostringstream out;
  document.save(out, "  ", pugi::format_indent | pugi::format_no_declaration, pugi::encoding_utf8);
  std::string text = out.str();
  // pugixml puts a blank before "/>", the tools whose files these are do not.
  std::string tight;
  tight.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at)
    if (!(text[at] == ' ' && text.compare(at, 4, " />\n") == 0)) tight += text[at];
  return tight;
}

std::optional<XmlCut> find_cut(std::string_view text) {
  const Lines lines(text);
  XmlCut cut;
  std::size_t whole = 0;
  for (std::optional<Tag> tag = next_tag(text, 0); tag; tag = next_tag(text, tag->end)) {
    if (tag->closes && (cut.open.empty() || cut.open.back().name != tag->name)) return std::nullopt;
    if (tag->closes)
      cut.open.pop_back();
    else if (!tag->empty)
      cut.open.push_back({std::string(tag->name), lines.of(tag->begin), {}, {}});
    whole = tag->end;
  }
  if (cut.open.empty()) return std::nullopt;
  cut.line = lines.of(text.find_last_not_of(kBlanks));
  cut.closed = text.substr(0, whole);
  for (auto open = cut.open.rbegin(); open != cut.open.rend(); ++open) cut.closed += "</" + open->name + ">";
  return cut;
}

}  // namespace orrery
