#include "simulator/collective_tuning_tables.hpp"

#include <algorithm>

namespace orrery::nccl {

const std::array<std::array<double, 24>, 3> kTreeCorrection{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

namespace {

PerNodes all(double value) { return {value, value, value}; }

// 2.30.7.
TuningTables newest() {
  TuningTables t;
  t.tree = {{6.8, 14, 8.4}, {0.6, 1.25, 4}, {1, 1.9, 4}, {5, 8.5, 14}};
  t.ring = {{6.6, 14, 8.4}, {0.6, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 14}};
  t.collnet_direct = {{}, {0, 0, 3.7}, {0, 0, 3.7}, {0, 0, 31}};
  t.collnet_chain = {{}, {0, 0, 2.8}, {0, 0, 2.8}, {0, 0, 30}};
  t.nvls = {{}, {0, 0, 25}, {}, {0, 0, 18}};
  t.nvls_tree = {{}, {0, 0, 25}, {}, {0, 0, 20.9}};
  t.pat = {{8, 8, 8}, {0, 0, 4}, {0, 0, 4}, {0, 0, 14}};
  t.ll_ceiling = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
  t.ring_ll128 = {all(20), all(20), all(36.7), all(40)};
  t.tree_ll128 = {all(20), all(20), {36.7, 36.7, 29}, {55.6, 31.67, 20}};
  t.tree_most = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
  t.nvls_tree_most = {{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};
  t.nvls_efficiency = {0, 0, 0.85, 0.74};
  return t;
}

// Each line undoes what the named version brought.
TuningTables tables_of(std::int32_t nccl_minor) {
  TuningTables t = newest();
  if (nccl_minor < 30) t.nvls_tree_most[3][2] = 43.8;
  if (nccl_minor < 29) {
    t.ring_ll128[3] = {73.4, 34.6, 73.4};
    t.corrects_nvls_tree = false;
  }
  if (nccl_minor < 28) {
    t.nvls_by_heads = false;
    t.nvls_tree.network[2] = 14;
    t.ring_ll128[3] = t.ring_ll128[2];
  }
  if (nccl_minor < 27) t.ll_ceiling[3] = t.ll_ceiling[2];
  if (nccl_minor < 24) t.pat_share = 0.85;
  if (nccl_minor < 23) {
    t.pat_share = 0;
    t.ll128_share_one_gpu = 0.7;
    t.tree.base[2] = 0;
    t.tree.nvlink[2] = t.tree.pcie[2] = t.tree.network[2] = 28;
  }
  if (nccl_minor < 21) {
    t.ring_ll_share = 0.25;
    t.ring_ll_share_others = 1.0 / 3;
  }
  if (nccl_minor < 19) {  // NVLS was priced by its base alone, and trees with Simple as today's.
    t.tree.nvlink[2] = 4;
    t.tree.pcie[2] = 6;
    t.tree.network[2] = 14;
    t.nvls = {{23, 23, 23}, {}, {}, {0, 0, 18}};
    t.nvls_tree = {{23, 23, 23}, {}, {}, {0, 0, 19}};
    t.ll_ceiling[2] = t.ll_ceiling[3] = t.ll_ceiling[1];
  }
  if (nccl_minor < 18) {
    t.has_nvls = nccl_minor == 17;
    t.has_nvls_tree = false;
    t.tree = {{4.4, 4.4, 0}, {.52, 1.25, 28}, {1, 1.9, 28}, {5, 8.5, 28}};
    t.ring = {{3.6, 10, 8.4}, {.47, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 9.6}};
    t.collnet_direct = {{}, {0, 0, 8}, {0, 0, 8}, {0, 0, 10.7}};
    t.collnet_chain = t.collnet_direct;
  }
  return t;
}

constexpr std::int32_t kNewest = 30;

}  // namespace

const TuningTables& tuning_tables(std::int32_t nccl_minor) {
  static const auto kTables = [] {
    std::array<TuningTables, kNewest + 1> tables;
    for (std::int32_t minor = 0; minor <= kNewest; ++minor)
      tables[static_cast<std::size_t>(minor)] = tables_of(minor);
    return tables;
  }();
  return kTables[static_cast<std::size_t>(std::clamp(nccl_minor, 0, kNewest))];
}

}  // namespace orrery::nccl
