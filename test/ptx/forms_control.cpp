// Exchange between the lanes of a warp, barriers, branches (PTX ISA 9.0, sections 9.7.9.6, 9.7.12
// and 9.7.13).
#include <bit>
#include <utility>

#include "llmc/base/error.h"
#include "test/ptx/lanes.h"
#include "test/ptx/races.h"
#include "test/ptx/undefined.h"

namespace llmc_ptx {

namespace {

// The lanes that a collective names must be those that run it.
void require_members(Warp& warp, Operand operand, const char* what) {
  const U32 members = warp.lanes<U32>(operand)[std::countr_zero(warp.active())];
  for_active(warp, [&](int lane) {
    if (warp.lanes<U32>(operand)[lane] != members)
      warp.error(std::string(what) + " with another mask than other lanes", lane);
  });
  if ((members & warp.live()) == warp.active()) return;
  const U32 wrong = (members & warp.live()) ^ warp.active();
  const int lane = std::countr_zero(wrong);
  warp.error(std::string(what) + (has_lane(members, lane) ? " waits for a lane that is elsewhere"
                                                          : " by a lane that its mask lacks"),
             lane);
}

enum class Shuffle { index, up, down, butterfly };

template <Shuffle kMode>
void shuffle(Warp& warp, const Instruction& i) {
  require_members(warp, i.operands[5], "shfl");
  alignas(64) U32 a[kLanes];
  std::copy_n(warp.lanes<U32>(i.operands[2]), kLanes, a);
  const U32* const b = warp.lanes<U32>(i.operands[3]);
  const U32* const c = warp.lanes<U32>(i.operands[4]);
  U32* const out = warp.lanes<U32>(i.operands[0]);
  U32 inside = 0;
  for_active(warp, [&](int lane) {
    const int distance = static_cast<int>(b[lane] & 31), clamp = static_cast<int>(c[lane] & 31);
    const int segment = static_cast<int>(c[lane] >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment & 31), least = lane & segment;
    int source = lane;
    bool is_inside = false;
    switch (kMode) {
      case Shuffle::index:
        source = least | (distance & ~segment & 31);
        is_inside = source <= most;
        break;
      case Shuffle::up:
        source = lane - distance;
        is_inside = source >= most;
        break;
      case Shuffle::down:
        source = lane + distance;
        is_inside = source <= most;
        break;
      case Shuffle::butterfly:
        source = lane ^ distance;
        is_inside = source <= most;
        break;
    }
    if (!is_inside) source = lane;
    if (!has_lane(warp.active(), source))
      warp.error("shfl from a lane that does not take part", lane);
    out[lane] = a[source];
    inside |= U32{is_inside} << lane;
  });
  U32& predicate = warp.predicate(i.operands[1]);
  predicate = (predicate & ~warp.active()) | inside;
}

// vote.sync.any.pred d, p, mask, and .all: the same result in all lanes.
template <bool kAll>
void vote(Warp& warp, const Instruction& i) {
  require_members(warp, i.operands[2], "vote");
  const U32 active = warp.active();
  if (warp.checks_undefined()) require_defined(warp, i.operands[1], active);
  const U32 source = warp.predicate(i.operands[1]);
  const U32 bits = (i.negates_source ? ~source : source) & active;
  U32& out = warp.predicate(i.operands[0]);
  out = (kAll ? bits == active : bits != 0) ? out | active : out & ~active;
}

void warp_barrier(Warp& warp, const Instruction& i) {
  require_members(warp, i.operands[0], "bar.warp.sync");
  if (SharedRaces* races = warp.block().shared_races) races->warp_barrier(warp.index());
}

void fence(Warp& warp, const Instruction&) {
  if (GlobalRaces* races = warp.block().global_races) races->fence(warp.index());
}

void wait_for_launches(Warp& warp, const Instruction&) {
  warp.set_waited();
}

void allow_launches(Warp& warp, const Instruction&) {
  GlobalRaces* const races = warp.block().global_races;
  if (races != nullptr && warp.block().earlier != nullptr && !warp.has_waited())
    races->allow_next_early();
}

void no_operation(Warp&, const Instruction&) {}

}  // namespace

void add_warp_forms(FormTable& table) {
  const auto add = [&](const char* name, Run run) {
    table.add({.name = name, .section = "9.7.9.6", .operands = "WPwwww", .run = run});
  };
  add("shfl.sync.idx.b32", shuffle<Shuffle::index>);
  add("shfl.sync.up.b32", shuffle<Shuffle::up>);
  add("shfl.sync.down.b32", shuffle<Shuffle::down>);
  add("shfl.sync.bfly.b32", shuffle<Shuffle::butterfly>);
  table.add(
      {.name = "vote.sync.any.pred", .section = "9.7.13.9", .operands = "Ppw", .run = vote<false>});
  table.add(
      {.name = "vote.sync.all.pred", .section = "9.7.13.9", .operands = "Ppw", .run = vote<true>});
  table.add({.name = "bar.warp.sync", .section = "9.7.13.2", .operands = "w", .run = warp_barrier});
}

void add_control_forms(FormTable& table) {
  table.add({.name = "bra", .section = "9.7.12.3", .operands = "l", .kind = Kind::branch});
  table.add({.name = "bra.uni", .section = "9.7.12.3", .operands = "l", .kind = Kind::branch});
  table.add({.name = "ret", .section = "9.7.12.6", .operands = "", .kind = Kind::exit});
  table.add({.name = "exit", .section = "9.7.12.7", .operands = "", .kind = Kind::exit});
  table.add({.name = "bar.sync", .section = "9.7.13.1", .operands = "i", .kind = Kind::barrier});
  table.add(
      {.name = "bar.red.or.pred", .section = "9.7.13.1", .operands = "Pip", .kind = Kind::barrier});
  table.add({.name = "membar.gl", .section = "9.7.13.4", .operands = "", .run = fence});
  table.add({.name = "fence.acq_rel.gpu", .section = "9.7.13.4", .operands = "", .run = fence});
  table.add({.name = "griddepcontrol.wait",
             .section = "9.7.13.13",
             .operands = "",
             .run = wait_for_launches});
  table.add({.name = "griddepcontrol.launch_dependents",
             .section = "9.7.13.13",
             .operands = "",
             .run = allow_launches});
  // After an inlined call.
  table.add({.name = "nop", .section = "", .operands = "", .run = no_operation});
}

const FormTable& FormTable::all() {
  static const FormTable table = [] {
    FormTable forms;
    for (const auto add :
         {add_integer_forms, add_float_forms, add_logic_forms, add_compare_forms, add_convert_forms,
          add_move_forms, add_memory_forms, add_matrix_forms, add_warp_forms, add_control_forms}) {
      add(forms);
    }
    return forms;
  }();
  return table;
}

const Form* FormTable::find(std::string_view name) const {
  const auto form = forms_.find(name);
  return form == forms_.end() ? nullptr : &form->second;
}

void FormTable::add(Form form) {
  const std::string name = form.name;
  llmc::require(forms_.emplace(name, std::move(form)).second, "the form " + name + " exists twice");
}

}  // namespace llmc_ptx
