#include "calibration/least_squares.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery {
namespace {

double weight(double residual, double robust_from) {
  const double size = std::abs(residual);
  return size <= robust_from ? 1 : robust_from / size;
}

double cost(const std::vector<double>& residuals, double robust_from) {
  double sum = 0;
  for (const double r : residuals) {
    const double size = std::abs(r);
    sum += size <= robust_from ? r * r / 2 : robust_from * (size - robust_from / 2);
  }
  return sum;
}

std::vector<double> moved(const std::vector<double>& at, const Eigen::VectorXd& log_step) {
  std::vector<double> result = at;
  for (std::size_t i = 0; i < at.size(); ++i)
    result[i] *= std::exp(std::clamp(log_step[static_cast<Eigen::Index>(i)], -0.5, 0.5));
  return result;
}

// Weighted normal equations at one point: gradient and approximate second derivatives.
struct Normal {
  Eigen::MatrixXd matrix;
  Eigen::VectorXd gradient;
};

Normal normal_equations(const std::vector<double>& at, const std::vector<double>& residuals,
                        const Residuals& model, double robust_from) {
  constexpr double kDifference = 0.01;
  const auto rows = static_cast<Eigen::Index>(residuals.size());
  const auto columns = static_cast<Eigen::Index>(at.size());
  Eigen::MatrixXd slopes(rows, columns);
  Eigen::VectorXd weighted(rows), weights(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const double r = residuals[static_cast<std::size_t>(row)];
    weights[row] = weight(r, robust_from);
    weighted[row] = weights[row] * r;
  }
  for (Eigen::Index column = 0; column < columns; ++column) {
    Eigen::VectorXd step = Eigen::VectorXd::Zero(columns);
    step[column] = kDifference;
    const std::vector<double> above = model(moved(at, step)), below = model(moved(at, -step));
    for (Eigen::Index row = 0; row < rows; ++row) {
      const auto i = static_cast<std::size_t>(row);
      slopes(row, column) = (above[i] - below[i]) / (2 * kDifference);
    }
  }
  return {slopes.transpose() * weights.asDiagonal() * slopes, slopes.transpose() * weighted};
}

}  // namespace

std::vector<double> fit_positive(std::vector<double> start, const Residuals& residuals,
                                 const FitOptions& options) {
  assert(std::ranges::all_of(start, [](double value) { return value > 0; }));
  std::vector<double> best = std::move(start);
  std::vector<double> at_best = residuals(best);
  double best_cost = cost(at_best, options.robust_from);
  double damping = 1e-2;
  for (int i = 0; i < options.iterations && damping < 1e8;) {
    const Normal normal = normal_equations(best, at_best, residuals, options.robust_from);
    bool improved = false;
    for (; !improved && i < options.iterations && damping < 1e8; ++i) {
      Eigen::MatrixXd damped = normal.matrix;
      damped.diagonal() += damping * (normal.matrix.diagonal().array() + 1e-9).matrix();
      const std::vector<double> candidate = moved(best, damped.ldlt().solve(-normal.gradient));
      const std::vector<double> at_candidate = residuals(candidate);
      const double candidate_cost = cost(at_candidate, options.robust_from);
      improved = candidate_cost < best_cost;
      damping = improved ? std::max(damping / 3, 1e-9) : damping * 4;
      if (!improved) continue;
      best = candidate;
      at_best = at_candidate;
      best_cost = candidate_cost;
    }
  }
  return best;
}

}  // namespace orrery
