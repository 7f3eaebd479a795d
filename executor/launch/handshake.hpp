#pragma once
// Ranks that run different programs, builds or libraries, or share a device by mistake, are found before the
// first step: each says what it is, and all compare.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "executor/launch/rendezvous.hpp"

namespace orrery::launch {

struct Identity {
  int rank = 0;
  std::string host;
  std::string
      device;  // What no two ranks of one host may share: "core 4", "GPU-1a2b…". "": not bound to any.
  std::uint64_t plan_hash = 0;
  std::uint64_t program_hash = 0;
  std::string build;                             // build_name().
  std::map<std::string, std::string> libraries;  // Name to version.
};

// Version, and a hash of it, the compiler and the switches that change results or checks: "0.1.0 (build
// 5d3c…)". Two builds of one source with one compiler are the same build, wherever and whenever they were
// made.
std::string build_name();

// Of what the executor itself is linked with: fmt, libc, libstdc++.
std::map<std::string, std::string> own_libraries();

std::string host_name();

std::string to_bytes(const Identity& identity);
Identity identity_from_bytes(std::string_view bytes);  // THROWS Error(kRuntime) where that isn't one.

// One line for each difference, naming the ranks and what they have. What most ranks have is right; where no
// value has more ranks than every other, all are named. Empty: they agree.
std::vector<std::string> check_identities(const std::vector<Identity>& identities);

// Exchanges identities and returns all, by rank.
// THROWS Error(kDisagreement) with all differences, the same on all ranks.
std::vector<Identity> shake_hands(Rendezvous& rendezvous, const Identity& own);

}  // namespace orrery::launch
