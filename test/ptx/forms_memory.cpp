// Loads, stores, atomic additions and asynchronous copies (PTX ISA 9.0, sections 9.7.9 and 9.7.13).
#include <cstring>
#include <string>
#include <type_traits>

#include "test/ptx/device_memory.h"
#include "test/ptx/lanes.h"
#include "test/ptx/memory.h"
#include "test/ptx/undefined.h"

namespace llmc_ptx {

namespace {

// Whether all lanes are active and their accesses are neighbours.
bool is_contiguous(const Warp& warp, const Places& places, std::size_t bytes) {
  if (warp.active() != ~U32{0}) return false;
  bool equal = true;
  for (std::size_t lane = 1; lane < kLanes; ++lane)
    equal &= places[lane] == places[0] + lane * bytes;
  return equal;
}

// Where the undefined bits of each active lane's access are; null if all are defined.
Places undefined_places(Warp& warp, const Places& places, std::size_t bytes) {
  Places bits{};
  for_active(warp, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    bits[l] = undefined_bits(warp, places[l], bytes);
  });
  return bits;
}

// Passes on the undefined bits of a load.
template <class T, int N, class R>
void load_undefined(Warp& warp, const Instruction& i, const Places& places) {
  const Places bits = undefined_places(warp, places, N * sizeof(T));
  bool any = false;
  for_active(warp, [&](int lane) {
    const std::byte* const from = bits[static_cast<std::size_t>(lane)];
    if (from == nullptr || !any_undefined(from, N * sizeof(T))) return;
    any = true;
    require_defined_by_others(warp, lane, places[static_cast<std::size_t>(lane)], N * sizeof(T));
  });
  for (int n = 0; n < N; ++n) {
    if (!any && !warp.has_undefined(i.operands[n])) continue;
    R* const out = warp.lanes<R>(warp.undefined(i.operands[n]));
    for_active(warp, [&](int lane) {
      T value{};
      const std::byte* const from = bits[static_cast<std::size_t>(lane)];
      if (from != nullptr)
        std::memcpy(&value, from + static_cast<std::size_t>(n) * sizeof value, sizeof value);
      out[lane] = static_cast<R>(value);
    });
    warp.update_undefined(i.operands[n], sizeof(R) * kLanes);
  }
}

// Passes on the undefined bits of a store.
template <class T, int N, class R>
void store_undefined(Warp& warp, const Instruction& i, const Places& places) {
  const Places bits = undefined_places(warp, places, N * sizeof(T));
  bool any = false;
  for (int n = 0; n < N; ++n) any = any || warp.has_undefined(i.operands[1 + n]);
  for_active(warp, [&](int lane) {
    std::byte* const to = bits[static_cast<std::size_t>(lane)];
    if (to == nullptr) return;
    if (!any) {
      std::memset(to, 0, N * sizeof(T));
      return;
    }
    T values[N];
    bool is_undefined = false;
    for (int n = 0; n < N; ++n) {
      values[n] = static_cast<T>(warp.lanes<R>(warp.undefined(i.operands[1 + n]))[lane]);
      is_undefined = is_undefined || values[n] != 0;
    }
    std::memcpy(to, values, sizeof values);
    const std::byte* const place = places[static_cast<std::size_t>(lane)];
    if (is_undefined && is_global(warp, place)) {
      DeviceMemory::instance().note_undefined_store(
          warp, lane, reinterpret_cast<std::uintptr_t>(place), sizeof values);
    }
  });
}

// ld of N values of type T into registers R, with addresses B.
template <class T, int N, class R, class B>
void load(Warp& warp, const Instruction& i) {
  const auto space = static_cast<Space>(i.immediate);
  const Places places =
      find_places(warp, space, addresses_of<B>(warp, i.operands[N], i.offset), N * sizeof(T));
  if (warp.block().shared_races != nullptr) {
    for_active(warp, [&](int lane) {
      note_read(warp, lane, places[static_cast<std::size_t>(lane)], N * sizeof(T));
    });
  }
  if (warp.checks_undefined()) load_undefined<T, N, R>(warp, i, places);
  if (N == 1 && sizeof(T) == sizeof(R) && is_contiguous(warp, places, sizeof(T))) {
    std::memcpy(warp.lanes<R>(i.operands[0]), places[0], kLanes * sizeof(T));
    return;
  }
  R* out[N];
  for (int n = 0; n < N; ++n) out[n] = warp.lanes<R>(i.operands[n]);
  for_active(warp, [&](int lane) {
    T values[N];
    std::memcpy(values, places[static_cast<std::size_t>(lane)], sizeof values);
    for (int n = 0; n < N; ++n) out[n][lane] = static_cast<R>(values[n]);
  });
}

template <class T, int N, class R, class B>
void store(Warp& warp, const Instruction& i) {
  const auto space = static_cast<Space>(i.immediate);
  const Places places =
      find_places(warp, space, addresses_of<B>(warp, i.operands[0], i.offset), N * sizeof(T));
  if (warp.checks_undefined()) store_undefined<T, N, R>(warp, i, places);
  const bool is_checked = warp.block().shared_races != nullptr;
  if (!is_checked && N == 1 && sizeof(T) == sizeof(R) && is_contiguous(warp, places, sizeof(T))) {
    std::memcpy(places[0], warp.lanes<R>(i.operands[1]), kLanes * sizeof(T));
    return;
  }
  const R* in[N];
  for (int n = 0; n < N; ++n) in[n] = warp.lanes<R>(i.operands[1 + n]);
  for_active(warp, [&](int lane) {
    T values[N];
    for (int n = 0; n < N; ++n) values[n] = static_cast<T>(in[n][lane]);
    std::byte* const place = places[static_cast<std::size_t>(lane)];
    if (is_checked && std::memcmp(place, values, sizeof values) != 0) {
      note_write(warp, lane, place, sizeof values);
    }
    std::memcpy(place, values, sizeof values);
  });
}

// The run of ld or st for registers of `values` and an address of `base`.
template <class T, int N, bool kStores>
Run access_for(Width values, Width base) {
  const auto access = [&]<class R>() -> Run {
    if constexpr (sizeof(R) < sizeof(T)) {
      return nullptr;
    } else if constexpr (kStores) {
      return base == Width::bits32 ? store<T, N, R, U32> : store<T, N, R, U64>;
    } else {
      return base == Width::bits32 ? load<T, N, R, U32> : load<T, N, R, U64>;
    }
  };
  return with_register(values, access);
}

template <class T, int N, bool kStores>
void add_access(FormTable& table, const std::string& name, const char* section, Space space) {
  table.add({.name = name,
             .section = section,
             .operands = kStores ? "[" + std::string(N, 'x') : std::string(N, 'X') + "[",
             .immediate = static_cast<std::int64_t>(space),
             .by_width = [](const std::vector<Width>& widths) -> Run {
               const auto base = static_cast<std::size_t>(kStores ? 0 : N),
                          first = static_cast<std::size_t>(kStores);
               for (std::size_t i = 1; i < static_cast<std::size_t>(N); ++i) {
                 if (widths[first + i] != widths[first]) return nullptr;
               }
               return access_for<T, N, kStores>(widths[first], widths[base]);
             },
             .number_width = sizeof(T) <= 2   ? Width::bits16
                             : sizeof(T) == 4 ? Width::bits32
                                              : Width::bits64});
}

template <class T>
void add_accesses(FormTable& table, std::initializer_list<const char*> types) {
  struct Place {
    const char* name;
    Space space;
    bool is_written;
    const char* section = "9.7.9.8";
  };
  constexpr Place kPlaces[] = {
      {"", Space::generic, true},          {".global", Space::global, true},
      {".global.cs", Space::global, true}, {".global.nc", Space::global, false, "9.7.9.9"},
      {".shared", Space::shared, true},    {".local", Space::local, true},
      {".param", Space::param, false}};
  for (const char* type : types) {
    for (const Place& place : kPlaces) {
      const auto name = [&](const char* opcode, const char* vector) {
        return std::string(opcode) + place.name + vector + "." + type;
      };
      add_access<T, 1, false>(table, name("ld", ""), place.section, place.space);
      add_access<T, 2, false>(table, name("ld", ".v2"), place.section, place.space);
      if constexpr (sizeof(T) < 8)
        add_access<T, 4, false>(table, name("ld", ".v4"), place.section, place.space);
      if (!place.is_written) continue;
      add_access<T, 1, true>(table, name("st", ""), "9.7.9.11", place.space);
      add_access<T, 2, true>(table, name("st", ".v2"), "9.7.9.11", place.space);
      if constexpr (sizeof(T) < 8)
        add_access<T, 4, true>(table, name("st", ".v4"), "9.7.9.11", place.space);
    }
  }
}

// Throws an Error if an atomic adds an undefined value, or to one.
void require_counter(Warp& warp, const Instruction& i, const Places& places) {
  for_active(warp, [&](int lane) {
    const std::byte* const bits =
        undefined_bits(warp, places[static_cast<std::size_t>(lane)], sizeof(U32));
    if (bits != nullptr && any_undefined(bits, sizeof(U32)))
      warp.error("an undefined counter", lane);
    if (warp.has_undefined(i.operands[2]) &&
        warp.lanes<U32>(warp.undefined(i.operands[2]))[lane] != 0)
      warp.error("an undefined addend", lane);
  });
  if (warp.has_undefined(i.operands[0])) {
    U32* const out = warp.lanes<U32>(warp.undefined(i.operands[0]));
    for_active(warp, [&](int lane) { out[lane] = 0; });
    warp.update_undefined(i.operands[0], sizeof(U32) * kLanes);
  }
}

// atom.global.add.u32 d, [a], b: lanes add one after the other.
template <class B>
void atomic_add(Warp& warp, const Instruction& i) {
  const Places places = find_places(warp, static_cast<Space>(i.immediate),
                                    addresses_of<B>(warp, i.operands[1], i.offset), sizeof(U32));
  U32* const out = warp.lanes<U32>(i.operands[0]);
  const U32* const in = warp.lanes<U32>(i.operands[2]);
  if (warp.checks_undefined()) require_counter(warp, i, places);
  for_active(warp, [&](int lane) {
    auto* const at = reinterpret_cast<U32*>(places[static_cast<std::size_t>(lane)]);
    out[lane] = __atomic_fetch_add(at, in[lane], __ATOMIC_SEQ_CST);
    note_atomic(warp, lane, reinterpret_cast<const std::byte*>(at), sizeof(U32));
  });
}

// cp.async.cg.shared.global [to], [from], 16, size: the bytes after `size` become 0. Until the
// wait, the destination has bytes that are no data.
template <class To>
void copy_async(Warp& warp, const Instruction& i) {
  constexpr std::size_t kBytes = 16;
  const Places to =
      find_places(warp, Space::shared, addresses_of<To>(warp, i.operands[0], i.offset), kBytes);
  const U32* const sizes = warp.lanes<U32>(i.operands[2]);
  const U32 all = warp.active();
  U32 readers = 0;
  for_active(warp, [&](int lane) {
    if (sizes[lane] > kBytes) warp.error("a copy of more than 16 bytes", lane);
    readers |= U32{sizes[lane] > 0} << lane;
  });
  const Addresses sources = addresses_of<U64>(warp, i.operands[1], i.second_offset);
  Places from{};
  if (readers != 0) {
    warp.set_active(readers);
    from = find_places(warp, Space::global, sources, kBytes);
    warp.set_active(all);
  }
  for_active(warp, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    std::memset(to[l], 0xA1, kBytes);
    if (warp.checks_undefined()) std::memset(undefined_bits(warp, to[l], kBytes), 0xFF, kBytes);
    note_write(warp, lane, to[l], kBytes);
    if (sizes[lane] > 0) note_read(warp, lane, from[l], sizes[lane]);
    warp.add_copy({.lane = lane,
                   .destination = to[l],
                   .source = from[l],
                   .bytes = sizes[lane],
                   .zeros = static_cast<U32>(kBytes) - sizes[lane]});
  });
}

void commit_copies(Warp& warp, const Instruction&) {
  warp.require_whole("a commit of copies");
  warp.commit_copies();
}
void wait_for_copies(Warp& warp, const Instruction& i) {
  warp.require_whole("a wait for copies");
  warp.wait_for_copies(i.immediate);
}

// Generic addresses of a space, and back.
template <U64 kWindow>
struct ToGeneric {
  static U64 apply(U64 a) { return a + kWindow; }
};
template <U64 kWindow>
struct FromGeneric {
  static U64 apply(U64 a) { return a - kWindow; }
};

void add_address_forms(FormTable& table) {
  const char* const section = "9.7.9.20";
  add_unary<Copy, U64, U64>(table, section, "cvta.to.global.u64");
  add_unary<Copy, U64, U64>(table, section, "cvta.global.u64");
  add_unary<ToGeneric<kSharedWindow>, U64, U64>(table, section, "cvta.shared.u64");
  add_unary<FromGeneric<kSharedWindow>, U64, U64>(table, section, "cvta.to.shared.u64");
  add_unary<ToGeneric<kLocalWindow>, U64, U64>(table, section, "cvta.local.u64");
  add_unary<FromGeneric<kLocalWindow>, U64, U64>(table, section, "cvta.to.local.u64");
  add_unary<ToGeneric<kParamWindow>, U64, U64>(table, section, "cvta.param.u64");
}

}  // namespace

void add_memory_forms(FormTable& table) {
  add_accesses<S8>(table, {"s8"});
  add_accesses<U8>(table, {"u8", "b8"});
  add_accesses<S16>(table, {"s16"});
  add_accesses<U16>(table, {"u16", "b16"});
  add_accesses<S32>(table, {"s32"});
  add_accesses<U32>(table, {"u32", "b32", "f32"});
  add_accesses<U64>(table, {"u64", "s64", "b64", "f64"});
  add_address_forms(table);
  table.add({.name = "atom.global.add.u32",
             .section = "9.7.13.5",
             .operands = "W[w",
             .immediate = static_cast<std::int64_t>(Space::global),
             .by_width = [](const std::vector<Width>& widths) -> Run {
               return widths[0] == Width::bits64 ? atomic_add<U64> : nullptr;
             }});
  table.add({.name = "cp.async.cg.shared.global",
             .section = "9.7.9.25.3.1",
             .operands = "[[iw",
             .by_width = [](const std::vector<Width>& widths) -> Run {
               if (widths[1] != Width::bits64) return nullptr;
               return widths[0] == Width::bits32 ? copy_async<U32> : copy_async<U64>;
             }});
  table.add({.name = "cp.async.commit_group",
             .section = "9.7.9.25.3.2",
             .operands = "",
             .run = commit_copies});
  table.add({.name = "cp.async.wait_group",
             .section = "9.7.9.25.3.3",
             .operands = "i",
             .run = wait_for_copies});
}

}  // namespace llmc_ptx
