#include "topology/import/nccl_log_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "topology/import/log_text.hpp"

namespace orrery::nccl_log {
namespace {

using log_text::whole_integer;

// Where a message's prefix begins, where its text does, and what the prefix says.
struct Prefix {
  std::size_t begin = 0, text = 0;
  Message message;
  bool damaged = false;
};

std::size_t word_begin(std::string_view line, std::size_t end) {
  while (end > 0 && line[end - 1] != ' ' && line[end - 1] != '\t') --end;
  return end;
}

std::size_t skip_blanks_back(std::string_view line, std::size_t end) {
  while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t')) --end;
  return end;
}

std::optional<std::int64_t> last_field(std::string_view& word) {
  const std::size_t colon = word.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto value = whole_integer(word.substr(colon + 1));
  if (value) word.remove_suffix(word.size() - colon);
  return value;
}

// host:pid:tid, behind what a launcher glued to it ("[1,0]<stdout>:host:1:2").
bool read_process(std::string_view word, Message& message) {
  const auto tid = last_field(word);
  if (!tid) return false;
  message.tid = *tid;
  const auto pid = last_field(word);
  if (!pid) return false;
  message.pid = *pid;
  const std::size_t tag = word.find_last_of(">|):]");
  if (tag != std::string_view::npos) word.remove_prefix(tag + 1);
  message.host = std::string(word);
  return !word.empty();
}

// Reads the prefix backwards from its words "NCCL INFO": file.cc:123, [0], host:pid:tid.
Prefix read_prefix(std::string_view line, std::size_t marker, std::size_t text, bool warning) {
  Prefix prefix;
  prefix.text = text;
  prefix.message.warning = warning;
  prefix.message.has_prefix = true;
  std::size_t end = skip_blanks_back(line, marker);
  std::size_t begin = word_begin(line, end);
  if (end > begin && line[end - 1] != ']' &&
      line.substr(begin, end - begin).find(".cc:") != std::string_view::npos) {
    end = skip_blanks_back(line, begin);
    begin = word_begin(line, end);
  }
  prefix.begin = begin;
  prefix.damaged = true;
  const std::string_view device = line.substr(begin, end - begin);
  if (device.size() < 3 || device.front() != '[' || device.back() != ']') return prefix;
  const auto number = whole_integer(device.substr(1, device.size() - 2));
  if (!number || *number < -1 || *number > 4096) return prefix;
  prefix.message.device = static_cast<std::int32_t>(*number);
  end = skip_blanks_back(line, begin);
  begin = word_begin(line, end);
  const bool read = read_process(line.substr(begin, end - begin), prefix.message);
  if (end > begin) prefix.begin = begin;
  prefix.damaged = !read;
  return prefix;
}

std::vector<Prefix> prefixes(std::string_view line) {
  std::vector<Prefix> found;
  for (std::size_t at = 0; (at = line.find("NCCL ", at)) != std::string_view::npos; at += 5) {
    for (const std::string_view level : {"INFO", "WARN", "TRACE", "CALL", "ABORT", "VERSION"}) {
      if (!line.substr(at + 5).starts_with(level)) continue;
      std::size_t text = at + 5 + level.size();
      if (text < line.size() && line[text] == ' ') ++text;
      found.push_back(read_prefix(line, at, text, level == "WARN"));
      break;
    }
  }
  return found;
}

// What only NCCL's messages begin with.
bool is_bare_message(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kHeads{
      "NCCL version ",     "RCCL version ",  "=== System : ",
      "Trees [",           "NVLS Head ",     "Pattern ",
      "threadThresholds ", "NET/IB : Using", "Could not find a path for pattern"};
  if (std::ranges::any_of(kHeads, [&](std::string_view head) { return text.starts_with(head); })) return true;
  log_text::Cursor cursor(text);
  if (cursor.skip("Channel ") || cursor.skip("Ring ")) {
    return cursor.integer() && (cursor.rest().starts_with(" :") || cursor.rest().starts_with("/"));
  }
  return cursor.skip("comm 0x") && text.find(" rank ") != std::string_view::npos;
}

// The host of a prefix that another message was glued to without a blank: "11node00" is node00, when other
// lines know that one.
void unglue_host(Message& message, const std::set<std::string>& known) {
  if (known.contains(message.host)) return;
  const std::string* best = nullptr;
  for (const std::string& host : known) {
    if (message.host.ends_with(host) && (best == nullptr || host.size() > best->size())) best = &host;
  }
  if (best != nullptr) message.host = *best;
}

class Splitter {
 public:
  Splitter(std::string_view text, std::vector<ImportNote>& notes)
      : lines_(log_text::lines(text)), notes_(notes) {
    for (const std::string_view line : lines_) {
      const std::vector<Prefix> found = prefixes(log_text::plain(line));
      if (!found.empty() && !found[0].damaged) known_.insert(found[0].message.host);
    }
  }

  std::vector<Message> run() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      split(log_text::plain(lines_[i]), static_cast<std::int32_t>(i) + 1);
    }
    return std::move(result_);
  }

 private:
  void split(const std::string& line, std::int32_t number) {
    const std::vector<Prefix> found = prefixes(line);
    if (found.empty()) {
      bare(line, number);
      return;
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      Message message = found[i].message;
      message.line = number;
      const bool last = i + 1 == found.size();
      const std::size_t end = last ? line.size() : std::max(found[i].text, found[i + 1].begin);
      message.text = line.substr(found[i].text, end - found[i].text);
      message.interrupted = !last;
      if (i > 0) unglue_host(message, known_);
      if (!last) {
        notes_.push_back({ImportNote::Kind::kRepaired,
                          number,
                          "two messages share this line: read apart, and the first may lack its end",
                          {}});
      }
      if (found[i].damaged) {
        notes_.push_back(
            {ImportNote::Kind::kSuspect,
             number,
             "the prefix host:process:thread [device] is damaged: whose message it is isn't known",
             {}});
      }
      result_.push_back(std::move(message));
    }
  }

  void bare(const std::string& line, std::int32_t number) {
    const std::string_view text = log_text::untagged(line);
    if (!is_bare_message(text)) {
      if (text.find("] -> ") != std::string_view::npos && text.find(" via ") != std::string_view::npos) {
        notes_.push_back({ImportNote::Kind::kSuspect, number, "the rest of a torn message: left out", {}});
      }
      return;
    }
    Message message;
    message.line = number;
    message.text = std::string(text);
    if (!text.starts_with("NCCL version") && !text.starts_with("RCCL version") && !said_bare_) {
      said_bare_ = true;
      notes_.push_back({ImportNote::Kind::kAssumed,
                        number,
                        "messages without NCCL's prefix (from here on): taken to be of one communicator",
                        {}});
    }
    result_.push_back(std::move(message));
  }

  std::vector<std::string_view> lines_;
  std::vector<ImportNote>& notes_;
  std::set<std::string> known_;
  std::vector<Message> result_;
  bool said_bare_ = false;
};

}  // namespace

std::vector<Message> messages(std::string_view text, std::vector<ImportNote>& notes) {
  return Splitter(text, notes).run();
}

}  // namespace orrery::nccl_log
