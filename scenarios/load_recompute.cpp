// plan.recompute: a word, a list of tensors, or a mapping that says more.

#include "scenarios/sections.hpp"

namespace orrery {
namespace {

enum class Word : std::uint8_t { kNone, kFull, kSelective, kAuto };

void read_word(const Section& section, std::string_view key, Plan& settings) {
  Word word = Word::kNone;
  section.choice<Word>(
      key, word,
      {{"none", Word::kNone}, {"full", Word::kFull}, {"selective", Word::kSelective}, {"auto", Word::kAuto}});
  switch (word) {
    case Word::kNone: settings.recompute = Recompute::kNone; break;
    case Word::kFull: settings.recompute = Recompute::kFull; break;
    case Word::kAuto: settings.recompute = Recompute::kAuto; break;
    case Word::kSelective:  // Korthikanti et al. 2022, section 5.
      settings.recompute = Recompute::kTensors;
      settings.recompute_tensors = {"core_attention"};
      break;
  }
}

// Which names the model has is known once its graph is there.
void read_what(const Section& section, std::string_view key, Plan& settings) {
  if (section.node(key)->kind != YamlNode::Kind::kList) return read_word(section, key, settings);
  settings.recompute = Recompute::kTensors;
  for (const YamlNode* item : section.items(key)) {
    if (item->kind == YamlNode::Kind::kScalar) {
      settings.recompute_tensors.push_back(item->text);
    } else {
      section.faults().add(*item, section.path(key),
                           "is " + describe(*item) + "; expected a tensor's name, e.g. norm1");
    }
  }
  if (section.node(key)->children.empty()) section.fault(key, "is an empty list; expected names, or none");
}

}  // namespace

void read_recompute(const Section& plan, Plan& settings) {
  const YamlNode* node = plan.node("recompute");
  if (node == nullptr) return;
  if (node->kind != YamlNode::Kind::kMap) return read_what(plan, "recompute", settings);
  const Section section(*node, plan.path("recompute"), "recompute", plan.faults());
  if (!section.require("what", "none, full, selective, auto or a list of tensors")) return;
  read_what(section, "what", settings);
  section.integer("layers", settings.recompute_layers, 1, 100'000);
  section.bytes("memory", settings.recompute_memory, 1, std::int64_t{1} << 50);
  if (section.has("memory") && settings.recompute != Recompute::kAuto) {
    section.fault("memory", "is for what: auto alone; leave it out, or choose auto");
  }
  if (section.has("layers") && settings.recompute == Recompute::kAuto) {
    section.fault("layers", "is not for what: auto, which chooses for all layers; leave it out");
  }
}

}  // namespace orrery
