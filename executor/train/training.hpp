#pragma once
// What a training run is made of beside the Program: text, order of samples, learning rate, optimiser.

#include <cstdint>
#include <filesystem>

#include "executor/runtime/run.hpp"
#include "executor/train/batches.hpp"
#include "executor/train/learning_rate.hpp"

namespace orrery {

struct TrainingSettings {
  std::filesystem::path data;
  int token_bytes = 1;
  std::int64_t vocabulary = 256;  // Of the model: no token may lie beyond.
  BatchShape shape;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;
  LearningRate learning_rate;
  host::AdamWSettings optimizer;  // Learning rate, step and gradient scale are set step by step.
  double clip_norm = 0;
};

// What a process with ranks calls; reads from the file, with a thread that reads ahead. THROWS Error(kInput)
// naming the file: see TokenFile and SampleOrder.
host::RunCallbacks training_callbacks(const Graph& graph, const TrainingSettings& settings);

// Before anything is started. THROWS Error(kInput) as training_callbacks, and for a token beyond the
// vocabulary.
void check_data(const TrainingSettings& settings);

// The text that comes with the program: orrery-corpus.txt beside its executable. THROWS Error(kInput) when it
// isn't there.
std::filesystem::path default_corpus();

}  // namespace orrery
