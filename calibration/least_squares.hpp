#pragma once
// Robust least squares for a handful of positive parameters.

#include <functional>
#include <vector>

namespace orrery {

// Residuals of all measurements at these parameters, in a fixed order.
using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;

struct FitOptions {
  int iterations = 60;
  // Beyond this a residual counts linearly (Huber), so that single odd measurements don't decide.
  double robust_from = 0.15;
};

// Levenberg and Marquardt's method over the parameters' logarithms, which keeps them positive. The
// derivatives are differences over 1 %, wide enough for models that jump where a library would change its
// kernel. The best parameters found, never worse than `start`. REQUIRES: every start is positive.
std::vector<double> fit_positive(std::vector<double> start, const Residuals& residuals,
                                 const FitOptions& options = {});

}  // namespace orrery
