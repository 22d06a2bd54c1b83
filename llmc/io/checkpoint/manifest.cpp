#include "llmc/io/checkpoint/manifest.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

namespace {

constexpr const char* kManifestFormat = "llmc checkpoint";
constexpr std::int64_t kManifestVersion = 1;
constexpr std::int64_t kManifestVersionOfViews = 2;

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return "step_" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
}

namespace manifest_detail {

namespace {

// JSON has no infinity and no NaN: they are written as {"number": "inf"}, "-inf" or "nan".
Json scalar_to_json(const Scalar& scalar) {
  if (scalar.is_number() && !scalar.is_integer()) {
    const double value = scalar.number("");
    if (std::isnan(value)) return {{"number", "nan"}};
    if (std::isinf(value)) return {{"number", value > 0 ? "inf" : "-inf"}};
  }
  return scalar_json(scalar);
}

Scalar scalar_from_json(const Json& json, const std::string& what) {
  if (!json.is_object()) return json_scalar(json, what);
  if (json == Json{{"number", "nan"}}) return std::numeric_limits<double>::quiet_NaN();
  if (json == Json{{"number", "inf"}}) return std::numeric_limits<double>::infinity();
  if (json == Json{{"number", "-inf"}}) return -std::numeric_limits<double>::infinity();
  fail(what + " is not a number, a string or a boolean");
}

Json slice_to_json(const Slice& slice) {
  Json json = {{"name", slice.name},
               {"shape", slice.shape},
               {"offset", slice.offset},
               {"extent", slice.extent},
               {"range", {slice.begin, slice.end}}};
  if (!slice.view.empty()) json["view"] = slice.view;
  if (!slice.stored_name.empty()) json["stored"] = slice.stored_name;
  return json;
}

// Returns the member `key`. Throws if it is missing.
const Json& member(const Json& object, const char* key, const std::string& what) {
  const Json* value = object.is_object() ? json_member(object, key) : nullptr;
  if (value == nullptr) fail(what + " has no \"" + key + "\"");
  return *value;
}

Slice slice_from_json(const Json& json, std::int64_t version, const std::string& what) {
  Slice slice;
  slice.name = json_text(member(json, "name", what), what + ": the name of a slice");
  const std::string of_tensor = " of " + printable(slice.name);
  slice.shape = json_sizes(member(json, "shape", what), what + ": shape" + of_tensor);
  slice.offset = json_sizes(member(json, "offset", what), what + ": offset" + of_tensor);
  slice.extent = json_sizes(member(json, "extent", what), what + ": extent" + of_tensor);
  const Shape range = json_sizes(member(json, "range", what), what + ": range" + of_tensor);
  if (range.size() != 2) fail(what + ": range" + of_tensor + " is not two numbers");
  slice.begin = range[0];
  slice.end = range[1];
  if (const Json* view = json_member(json, "view")) {
    require(version >= kManifestVersionOfViews, what + ": a slice" + of_tensor +
                                                    " has a view, which version " +
                                                    std::to_string(version) + " does not have");
    slice.view = json_sizes(*view, what + ": view" + of_tensor);
    require(!slice.view.empty(), what + ": view" + of_tensor + " is empty");
  }
  if (const Json* stored = json_member(json, "stored")) {
    slice.stored_name = json_text(*stored, what + ": stored name of a slice" + of_tensor);
  }
  return slice;
}

ManifestFile file_from_json(const Json& json, std::int64_t version, const std::string& what) {
  ManifestFile file;
  file.name = json_text(member(json, "name", what), what + ": a file's name");
  if (!is_plain_file_name(file.name)) fail(what + ": invalid file name " + printable(file.name));
  file.bytes = json_size(member(json, "bytes", what), what + ": bytes of " + file.name);
  file.checksum = json_text(member(json, "xxh64", what), what + ": xxh64 of " + file.name);
  if (const Json* slices = json_member(json, "slices")) {
    for (const Json& slice : *slices) {
      file.slices.push_back(slice_from_json(slice, version, what));
    }
  }
  return file;
}

}  // namespace

}  // namespace manifest_detail

std::string manifest_text(const Manifest& manifest) {
  std::int64_t version = kManifestVersion;
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    Json json = {{"name", file.name}, {"bytes", file.bytes}, {"xxh64", file.checksum}};
    for (const Slice& slice : file.slices) {
      json["slices"].push_back(manifest_detail::slice_to_json(slice));
      if (!slice.view.empty()) version = kManifestVersionOfViews;
    }
    files.push_back(std::move(json));
  }
  Json state = Json::object();
  for (const auto& [key, value] : manifest.state) {
    state[key] = manifest_detail::scalar_to_json(value);
  }
  Json json = {{"format", kManifestFormat},
               {"version", version},
               {"step", manifest.step},
               {"state", std::move(state)}};
  if (!manifest.history.empty()) json["history"] = history_to_json(manifest.history);
  json["files"] = std::move(files);
  std::string text = json.dump(2);
  text.resize(text.size() - std::string_view("\n}").size());  // the seal closes the object
  return text + manifest_detail::seal(text);
}

Manifest parse_manifest(std::string_view text, const std::string& what) {
  using namespace manifest_detail;
  const std::size_t seal_size = kSealBegin.size() + 16 + kSealEnd.size();
  if (text.size() <= seal_size ||
      seal(text.substr(0, text.size() - seal_size)) != text.substr(text.size() - seal_size)) {
    fail(what + " is damaged or truncated (its checksum differs)");
  }
  const auto json = parse_json(text, what, KeyOrder::as_written);
  const std::string format = json_text(member(json, "format", what), what + ": format");
  if (format != kManifestFormat) fail(what + " has another format: " + printable(format));
  const std::int64_t version = json_size(member(json, "version", what), what + ": version");
  if (version != kManifestVersion && version != kManifestVersionOfViews) {
    fail(what + " has version " + std::to_string(version) + ", but this program reads versions " +
             std::to_string(kManifestVersion) + " and " + std::to_string(kManifestVersionOfViews),
         "read it with the program that wrote it, or with a newer one");
  }
  Manifest manifest;
  manifest.step = json_size(member(json, "step", what), what + ": step");
  const Json& state = member(json, "state", what);
  if (!state.is_object()) fail(what + ": state is not a JSON object");
  for (const auto& [key, value] : state.items()) {
    manifest.state[key] = scalar_from_json(value, what + ": state " + printable(key));
  }
  if (const Json* history = json_member(json, "history")) {
    manifest.history = history_from_json(*history, what);
  }
  for (const Json& file : member(json, "files", what)) {
    manifest.files.push_back(file_from_json(file, version, what));
  }
  return manifest;
}

}  // namespace llmc
