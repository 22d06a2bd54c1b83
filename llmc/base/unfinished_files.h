// Files and directories under temporary names that this process is writing. A signal that ends the
// process removes them (signal_request.h).
#pragma once

#include <filesystem>
#include <mutex>
#include <set>

namespace llmc {

class UnfinishedFiles {
 public:
  // Calls create(), which returns whether it created `path`, and registers the path if so. No
  // signal ends the process in between.
  template <class Create>
  static void create(const std::filesystem::path& path, const Create& create) {
    const std::lock_guard lock(registry().mutex);
    if (create()) registry().paths.insert(path);
  }

  // Calls finish(), which renames or removes `path`, and then forgets the path. No signal ends the
  // process in between. If finish() throws, the path stays registered.
  template <class Finish>
  static void finish(const std::filesystem::path& path, const Finish& finish) {
    const std::lock_guard lock(registry().mutex);
    finish();
    registry().paths.erase(path);
  }

  // Removes all registered files and directories. The process must end afterwards: threads that
  // create or finish files wait. Removes nothing if another thread is in such a call for longer
  // than a second, because of a disk that does not answer.
  static void remove_all();

 private:
  struct Registry {
    std::timed_mutex mutex;
    std::set<std::filesystem::path> paths;
  };

  // Never destroyed: a signal may arrive while the program exits.
  static Registry& registry();
};

}  // namespace llmc
