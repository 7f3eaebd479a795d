# Shared by the scripts beside it: where the tree is, which Debian packages each job needs, how to build.
# Sourced after `set -euo pipefail`; leaves the caller in the root of the tree.
# shellcheck shell=bash disable=SC2034  # The lists are for the callers.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=${JOBS:-$(nproc)}

program_packages=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libtoml11-dev libcli11-dev libboost-dev libsimgrid-dev
  libcsv-dev libeigen3-dev libonnx-dev libprotobuf-dev protobuf-compiler libxxhash-dev libmetis-dev libpugixml-dev
  libhwloc-dev)
test_packages=(catch2 python3 python3-yaml python3-jsonschema)  # Python holds the scenario files against their schema.
benchmark_packages=(libbenchmark-dev)
format_packages=(clang-format-19)
lint_packages=(clang-tidy-19)
fuzz_packages=(clang-19 libclang-rt-19-dev)

say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# The comment at the head of the calling script, as its help.
help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# need_packages NAMES…: installs the ones that are missing. Where none is missing, nothing happens and nobody
# has to be root.
need_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is no Debian system; needed here, by their Debian names: $*"
    return 0
  fi
  local package missing=() as_root=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null) == installed* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "missing ${missing[*]}: run this as root or install sudo"
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  "${as_root[@]}" apt-get update -q >"$log" 2>&1 || say "apt-get update failed; trying with the lists that are here"
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "apt-get could not install ${missing[*]}"
  fi
  rm -f "$log"
}

# build_folder PRESET: where CMakePresets.json puts it.
build_folder() { if [ "$1" = dev ]; then echo "$root/build"; else echo "$root/build-$1"; fi; }

# configure PRESET [-DOPTION=VALUE…]: quiet unless it fails.
configure() {
  local preset=$1 log
  shift
  log=$(mktemp)
  if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "cmake --preset $preset failed"
  fi
  grep -E '^-- (CUDA|Benchmarks):' "$log" >&2 || true
  rm -f "$log"
}

# build PRESET [TARGETS…]
build() {
  local preset=$1 target targets=()
  shift
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build "$(build_folder "$preset")" -j "$jobs" "${targets[@]}" >&2
}
