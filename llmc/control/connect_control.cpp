#include "llmc/control/connect_control.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/random_bits.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/launcher.h"
#include "llmc/comm/tcp_address.h"
#include "llmc/comm/tcp_settings.h"
#include "llmc/control/rank_store.h"
#include "llmc/control/store_client.h"

namespace llmc {

namespace {

constexpr std::chrono::seconds kConnectTime{60};

tcp::Socket listen(bool is_one_machine, std::string& error) {
  const int port = is_variable_set("LLMC_CONTROL_PORT")
                       ? number_from_environment("LLMC_CONTROL_PORT", 1, 65535)
                       : 0;
  tcp::Socket listener = tcp::listen_for_ranks(is_one_machine, port, &error);
  if (!listener.is_open()) {
    error = "rank 0 cannot listen on " +
            (port == 0 ? "a control port" : "LLMC_CONTROL_PORT " + std::to_string(port)) + ": " +
            error;
  }
  return listener;
}

std::vector<std::string> addresses_of(Bootstrap& ranks, const tcp::Socket& listener,
                                      bool is_one_machine) {
  if (is_one_machine) return {tcp::local_address(listener)};
  if (is_variable_set("LLMC_CONTROL_ADDRESS")) return {std::getenv("LLMC_CONTROL_ADDRESS")};
  return tcp::addresses_after({ranks.address()});
}

}  // namespace

void connect_control(Bootstrap& ranks, const ControlSettings& settings,
                     const std::function<void(std::unique_ptr<ControlLink>)>& start) {
  const Places& places = ranks.places();
  const std::vector<std::string> machines = ranks.all_gather(machine_text());
  const bool is_one_machine =
      !is_variable_set("LLMC_CONTROL_ADDRESS") &&
      std::ranges::all_of(machines, [&](const std::string& text) { return text == machines[0]; });
  std::string error;
  tcp::Socket listener;
  std::vector<std::string> offer;
  const std::string key = checksum_text(random_bits()) + checksum_text(random_bits());
  if (places.rank == 0) {
    try {
      listener = listen(is_one_machine, error);
    } catch (const std::exception& wrong) {
      error = wrong.what();
    }
    if (listener.is_open()) {
      offer = {key, std::to_string(tcp::local_port(listener)),
               pack_texts(addresses_of(ranks, listener, is_one_machine))};
    } else {
      offer = {error};
    }
  }
  offer = unpack_texts(ranks.all_gather(pack_texts(offer))[0]);
  if (offer.size() == 1) fail_together(offer[0], "LLMC_CONTROL_PORT sets the port");
  require(offer.size() == 3, "rank 0 has sent something else than its control port");
  error.clear();
  try {
    if (places.rank == 0) {
      start(std::make_unique<RankStore>(std::move(listener), key, places.ranks, settings));
    } else {
      const bool is_here = machines[static_cast<std::size_t>(places.rank)] == machines[0];
      const std::vector<std::string> addresses =
          tcp::addresses_to_try(unpack_texts(offer[2]), is_here && !is_one_machine);
      start(std::make_unique<StoreClient>(places.rank, places.ranks, addresses,
                                          std::atoi(offer[1].c_str()), offer[0], kConnectTime));
    }
  } catch (const std::exception& wrong) {
    error = wrong.what();
  }
  for (const std::string& text : ranks.all_gather(error)) {
    if (!text.empty()) fail_together(text);
  }
}

}  // namespace llmc
