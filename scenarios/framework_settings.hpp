#pragma once
// What the settings files of other frameworks come to before they are understood: one flat list of names and
// values, read by name. What nobody has asked for at the end is what the importer doesn't know.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

// Name and value, as given with --var.
using FrameworkVariables = std::vector<std::pair<std::string, std::string>>;

struct FrameworkSetting {
  std::string name;     // Without leading dashes, '_' as '-', sections joined by dots: "training.seq-len".
  std::string written;  // As the file has it: "--seq-length", "training.seq_len".
  std::string value;    // Text; a variable that nobody sets stands in it as unknown_mark().
  bool bare = false;    // A switch without value.
  bool unsure = false;  // The value is a word of a shell script that may be none.
  int line = 0;         // 0: not known.
  bool used = false;
};

// A stand-in for a value that the file leaves to something else, and back: the names in a text.
std::string unknown_mark(std::string_view name);
std::vector<std::string> unknown_names(std::string_view text);
// The text with ${NAME} in place of the marks, for messages.
std::string show_unknown(std::string_view text);

std::string canonical_name(std::string_view written);

class FrameworkSettings {
 public:
  // `place` stands for the file in messages.
  explicit FrameworkSettings(std::string place) : place_(std::move(place)) {}

  // A later setting of a name takes an earlier one's place, as everywhere; if they differ, a note says so.
  void add(FrameworkSetting setting);
  // Both names mean one thing: what is written as `from` is read as `to` unless that is there too.
  void rename(std::string_view from, std::string_view to);
  // Takes the names of sections off the front of names, the first that fits; `whole` has names that become
  // others as they are.
  void strip(std::span<const std::string_view> sections,
             std::span<const std::pair<std::string_view, std::string_view>> whole);
  void set(std::string_view name, std::string value, std::string_view written);

  const FrameworkSetting* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::span<const FrameworkSetting> all() const { return settings_; }
  const std::string& place() const { return place_; }
  std::vector<std::string>& notes() { return notes_; }  // What reading passed over.
  // "--seq-length"; `name` itself where it isn't there.
  std::string written(std::string_view name) const;

  // The value when the name is there and right. A wrong or unknown one is a fault.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max);
  std::optional<double> number(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> word(std::string_view name);
  bool on(std::string_view name) { return boolean(name).value_or(false); }
  // Marks it as asked for. A name that ends with '*' stands for all that begin so.
  void use(std::string_view name);
  void fault(std::string_view name, std::string_view problem);

  // THROWS Error(kInput) with every fault, and what --var has to give.
  void throw_if_any() const;

 private:
  FrameworkSetting* take(std::string_view name);  // Null when absent; marks it.
  bool known(const FrameworkSetting& setting);    // Notes the variables that are missing.

  std::string place_;
  std::vector<FrameworkSetting> settings_;
  std::vector<std::string> notes_, faults_;
  std::vector<std::pair<std::string, std::string>> missing_;  // Variable, where it is needed.
};

// "lr-*" matches "lr-decay-iters".
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace orrery
