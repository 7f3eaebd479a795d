#pragma once
// Collects a reader's notes. What is said about many places of a file is one note that counts them, not one
// note each: a machine has eight of nearly everything.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"

namespace orrery {

class NoteTally {
 public:
  // "`where`: `what`"; an empty `where` is the file as a whole. Equal `what` of one kind is counted.
  void add(ImportNote::Kind kind, std::int32_t line, std::string_view where, std::string_view what,
           std::string_view remedy = {});

  // In the order of their first places, each at the line of that.
  std::vector<ImportNote> notes() const;

 private:
  struct Entry {
    ImportNote note;  // Its text is `what` alone.
    std::vector<std::string> places;
  };
  std::vector<Entry> entries_;
};

}  // namespace orrery
