// The machines of a run as text: host names, their ranks and their GPUs.
#pragma once

#include <string>
#include <vector>

namespace llmc {

// The place of a rank.
struct RankPlace {
  std::string machine;   // differs for two machines of one host name, see machine_text()
  std::string host;      // host name
  std::string gpu = {};  // PCI bus id; empty without a GPU
  std::string device;    // its name, such as "NVIDIA H100"
};

// "node07, NVIDIA H100 at 0000:81:00.0", or "node07, AMD EPYC" without a GPU.
std::string place_text(const RankPlace& place);

RankPlace own_place(const std::string& device);

// For messages between ranks.
std::string pack_place(const RankPlace& place);
RankPlace unpack_place(const std::string& packed);

// "0-3,8" for ascending numbers.
std::string range_text(const std::vector<int>& numbers);

// "node[00-31,40].cluster, login" for names of hosts, in the order in which a prefix appears first.
// Names that differ only in the last number before the first dot are combined if these numbers have
// equally many digits.
std::string host_list(const std::vector<std::string>& hosts);

// A line per machine, such as "machine node07: ranks 0-3, 4 x NVIDIA H100", in the order of their
// first ranks; `places` has all ranks in their order. If there are more than 8 machines, those with
// equal numbers of ranks and equal devices are combined in one line:
// "64 machines node[00-63]: 8 ranks each (0-511), 8 x NVIDIA H100 each".
std::string machines_text(const std::vector<RankPlace>& places);

}  // namespace llmc
