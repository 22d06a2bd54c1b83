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
#include "llmc/comm/tcp_hub.h"
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

// Where rank 0 listens, with the key of the run: in a message to the others.
std::vector<std::string> make_offer(Bootstrap& ranks, bool is_one_machine, const std::string& key,
                                    tcp::Socket& listener) {
  std::string error;
  try {
    listener = listen(is_one_machine, error);
    if (listener.is_open()) {
      return {key, std::to_string(tcp::local_port(listener)),
              pack_texts(addresses_of(ranks, listener, is_one_machine))};
    }
  } catch (const std::exception& wrong) {
    error = wrong.what();
  }
  return {error};
}

HubSettings settings_of(const Places& places, const std::vector<std::string>& offer,
                        const std::vector<std::string>& addresses) {
  std::string place = "control port " + offer[1] + " at";
  for (const std::string& address : addresses) place += " " + address;
  return {.rank = places.rank,
          .ranks = places.ranks,
          .addresses = addresses,
          .port = std::atoi(offer[1].c_str()),
          .key = offer[0],
          .deadline = kConnectTime,
          .place = place,
          .hint =
              "allow connections to this port; LLMC_CONTROL_PORT sets it, and "
              "LLMC_CONTROL_ADDRESS the address, for all ranks"};
}

// All ranks call this together.
std::shared_ptr<TcpHub> make_hub(Bootstrap& ranks) {
  const Places& places = ranks.places();
  const std::vector<std::string> machines = ranks.all_gather(machine_text());
  const bool is_one_machine =
      !is_variable_set("LLMC_CONTROL_ADDRESS") &&
      std::ranges::all_of(machines, [&](const std::string& text) { return text == machines[0]; });
  tcp::Socket listener;
  std::vector<std::string> offer;
  if (places.rank == 0) {
    const std::string key = checksum_text(random_bits()) + checksum_text(random_bits());
    offer = make_offer(ranks, is_one_machine, key, listener);
  }
  offer = unpack_texts(ranks.all_gather(pack_texts(offer))[0]);
  if (offer.size() == 1) fail_together(offer[0], "LLMC_CONTROL_PORT sets the port");
  require(offer.size() == 3, "rank 0 has sent something else than its control port");
  const bool is_here = machines[static_cast<std::size_t>(places.rank)] == machines[0];
  const std::vector<std::string> addresses =
      tcp::addresses_to_try(unpack_texts(offer[2]), is_here && !is_one_machine);
  std::shared_ptr<TcpHub> hub;
  std::string error;
  try {
    hub = std::make_shared<TcpHub>(settings_of(places, offer, addresses), std::move(listener));
  } catch (const std::exception& wrong) {
    error = wrong.what();
  }
  // Rank 0 knows only that others are missing; these know why.
  std::vector<std::string> errors = ranks.all_gather(error);
  std::ranges::rotate(errors, errors.begin() + 1);
  for (const std::string& text : errors) {
    if (!text.empty()) fail_together(text);
  }
  return hub;
}

}  // namespace

std::unique_ptr<ControlLink> connect_control(Bootstrap& ranks, const ControlSettings& settings) {
  const Places& places = ranks.places();
  std::shared_ptr<TcpHub> hub = ranks.hub();
  if (!hub) hub = make_hub(ranks);
  if (places.rank > 0) return std::make_unique<StoreClient>(std::move(hub), places.rank);
  return std::make_unique<RankStore>(std::move(hub), places.ranks, settings);
}

}  // namespace llmc
