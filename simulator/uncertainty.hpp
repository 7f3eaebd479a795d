#pragma once
// How far a predicted step time may be off, from how far the costs it is made of may be off.
//
// Two kinds of error, never mixed. *Systematic*: one factor for all costs of a family (all matmuls of a GPU
// are faster or slower than believed together), log-normal, independent between families. A part that is
// independent per cost (per kernel shape, per transfer) averages out in a step of many and is taken by the
// share of each. *Launch noise*: independent per launch; it costs time only where ranks wait for the slowest.

#include <array>
#include <cstdint>
#include <string_view>

#include "model/timeline.hpp"
#include "simulator/job.hpp"

namespace orrery {

// Transfers have two parts with errors of their own: what each takes at least, and what grows with its bytes.
enum class CostFamily : std::uint8_t {
  kMatmul,
  kAttention,
  kMemory,
  kNodeLatency,
  kNodeBandwidth,
  kNetworkLatency,
  kNetworkBandwidth,
  kLaunch
};
inline constexpr int kCostFamilyCount = 8;
std::string_view to_string(CostFamily family);  // "matmuls", "transfers between nodes", …

template <class T>
using ByFamily = std::array<T, kCostFamilyCount>;

// Standard deviations of ln(measured / believed).
struct CostUncertainty {
  ByFamily<double> systematic{};
  ByFamily<double> independent{};
  double launch_noise = 0;
};
CostUncertainty cost_uncertainty(const Profile& profile);

struct UncertaintyOptions {
  // A job whose steps execute at most this many instructions is run again for each family; a larger one is
  // judged by the time its busiest ranks spend in each family.
  std::int64_t max_instructions = 50'000;
};

struct StepInterval {
  double low_s = 0, high_s = 0;    // 90 % of the probability lies between them.
  ByFamily<double> sensitivity{};  // By how much ln(step time) moves with one standard deviation.
  double noise_wait_s = 0;         // Expected wait for the slowest of each group, from launch noise.
  bool run_again = false;          // Sensitivities come from runs, not from shares.
};

// ln(step time) moves by Σ sensitivity · z with independent standard normal z per family, to first order; so
// its spread is the root of the sum of squares, and no draws are needed: one run per family with its costs
// one standard deviation up says what each contributes, overlap and bubbles included. By shares: the part of
// the busiest ranks' busy time (compute and exposed transfers), as if bubbles scaled with it.
//
// Noise: a group of n ranks that computed launches of t₁ … t_k since it last met waits for the slowest,
// E[max of n standard normals] · noise · √(Σ t²) in the mean; counted at tensor- and sequence-parallel
// collectives and once per step over all ranks. It only ever adds, so it shifts both ends up.
//
// REQUIRES: `timeline` is what run_fast says of `job`, and `job`'s Program is laid out on `cluster`.
StepInterval step_interval(const Job& job, const Cluster& cluster, const Profile& profile,
                           const Timeline& timeline, const UncertaintyOptions& options = {});

// Mean of the largest of n independent standard normals: 1.42 at 8, 3.25 at 1,024.
double expected_maximum(std::int64_t n);

}  // namespace orrery
