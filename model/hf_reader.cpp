#include "model/hf_reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/suggest.hpp"

namespace orrery {
namespace {

// check(config) has the same bound; here it can name the field.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

std::int64_t size_of(const JsonFields& fields, const std::string& name, const JsonField& field) {
  if (field.kind != JsonField::Kind::kInteger || field.integer < 1 || field.integer > kLargestSize) {
    fields.wrong(name,
                 fmt::format("expected a whole number from 1 to {}, found {}", kLargestSize, field.shown()));
  }
  return field.integer;
}

}  // namespace

const JsonField* HfReader::pick(Names names, std::string* name) const {
  for (const char* candidate : names) {
    const JsonField* field = fields_.find(candidate);
    if (field == nullptr || field->null()) continue;
    *name = candidate;
    return field;
  }
  return nullptr;
}

const JsonField* HfReader::pick_or_note(Names names, std::string* name, std::string_view standard) const {
  const JsonField* field = pick(names, name);
  if (field == nullptr) note(fmt::format("{} absent: taken as {}", *names.begin(), standard));
  return field;
}

std::optional<std::int64_t> HfReader::optional_size(Names names) const {
  std::string name;
  const JsonField* field = pick(names, &name);
  if (field == nullptr) return std::nullopt;
  return size_of(fields_, name, *field);
}

std::int64_t HfReader::size(Names names) const {
  const std::optional<std::int64_t> value = optional_size(names);
  if (value) return *value;
  std::vector<std::string> known;
  for (const auto& [path, field] : fields_.all()) known.push_back(path);
  const std::string others = fmt::format("{}", fmt::join(names.begin() + 1, names.end(), ", "));
  fail(ErrorKind::kInput, "{}: {} is missing{}; expected a whole number from 1{}", fields_.place(),
       fields_.shown(*names.begin()), others.empty() ? "" : " (also known as " + others + ")",
       did_you_mean(*names.begin(), known));
}

std::int64_t HfReader::agreed_size(Names names) const {
  const std::int64_t value = size(names);
  std::string first;
  pick(names, &first);
  for (const char* name : names) {
    const JsonField* field = fields_.find(name);
    if (field == nullptr || field->null()) continue;
    const std::int64_t other = size_of(fields_, name, *field);
    if (other != value) fields_.wrong(name, fmt::format("{} contradicts {} {}", other, first, value));
  }
  return value;
}

std::int64_t HfReader::size_or(Names names, std::int64_t standard) const {
  std::string name;
  const JsonField* field = pick_or_note(names, &name, fmt::format("{}", standard));
  return field == nullptr ? standard : size_of(fields_, name, *field);
}

double HfReader::number_or(Names names, double standard) const {
  std::string name;
  if (pick(names, &name) == nullptr) pick_or_note(names, &name, fmt::format("{}", standard));
  return quiet_number_or(names, standard);
}

double HfReader::quiet_number_or(Names names, double standard) const {
  std::string name;
  const JsonField* field = pick(names, &name);
  if (field == nullptr) return standard;
  if (!field->number() || !std::isfinite(field->real)) {
    fields_.wrong(name, fmt::format("expected a number, found {}", field->shown()));
  }
  return field->real;
}

bool HfReader::flag_or(Names names, bool standard) const {
  std::string name;
  pick_or_note(names, &name, standard ? "true" : "false");
  return quiet_flag_or(names, standard);
}

bool HfReader::quiet_flag_or(Names names, bool standard) const {
  std::string name;
  const JsonField* field = pick(names, &name);
  if (field == nullptr) return standard;
  if (field->kind != JsonField::Kind::kBool) {
    fields_.wrong(name, fmt::format("expected true or false, found {}", field->shown()));
  }
  return field->boolean;
}

std::vector<bool> HfReader::layer_flags(const char* name) const {
  if (!fields_.present(name)) return {};
  const JsonField& list = *fields_.find(name);
  std::vector<bool> flags;
  for (const JsonField& item : list.items) {
    if (item.kind != JsonField::Kind::kInteger && item.kind != JsonField::Kind::kBool) {
      fields_.wrong(name, fmt::format("expected 0 or 1 for each layer, found {}", item.shown()));
    }
    flags.push_back(item.kind == JsonField::Kind::kBool ? item.boolean : item.integer != 0);
  }
  if (std::ssize(flags) != config_.layers) {
    fields_.wrong(name, fmt::format("expected a list with an entry for each of {} layers, found {}",
                                    config_.layers, flags.size()));
  }
  return flags;
}

std::string HfReader::word_or(Names names, std::string_view standard) const {
  std::string name;
  const JsonField* field = pick_or_note(names, &name, standard);
  if (field == nullptr) return std::string(standard);
  if (field->kind != JsonField::Kind::kString) {
    fields_.wrong(name, fmt::format("expected a word, found {}", field->shown()));
  }
  return field->text;
}

}  // namespace orrery
