#include "llmc/comm/machines.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/bootstrap.h"

namespace llmc {

namespace {

struct RanksOfMachine {
  std::string host, devices = {};
  std::vector<int> ranks = {};
};

// "4 x NVIDIA H100, 2 x NVIDIA A100", or "CPU (AMD EPYC)": each GPU counts once.
std::string devices_text(const std::vector<RankPlace>& places, const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, std::set<std::string>>> devices;
  for (const int rank : ranks) {
    const RankPlace& place = places[static_cast<std::size_t>(rank)];
    const std::string name = place.gpu.empty() ? "CPU (" + place.device + ")" : place.device;
    auto same =
        std::ranges::find_if(devices, [&](const auto& entry) { return entry.first == name; });
    if (same == devices.end()) same = devices.insert(same, {name, {}});
    if (!place.gpu.empty()) same->second.insert(place.gpu);
  }
  std::string text;
  for (const auto& [name, gpus] : devices) {
    text += (text.empty() ? "" : ", ") + (gpus.empty() ? "" : std::to_string(gpus.size()) + " x ") +
            name;
  }
  return text;
}

// In the order of their first ranks.
std::vector<RanksOfMachine> machines_of(const std::vector<RankPlace>& places) {
  std::vector<RanksOfMachine> machines;
  std::map<std::string, std::size_t> index;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const auto [entry, is_new] = index.emplace(places[rank].machine, machines.size());
    if (is_new) machines.push_back({.host = places[rank].host});
    machines[entry->second].ranks.push_back(static_cast<int>(rank));
  }
  for (RanksOfMachine& machine : machines) machine.devices = devices_text(places, machine.ranks);
  return machines;
}

std::string line_of(const RanksOfMachine& machine) {
  return "machine " + machine.host + (machine.ranks.size() == 1 ? ": rank " : ": ranks ") +
         range_text(machine.ranks) + ", " + machine.devices;
}

std::string line_of(const std::vector<RanksOfMachine>& equal) {
  if (equal.size() == 1) return line_of(equal[0]);
  std::vector<std::string> hosts;
  std::vector<int> ranks;
  for (const RanksOfMachine& machine : equal) {
    hosts.push_back(machine.host);
    ranks.insert(ranks.end(), machine.ranks.begin(), machine.ranks.end());
  }
  std::ranges::sort(ranks);
  const std::size_t count = equal[0].ranks.size();
  return std::to_string(equal.size()) + " machines " + host_list(hosts) + ": " +
         std::to_string(count) + (count == 1 ? " rank" : " ranks") + " each (" + range_text(ranks) +
         "), " + equal[0].devices + " each";
}

// A host name around its last number before the first dot; without one, `digits` is empty.
struct HostName {
  std::string prefix, digits = {}, suffix = {};
};

HostName split_host(const std::string& host) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kMaxDigits = 9;  // of an int
  const std::string label = host.substr(0, host.find('.'));
  const std::size_t last = label.find_last_of(kDigits);
  if (last == label.npos) return {.prefix = host};
  const std::size_t before = label.find_last_not_of(kDigits, last);
  const std::size_t begin = std::max(before == label.npos ? 0 : before + 1,
                                     last + 1 < kMaxDigits ? 0 : last + 1 - kMaxDigits);
  return {host.substr(0, begin), host.substr(begin, last + 1 - begin), host.substr(last + 1)};
}

// Adds leading zeros to the numbers of a range_text(), up to `width` digits each.
std::string padded(const std::string& ranges, std::size_t width) {
  std::string text, number;
  for (const char c : ranges + ",") {
    if (c != ',' && c != '-') {
      number += c;
      continue;
    }
    text += std::string(width - std::min(width, number.size()), '0') + number + c;
    number.clear();
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string place_text(const RankPlace& place) {
  return place.host + ", " + place.device + (place.gpu.empty() ? "" : " at " + place.gpu);
}

RankPlace own_place(const std::string& device) {
  return {.machine = machine_text(), .host = host_name(), .device = device};
}

std::string pack_place(const RankPlace& place) {
  return pack_texts({place.machine, place.host, place.gpu, place.device});
}

RankPlace unpack_place(const std::string& packed) {
  const std::vector<std::string> parts = unpack_texts(packed);
  require(parts.size() == 4, "a rank runs another version of this program");
  return {parts[0], parts[1], parts[2], parts[3]};
}

std::string range_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < numbers.size(); i = end) {
    for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
  }
  return text;
}

std::string host_list(const std::vector<std::string>& hosts) {
  struct Group {
    HostName name;  // of the first one
    std::vector<int> numbers = {};
  };
  std::vector<Group> groups;
  for (const std::string& host : hosts) {
    const HostName name = split_host(host);
    const auto fits = [&](const Group& group) {
      return group.name.prefix == name.prefix && group.name.suffix == name.suffix &&
             group.name.digits.size() == name.digits.size();
    };
    auto group = std::ranges::find_if(groups, fits);
    if (group == groups.end()) group = groups.insert(group, Group{.name = name});
    if (!name.digits.empty()) group->numbers.push_back(std::stoi(name.digits));
  }
  std::string text;
  for (Group& group : groups) {
    std::ranges::sort(group.numbers);
    const std::string numbers = padded(range_text(group.numbers), group.name.digits.size());
    text += (text.empty() ? "" : ", ") + group.name.prefix +
            (group.numbers.size() > 1 ? "[" + numbers + "]" : group.name.digits) +
            group.name.suffix;
  }
  return text;
}

std::string machines_text(const std::vector<RankPlace>& places) {
  constexpr std::size_t kMaxLines = 8;
  const std::vector<RanksOfMachine> machines = machines_of(places);
  std::vector<std::vector<RanksOfMachine>> lines;
  for (const RanksOfMachine& machine : machines) {
    const auto is_equal = [&](const std::vector<RanksOfMachine>& line) {
      return machines.size() > kMaxLines && line[0].devices == machine.devices &&
             line[0].ranks.size() == machine.ranks.size();
    };
    auto line = std::ranges::find_if(lines, is_equal);
    if (line == lines.end()) line = lines.insert(line, std::vector<RanksOfMachine>());
    line->push_back(machine);
  }
  std::string text;
  for (const std::vector<RanksOfMachine>& equal : lines) {
    text += (text.empty() ? "" : "\n") + line_of(equal);
  }
  return text;
}

}  // namespace llmc
