#include "llmc/comm/mpi_bootstrap.h"

#include <array>
#include <cstddef>
#include <numeric>

#include "llmc/base/error.h"
#include "llmc/comm/poll_pause.h"

namespace llmc {

namespace mpi {

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(status, text.data(), &size);
  fail(std::string(call) + " failed: " + text.data());
}

void wait_for(std::vector<MPI_Request>& requests) {
  for (PollPause pause;; pause.next()) {
    int done = 0;
    check(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done != 0) break;
  }
  requests.clear();
}

MPI_Comm group_comm(const std::vector<int>& members) {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, some, members.front(), &comm),
        "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

}  // namespace mpi

MpiBootstrap::MpiBootstrap() {
  int provided = 0;
  mpi::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_FUNNELED, "this MPI library does not support threads");
  mpi::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm machine = MPI_COMM_NULL;
  mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
             "MPI_Comm_split_type");
  place_in(MPI_COMM_WORLD, places_.rank, places_.ranks);
  place_in(machine, places_.local_rank, places_.local_ranks);
  MPI_Comm_free(&machine);
}

std::vector<std::string> MpiBootstrap::all_gather(const std::string& text) {
  const int own_size = static_cast<int>(text.size());
  std::vector<int> sizes(static_cast<std::size_t>(places_.ranks)), begins = sizes;
  std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
  mpi::check(MPI_Iallgather(&own_size, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD,
                            requests.data()),
             "MPI_Iallgather");
  mpi::wait_for(requests);
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + sizes.back()), '\0');
  requests.assign(1, MPI_REQUEST_NULL);
  mpi::check(MPI_Iallgatherv(text.data(), own_size, MPI_BYTE, all.data(), sizes.data(),
                             begins.data(), MPI_BYTE, MPI_COMM_WORLD, requests.data()),
             "MPI_Iallgatherv");
  mpi::wait_for(requests);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(begins[rank]), static_cast<std::size_t>(sizes[rank])));
  }
  return texts;
}

std::string MpiBootstrap::broadcast(const std::string&, const std::vector<int>& members,
                                    std::string bytes) {
  MPI_Comm comm = mpi::group_comm(members);
  std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
  mpi::check(
      MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, comm, requests.data()),
      "MPI_Ibcast");
  mpi::wait_for(requests);
  MPI_Comm_free(&comm);
  return bytes;
}

void MpiBootstrap::place_in(MPI_Comm comm, int& rank, int& ranks) {
  mpi::check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
}

}  // namespace llmc
