#include "calibration/host_fit.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Standard deviation of the logarithms about the median's, from the middle half: two quartiles of a normal
// distribution lie 1.349 deviations apart, and a sample that the system interrupted moves neither.
double spread(std::vector<double> values) {
  if (values.size() < 4) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t quarter = values.size() / 4;
  return std::log(values[values.size() - 1 - quarter] / values[quarter]) / 1.349;
}

// One point: what the time may grow with, and the time.
struct Point {
  std::array<double, 3> terms;  // 1, flops, bytes.
  double seconds = 0;
};
using Coefficients = std::array<double, 3>;

double value(const Coefficients& coefficients, const Point& point) {
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) sum += coefficients[i] * point.terms[i];
  return sum;
}

// Relative least squares over the terms in `mask`; false: singular or some coefficient isn't positive.
bool solve(const std::vector<Point>& points, unsigned mask, Coefficients& result) {
  std::vector<std::size_t> terms;
  for (std::size_t i = 0; i < 3; ++i) {
    if (mask >> i & 1u) terms.push_back(i);
  }
  Eigen::MatrixXd a(std::ssize(points), std::ssize(terms));
  for (std::size_t p = 0; p < points.size(); ++p) {
    for (std::size_t t = 0; t < terms.size(); ++t) {
      a(static_cast<Eigen::Index>(p), static_cast<Eigen::Index>(t)) =
          points[p].terms[terms[t]] / points[p].seconds;
    }
  }
  // Columns of one size, so that rank is judged fairly.
  Eigen::VectorXd scale = a.colwise().norm();
  if ((scale.array() <= 0).any()) return false;
  const Eigen::MatrixXd scaled = a * scale.cwiseInverse().asDiagonal();
  const auto decomposition = scaled.colPivHouseholderQr();
  if (decomposition.rank() < std::ssize(terms)) return false;
  const Eigen::VectorXd solved =
      decomposition.solve(Eigen::VectorXd::Ones(std::ssize(points))).cwiseQuotient(scale);
  if ((solved.array() <= 0).any()) return false;
  result = {};
  for (std::size_t t = 0; t < terms.size(); ++t) result[terms[t]] = solved(static_cast<Eigen::Index>(t));
  return true;
}

// The best of all subsets of terms whose coefficients are positive: with three terms that is non-negative
// least squares.
Coefficients fit(const std::vector<Point>& points) {
  Coefficients best = {};
  double least = INFINITY;
  for (unsigned mask = 1; mask < 8; ++mask) {
    Coefficients candidate;
    if (!solve(points, mask, candidate)) continue;
    double error = 0;
    for (const Point& point : points) error += std::pow(value(candidate, point) / point.seconds - 1, 2);
    if (error < least * (1 - 1e-9)) {
      least = error;
      best = candidate;
    }
  }
  return best;
}

// Each point against the fit of the others.
std::vector<double> held_out(const std::vector<Point>& points) {
  std::vector<double> ratios;
  for (std::size_t p = 0; p < points.size(); ++p) {
    std::vector<Point> others = points;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(p));
    const double predicted = value(fit(others), points[p]);
    if (predicted > 0) ratios.push_back(predicted / points[p].seconds);
  }
  return ratios;
}

FitError error_of(const std::string& what, const std::vector<double>& ratios) {
  std::vector<double> errors;
  for (const double ratio : ratios) errors.push_back(std::abs(ratio - 1));
  return {what, std::ssize(ratios), errors.empty() ? 0 : median(errors)};
}

double sigma_of(const std::vector<double>& ratios) {
  double sum = 0;
  for (const double ratio : ratios) sum += std::pow(std::log(ratio), 2);
  return ratios.empty() ? 0 : std::sqrt(sum / static_cast<double>(ratios.size()));
}

constexpr std::size_t kLeastShapes = 3;

class HostFitter {
 public:
  explicit HostFitter(const HostMeasurements& measurements) : measured_(measurements) {}

  HostFit run() {
    Profile& profile = result_.profile;
    profile.name = "host";
    profile.communication_on_core = true;
    profile.instruction_s = measured_.instruction_s;
    profile.cores_together = measured_.cores_together;
    kernels();
    transfers();
    note(fmt::format("instruction {:.4g}", profile.instruction_s));
    note(fmt::format("cores_together {:.4g}", profile.cores_together));
    note("communication_on_core true");
    std::stable_sort(result_.errors.begin(), result_.errors.end(),
                     [](const FitError& a, const FitError& b) { return a.median > b.median; });
    return std::move(result_);
  }

 private:
  void note(const std::string& line) {
    result_.profile.provenance.push_back(line + ": measured on " + measured_.machine);
  }

  void kernels() {
    std::map<std::string, std::vector<Point>> of_label, of_kind;
    std::map<std::string, std::string> kind_of;
    for (const TimedKernel& timed : measured_.kernels) {
      const Kernel& kernel = timed.kernel;
      MeasuredKernel& entry = result_.profile.kernels.emplace_back();
      entry.label = timed.label;
      entry.kind = to_string(kernel.kind);
      entry.dtype = kernel.dtype;
      entry.m = kernel.m;
      entry.n = kernel.n;
      entry.k = kernel.k;
      entry.batch = kernel.batch;
      entry.flops = kernel.flops;
      entry.read_bytes = kernel.read_bytes;
      entry.written_bytes = kernel.written_bytes;
      entry.seconds = median(timed.seconds);
      entry.sigma = spread(timed.seconds);
      entry.samples = std::ssize(timed.seconds);
      entry.source = measured_.machine;
      const double bytes = static_cast<double>(kernel.read_bytes) + static_cast<double>(kernel.written_bytes);
      const Point point = {{1, kernel.flops, bytes}, entry.seconds};
      of_label[timed.label].push_back(point);
      of_kind[entry.kind].push_back(point);
      kind_of[timed.label] = entry.kind;
    }
    for (const auto& [label, points] : of_label) {
      if (points.size() >= kLeastShapes) add_fit(kind_of[label], label, points);
    }
    for (const auto& [kind, points] : of_kind) add_fit(kind, "", points);
  }

  void add_fit(const std::string& kind, const std::string& label, const std::vector<Point>& points) {
    const Coefficients coefficients = fit(points);
    KernelFit& entry = result_.profile.kernel_fits.emplace_back();
    entry.kind = kind;
    entry.label = label;
    entry.base_s = coefficients[0];
    entry.flops_per_s = coefficients[1] > 0 ? 1 / coefficients[1] : 0;
    entry.bytes_per_s = coefficients[2] > 0 ? 1 / coefficients[2] : 0;
    const std::vector<double> ratios = held_out(points);
    entry.sigma = sigma_of(ratios);
    entry.samples = std::ssize(points);
    entry.source = measured_.machine;
    if (!label.empty()) result_.errors.push_back(error_of(label, ratios));
  }

  void transfers() {
    std::map<std::pair<std::string, std::int32_t>, std::vector<Point>> all;
    for (const TimedTransfer& timed : measured_.transfers) {
      all[{timed.kind, timed.ranks}].push_back({{1, 0, timed.bytes}, median(timed.seconds)});
    }
    for (const auto& [key, points] : all) {
      const auto& [kind, ranks] = key;
      const Coefficients coefficients = fit(points);
      const std::vector<double> ratios = held_out(points);
      if (kind == "message") {
        result_.profile.message_fit = MessageFit{coefficients[0], coefficients[2], sigma_of(ratios),
                                                 std::ssize(points), measured_.machine};
      } else {
        result_.profile.collective_fits.push_back({kind, ranks, coefficients[0], coefficients[2],
                                                   sigma_of(ratios), std::ssize(points), measured_.machine});
      }
      result_.errors.push_back(
          error_of(kind == "message" ? kind : fmt::format("{} of {}", kind, ranks), ratios));
    }
  }

  const HostMeasurements& measured_;
  HostFit result_;
};

}  // namespace

HostFit fit_host(const HostMeasurements& measurements) { return HostFitter(measurements).run(); }

}  // namespace orrery
