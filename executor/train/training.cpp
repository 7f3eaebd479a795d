#include "executor/train/training.hpp"

#include "base/error.hpp"

namespace orrery {

Training::Training(const Graph& graph, const TrainingSettings& settings)
    : graph_(graph),
      settings_(settings),
      tokens_(settings.data, settings.token_bytes),
      batches_(tokens_, settings.shape, settings.seed, 0, settings.steps) {
  const std::int64_t largest = tokens_.largest();
  if (largest >= settings.vocabulary) {
    fail(ErrorKind::kInput, "{}: has token {}; the model's vocabulary ends at {}", settings.data.string(),
         largest, settings.vocabulary - 1);
  }
}

host::RunCallbacks Training::callbacks() {
  host::RunCallbacks callbacks;
  callbacks.inputs = [this](std::int64_t step, std::int32_t microbatch, TensorId input,
                            std::span<std::int64_t> to) {
    // The loss reads the labels, whatever else an input is a token id.
    batches_.fill(step, microbatch, graph_[input].name == "labels", to);
  };
  callbacks.optimizer = [this](std::int64_t step) {
    host::AdamWSettings settings = settings_.optimizer;
    settings.learning_rate = settings_.learning_rate.at(step);
    settings.step = step + 1;
    settings.gradient_scale = static_cast<double>(settings_.shape.microbatch_size) /
                              static_cast<double>(settings_.shape.global_batch);
    return settings;
  };
  callbacks.clip_norm = settings_.clip_norm;
  return callbacks;
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
