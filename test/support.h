// Helpers for all tests: random data that is the same on every machine, copies to and from the
// device, and temporary files.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "test/oracle/errors.h"

namespace llmc_test {

using llmc::oracle::as_double;
using llmc::oracle::kRounding;
using llmc::oracle::max_abs_error;
using llmc::oracle::relative_l2;
using llmc::oracle::tolerance;

// ---- data ----------------------------------------------------------------------------------

// n draws from a normal distribution with mean 0 and standard deviation `scale`: Box-Muller on a
// Mersenne twister, whose sequence the standard defines, unlike that of std::normal_distribution.
inline std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, double scale = 1.0) {
  std::mt19937_64 bits(seed);
  const auto uniform = [&] { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; };
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& x : out) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    x = static_cast<float>(scale * radius * std::cos(2.0 * 3.14159265358979323846 * uniform()));
  }
  return out;
}

// n integers from 0 to limit - 1.
inline std::vector<std::int32_t> random_ints(std::int64_t n, std::uint64_t seed,
                                             std::int64_t limit) {
  std::mt19937_64 bits(seed);
  std::vector<std::int32_t> out(static_cast<std::size_t>(n));
  for (std::int32_t& x : out) {
    x = static_cast<std::int32_t>(bits() % static_cast<std::uint64_t>(limit));
  }
  return out;
}

// Converts each value to the nearest T, as test data for half-precision kernels.
template <class T>
std::vector<T> convert(const std::vector<float>& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const float x : values) out.push_back(llmc::from_float<T>(x));
  return out;
}

template <class T>
std::vector<float> to_floats(const std::vector<T>& values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (const T& x : values) out.push_back(llmc::to_float(x));
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// ---- device --------------------------------------------------------------------------------

// Device memory with these values. The copy is complete on return, so `values` may be freed.
template <class T>
llmc::Buffer<T> upload(const std::vector<T>& values, llmc::Stream& stream) {
  llmc::Buffer<T> out(static_cast<std::int64_t>(values.size()));
  llmc::copy_to_device(out.data(), values.data(), static_cast<std::int64_t>(values.size()), stream);
  stream.synchronize();
  return out;
}

// n values from device memory, after all work already on `stream`.
template <class T>
auto download(const T* device, std::int64_t n, llmc::Stream& stream) {
  std::vector<std::remove_const_t<T>> out(static_cast<std::size_t>(n));
  llmc::copy_to_host(out.data(), device, n, stream);
  stream.synchronize();
  return out;
}

template <class T>
std::vector<T> download(const llmc::Buffer<T>& buffer, llmc::Stream& stream) {
  return download(static_cast<const T*>(buffer.data()), static_cast<std::int64_t>(buffer.size()),
                  stream);
}

// ---- error messages ------------------------------------------------------------------------

// The message of the Error that `action` throws, or "" if it throws none.
template <class Action>
std::string complaint(Action&& action) {
  try {
    action();
  } catch (const llmc::Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- environment ---------------------------------------------------------------------------

// True under the sanitizers, which are tens of times slower: use the smallest shapes that still
// reach every branch.
inline bool tiny_shapes() {
  const char* value = std::getenv("LLMC_TINY");
  return value != nullptr && std::string(value) == "1";
}

// True if a dtype adds nothing for sanitizers: kernels for fp16 have the code of those for bf16.
// What nvcc made of them differs.
inline bool checked_as_bf16(llmc::Dtype dtype) {
  return dtype == llmc::Dtype::fp16 && tiny_shapes() && !llmc::kGpuKernels;
}
template <class T>
bool checked_as_bf16() {
  return checked_as_bf16(llmc::kDtypeOf<T>);
}

// Reports that the running test case cannot be decided here; `return` from it afterwards. The
// runner counts the printed line as one skipped test.
inline void skip(const std::string& reason) {
  std::cout << "[skipped] " << doctest::getContextOptions()->currentTest->m_name << ": " << reason
            << std::endl;
}

// The root of the source tree: the nearest folder that contains the engine, searched upwards from
// the current folder and then from the test binary.
inline std::string root_dir() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::path folder : {fs::current_path(ignored), fs::read_symlink("/proc/self/exe", ignored)}) {
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      if (fs::exists(folder / "llmc/device/device.h", ignored)) return folder.string();
    }
  }
  llmc::fail("no source tree contains the current folder or the test program",
             "run the tests inside the source tree");
}

// The folder of texts and tokenizers for tests: $LLMC_DATA, else shared/data next to the source
// tree. Empty if there is none; the test then calls `skip`.
inline std::string data_dir() {
  if (const char* value = std::getenv("LLMC_DATA"); value != nullptr) return value;
  const auto neighbour = std::filesystem::path(root_dir()).parent_path() / "shared/data";
  std::error_code ignored;
  return std::filesystem::is_directory(neighbour, ignored) ? neighbour.string() : std::string();
}

// A new folder that is deleted, with its contents, at the end of the scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "llmc-test-XXXXXX").string();
    llmc::require(mkdtemp(name.data()) != nullptr, "cannot create a temporary folder " + name);
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace llmc_test
