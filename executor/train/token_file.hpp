#pragma once
// Tokens of a text, in a file mapped into memory: numbers of one width after each other, without a header, as
// nanoGPT's and Megatron-LM's .bin files are; with one byte a token any file is a text of the 256 bytes.

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace orrery {

class TokenFile {
 public:
  // THROWS Error(kInput) naming the file: it can't be read, it's empty, its length isn't a multiple of the
  // width. REQUIRES: width 1, 2 or 4.
  TokenFile(const std::filesystem::path& file, int width_bytes);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  std::int64_t size() const { return size_; }  // Tokens.
  std::int64_t operator[](std::int64_t index) const;
  const std::filesystem::path& path() const { return path_; }

  // The largest token; reads the whole file.
  std::int64_t largest() const;

 private:
  std::filesystem::path path_;
  int width_bytes_;
  std::int64_t size_ = 0;
  std::size_t bytes_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace orrery
