// What `orrery run` trains on and how.

#include "scenarios/sections.hpp"

namespace orrery {

void read_training(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("training");
  if (node == nullptr) return;
  const Section section(*node, "training", "training", file.faults());
  TrainingRequest& training = scenario.training;
  section.file("data", training.data);
  section.choice<std::int64_t>("token_bytes", training.token_bytes, {{"1", 1}, {"2", 2}, {"4", 4}});
  section.integer("steps", training.steps, 1, 100'000'000);
  section.integer("warmup", training.warmup, 0, 1'000'000);
  std::int64_t seed = static_cast<std::int64_t>(training.seed);
  section.integer("seed", seed, 0, std::int64_t{1} << 53);
  training.seed = static_cast<std::uint64_t>(seed);
  section.number("learning_rate", training.learning_rate, 0, 100);
  training.learning_rate_floor = training.learning_rate / 10;
  section.number("learning_rate_floor", training.learning_rate_floor, 0, 100);
  section.integer("learning_rate_warmup", training.learning_rate_warmup, 0, 100'000'000);
  section.choice<std::string>("learning_rate_decay", training.learning_rate_decay,
                              {{"cosine", "cosine"}, {"linear", "linear"}, {"constant", "constant"}});
  section.number("weight_decay", training.weight_decay, 0, 100);
  section.number("beta1", training.beta1, 0, 0.999999);
  section.number("beta2", training.beta2, 0, 0.999999999);
  section.number("epsilon", training.epsilon, 0, 1);
  section.number("clip", training.clip, 0, 1e9);
}

}  // namespace orrery
