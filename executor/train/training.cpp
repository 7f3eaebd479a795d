#include "executor/train/training.hpp"

#include <memory>

#include "base/error.hpp"

namespace orrery {
namespace {

struct Source {
  Source(const TrainingSettings& settings)
      : tokens(settings.data, settings.token_bytes),
        batches(tokens, settings.shape, settings.seed, 0, settings.steps) {}

  TokenFile tokens;
  Batches batches;
};

}  // namespace

host::RunCallbacks training_callbacks(const Graph& graph, const TrainingSettings& settings) {
  const auto source = std::make_shared<Source>(settings);
  host::RunCallbacks callbacks;
  callbacks.inputs = [source, &graph](std::int64_t step, std::int32_t microbatch, TensorId input,
                                      std::span<std::int64_t> to) {
    source->batches.fill(step, microbatch, graph[input].name == "labels", to);
  };
  callbacks.optimizer = [settings](std::int64_t step) {
    host::AdamWSettings of_step = settings.optimizer;
    of_step.learning_rate = settings.learning_rate.at(step);
    of_step.step = step + 1;
    of_step.gradient_scale = static_cast<double>(settings.shape.microbatch_size) /
                             static_cast<double>(settings.shape.global_batch);
    return of_step;
  };
  callbacks.clip_norm = settings.clip_norm;
  return callbacks;
}

void check_data(const TrainingSettings& settings) {
  const TokenFile tokens(settings.data, settings.token_bytes);
  const SampleOrder order(tokens, settings.shape.sequence, settings.seed);
  const std::int64_t largest = tokens.largest();
  if (largest < settings.vocabulary) return;
  fail(ErrorKind::kInput, "{}: has token {}; the model's vocabulary ends at {}", settings.data.string(),
       largest, settings.vocabulary - 1);
}

std::filesystem::path default_corpus() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path corpus = program.parent_path() / "orrery-corpus.txt";
  if (error || !std::filesystem::exists(corpus)) {
    fail(ErrorKind::kInput, "{}: isn't there; give a text of your own: training.data in the scenario",
         corpus.string());
  }
  return corpus;
}

}  // namespace orrery
