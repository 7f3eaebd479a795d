#pragma once
// An XML text as a plain tree in which each element knows its line, so that whoever reads a machine's file
// can name the place of what is wrong. The texts are those that people paste: comments, CRLF, and cut ends.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct XmlAttribute {
  std::string name, value;
};

struct XmlElement {
  std::string name;
  std::int32_t line = 0;  // From 1.
  std::vector<XmlAttribute> attributes;
  std::vector<XmlElement> children;

  const std::string* find(std::string_view attribute) const;  // nullptr: it has none of that name.
};

struct XmlFile {
  XmlElement root;
  bool has_prolog = false;       // "<?xml …?>"
  std::int32_t entity_line = 0;  // Of the first "&…;" outside comments; 0: there is none.
  std::int32_t text_line = 0;    // Of the first text between tags; 0: there is none.
};

// THROWS Error(kInput) naming the line, and the element that is not closed, for what is not well formed, has
// no or several roots, or is nested deeper than 256.
XmlFile read_xml(std::string_view text, std::string_view file);

// Decimal, or hexadecimal behind "0x", both with a sign; nothing for anything else.
std::optional<std::int64_t> parse_xml_integer(std::string_view text);

// Without prolog, two blanks per level.
std::string write_xml(const XmlElement& root);

// A text that ends before its elements are closed.
struct XmlCut {
  std::int32_t line = 0;         // The last one.
  std::vector<XmlElement> open;  // Outermost first: name and line of what is not closed.
  std::string closed;            // The text up to its last whole tag, with the missing ends added.
};
// Nothing when all elements are closed, or one is closed by another's end.
std::optional<XmlCut> find_cut(std::string_view text);

}  // namespace orrery
