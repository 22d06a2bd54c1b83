#include "llmc/control/lost_file.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <ctime>

#include "llmc/base/file.h"
#include "llmc/base/json.h"

namespace llmc {

namespace {

double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

Json json_of(const LoggedCall& call, CallClock::time_point now) {
  const auto age = [&](CallClock::time_point time) {
    return Json(rounded(std::chrono::duration<double>(now - time).count()));
  };
  Json json = {{"sequence", call.sequence},
               {"group", call.group->name},
               {"members", Json(std::vector<std::int64_t>(call.group->members.begin(),
                                                          call.group->members.end()))},
               {"kind", kind_name(call.call.kind)},
               {"number", call.call.number},
               {"count", call.call.count},
               {"dtype", element_name(call.call.element)},
               {"bytes", call.bytes()},
               {"step", call.step},
               {"operation", call.operation},
               {"entered", age(call.entered)},
               {"left", call.left ? age(*call.left) : Json()}};
  if (call.call.kind == CommKind::broadcast) json["root"] = call.call.root;
  if (call.peer >= 0) json["peer"] = call.peer;
  return json;
}

}  // namespace

std::filesystem::path write_lost_file(const std::filesystem::path& out, const LostReport& report) {
  const auto now = CallClock::now();
  Json calls = Json::array();
  for (const LoggedCall& call : report.calls) calls.push_back(json_of(call, now));
  const Json json = {{"rank", report.rank},
                     {"ranks", report.ranks},
                     {"host", report.own.host},
                     {"pid", static_cast<std::int64_t>(::getpid())},
                     {"time", static_cast<std::int64_t>(std::time(nullptr))},
                     {"reason", report.reason},
                     {"step", report.own.step},
                     {"operation", report.own.operation},
                     {"is_in_call", report.own.is_in_call},
                     {"calls", calls},
                     {"backtrace", Json(report.backtrace)}};
  const std::filesystem::path folder = out / kLostFolder;
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / (std::to_string(report.rank) + ".json");
  write_file(path, json.dump() + "\n");
  return path;
}

}  // namespace llmc
