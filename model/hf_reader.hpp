#pragma once
// Parts of parse_hf_config: typed access to the fields of a config.json, the mechanisms that the graph
// can't express, and the families of models that it can.

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/json_fields.hpp"
#include "model/transformer.hpp"

namespace orrery {

// Fields by any of several names (hidden_size, n_embd, d_model); null counts as absent, as it does in
// the transformers library. A wrong type or range throws Error(kInput) naming the field.
class HfReader {
 public:
  using Names = std::initializer_list<const char*>;

  HfReader(const JsonFields& fields, TransformerConfig& config) : fields_(fields), config_(config) {}

  const JsonFields& fields() const { return fields_; }

  // A whole number of at least 1.
  std::int64_t size(Names names) const;  // THROWS when absent.
  std::optional<std::int64_t> optional_size(Names names) const;
  // THROWS when two of the names are there and disagree.
  std::int64_t agreed_size(Names names) const;

  // With a note when the family's default has to stand in.
  std::int64_t size_or(Names names, std::int64_t standard) const;
  double number_or(Names names, double standard) const;
  bool flag_or(Names names, bool standard) const;
  std::string word_or(Names names, std::string_view standard) const;
  // Without one: for fields whose absence says nothing.
  double quiet_number_or(Names names, double standard) const;
  bool quiet_flag_or(Names names, bool standard) const;
  // A list with a number or truth value for each layer, 0 and false for no; empty when it is absent.
  std::vector<bool> layer_flags(const char* name) const;

  void note(std::string text) const { config_.notes.push_back(std::move(text)); }

 private:
  // The first of the names that is there and not null.
  const JsonField* pick(Names names, std::string* name) const;
  const JsonField* pick_or_note(Names names, std::string* name, std::string_view standard) const;

  const JsonFields& fields_;
  TransformerConfig& config_;
};

// Mechanisms that some families' readers understand and others' don't: in a file of these, the fields of a
// mechanism are refused.
enum Reads : unsigned {
  kReadsExperts = 1,
  kReadsLatent = 2,
  kReadsScales = 4,
  kReadsSoftcaps = 8,
  kReadsQkNorm = 16,
  kReadsChunks = 32,
  kReadsClampedGate = 64,
};

// One model_type: how its fields become a TransformerConfig. Hidden size, layers, heads and vocabulary are
// already read when `read` is called; what differs between layers is read after it.
struct HfFamily {
  std::string_view model_type;
  std::string_view architecture;  // For files without model_type.
  bool tied_by_default = false;   // tie_word_embeddings of the library's config class.
  unsigned reads = 0;             // Of Reads.
  std::int64_t window = 0;        // sliding_window where the file says nothing; 0: none.
  std::int64_t global_every = 0;  // Every n-th layer is without window; 0: none is.
  void (*read)(const HfReader& reader, TransformerConfig& config) = nullptr;
};
std::span<const HfFamily> hf_families();
// Null where there is none of that name.
const HfFamily* find_hf_family(std::string_view model_type);

// THROWS Error(kInput) naming every field that asks for something a TransformerConfig can't say, or that the
// family's reader doesn't understand. Fields that look like it but are switched off become notes.
void refuse_unsupported(const HfReader& reader, std::string_view model_type);

// Which layers have a window and which rotate. REQUIRES: layers and max_positions are read.
void read_layer_kinds(const HfReader& reader, const HfFamily& family, TransformerConfig& config);

}  // namespace orrery
