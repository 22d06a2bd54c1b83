#include "llmc/io/data/source_list.h"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/data/token_cache.h"

namespace llmc {

namespace source_list_detail {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

namespace {

// Returns the position of the first `character`, from `from` on, that has no backslash before it;
// npos if there is none.
std::size_t find_plain(std::string_view text, char character, std::size_t from) {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == character) {
      return at;
    }
  }
  return text.npos;
}

// Returns the position of the colon before the weight of a source; npos if it has none.
std::size_t weight_colon(const std::string& item) {
  std::size_t colon = item.npos;
  if (exists(item)) return colon;
  for (std::size_t at = 0; (at = find_plain(item, ':', at)) != item.npos; ++at) colon = at;
  return colon;
}

// Returns the name of a source, whose weight begins at `colon`.
std::string name_of_source(const std::string& item, std::size_t colon) {
  return exists(item) ? item : unescape(std::string_view(item).substr(0, colon));
}

// Returns a decimal number in units of 10^-9. Throws an error that names the flag and the text
// unless the number is above 0 and has at most 9 digits on each side of the point.
std::int64_t billionths(const std::string& text, const std::string& flag) {
  constexpr std::size_t kDigits = 9;
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string integer_part = text.substr(0, point);
  std::string fraction = text.substr(std::min(point + 1, text.size()));
  const bool digits = (integer_part + fraction).find_first_not_of("0123456789") == text.npos;
  if (!digits || integer_part.empty() || integer_part.size() > kDigits ||
      fraction.size() > kDigits || (integer_part + fraction).find_first_not_of('0') == text.npos) {
    fail_usage(
        flag + ": '" + text + "' is not a weight",
        "give a number above 0 with up to 9 digits on either side of the point, such as 0.7; "
        "write a colon in a name as \\:");
  }
  fraction.resize(kDigits, '0');
  return std::stoll(integer_part + fraction);
}

// Returns whether a name is a glob pattern.
bool is_pattern(const std::string& name) {
  return name.find_first_of("*?[") != name.npos;
}

}  // namespace

std::vector<std::string> split_list(const std::string& text) {
  if (exists(text)) return {text};
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(find_plain(text, ',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (text[at] == '\\' && (next == ',' || next == ':' || next == '\\')) ++at;
    out += text[at];
  }
  return out;
}

}  // namespace source_list_detail

SourceList parse_source_list(const std::string& text, const std::string& flag,
                             bool weights_allowed) {
  using namespace source_list_detail;
  SourceList list;
  std::vector<std::int64_t> weights;
  for (const std::string& item : split_list(text)) {
    const std::size_t colon = weight_colon(item);
    const std::string name = name_of_source(item, colon);
    if (name.empty()) {
      fail_usage(flag + " '" + text + "' has a source without a name",
                 "write NAME[:WEIGHT][,NAME[:WEIGHT]...]");
    }
    list.names.push_back(name);
    if (colon != item.npos) weights.push_back(billionths(item.substr(colon + 1), flag));
  }
  if (weights.empty()) return list;
  if (!weights_allowed) {
    fail_usage(flag + " takes no weights: each of its sources is evaluated completely",
               "write NAME[,NAME...]");
  }
  if (weights.size() != list.names.size()) {
    fail_usage(flag + " '" + text + "' has " + std::to_string(weights.size()) + " weights for " +
                   std::to_string(list.names.size()) + " sources",
               "give every source a weight, or none");
  }
  try {
    list.weights.emplace(std::move(weights));
  } catch (const Error& error) {
    fail_usage(flag + " has " + error.what());
  }
  return list;
}

std::string replace_source_names(const std::string& text,
                                 const std::function<std::string(const std::string&)>& replace) {
  using namespace source_list_detail;
  std::string out;
  for (const std::string& item : split_list(text)) {
    const std::size_t colon = weight_colon(item);
    const std::string name = name_of_source(item, colon);
    const std::string new_name = replace(name);
    out += out.empty() ? "" : ",";
    out += new_name == name ? item.substr(0, colon) : escape(new_name);
    if (colon != item.npos) out += item.substr(colon);
  }
  return out;
}

std::vector<std::string> files_of_source(const std::string& name, const std::string& flag) {
  using namespace source_list_detail;
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) {
    fail(flag + ": " + name + " is a directory", "give a pattern such as '" + name + "/*.txt'");
  }
  if (exists(name) || !is_pattern(name)) return {name};
  // The first directory that glob() cannot read. Not on the stack: glob() passes no context to its
  // callback.
  thread_local std::pair<std::string, int> unreadable;
  unreadable = {};
  const auto stop_at_unreadable = [](const char* path, int error) {
    if (error == ENOENT) return 0;  // a directory that does not exist contains no match
    unreadable = {path, error};
    return 1;
  };
  glob_t matches{};
  const int status =
      ::glob(name.c_str(), GLOB_NOESCAPE | GLOB_NOSORT, stop_at_unreadable, &matches);
  std::vector<std::string> files(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  std::erase_if(files, [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored) || path.ends_with(kCacheEnding) ||
           is_temporary_name(path);
  });
  if (const auto& [directory, error] = unreadable; error != 0) {
    fail(flag + ": cannot read " + directory + ": " + system_reason(error));
  }
  if (status != 0 && status != GLOB_NOMATCH) {
    fail(flag + ": the files of " + name + " cannot be listed");
  }
  if (files.empty()) fail(flag + ": no file matches " + name);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace llmc
