#pragma once
// Profiles as files: what a calibration of one machine found, each figure with where it comes from. A figure
// that a file leaves out stays as it was.

#include <filesystem>
#include <string>
#include <string_view>

#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

inline constexpr int kProfileFileVersion = 1;

// JSON that read_profile_json reads back to the same figures, measured kernels and fits, for a device of that
// name. The parts of a Profile that describe the inside of a GPU's kernels (tiles, NCCL's corrections) aren't
// in it: they stay those of the device's own Profile.
std::string profile_json(const Profile& profile, const GpuType& device);

// Puts what the text says into `profile`, and its origin into the provenance.
// THROWS Error(kInput) "place: field: …": not such a file, another version, a Profile of another device, a
// figure that can't be, a kernel or a fit that stands there twice.
void read_profile_json(std::string_view text, std::string_view place, const GpuType& device,
                       Profile& profile);

// The same of a file. THROWS also when it can't be read.
void read_profile_file(const std::filesystem::path& file, const GpuType& device, Profile& profile);

}  // namespace orrery
