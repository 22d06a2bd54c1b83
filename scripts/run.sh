#!/usr/bin/env bash
# Starts a program as several ranks, with mpirun of Open MPI, and lets the ranks save when the run is
# stopped. Root may start it, and there may be more ranks than cores.
#
#   scripts/run.sh [OPTION...] -np N [OPTION OF MPIRUN...] PROGRAM [ARGUMENT...]
#
#   -np N       number of ranks
#   --dry-run   print the command that would run, and stop
#   --help      print this text
#   --restarts N            restart a run that fails: it continues from its newest checkpoint. N is the
#                           number of restarts without a new checkpoint. PROGRAM needs --out
#   --elastic               with --restarts: restart with fewer data-parallel ranks if slots are missing
#   --slots N               with --elastic: number of usable slots (default: LLMC_SLOTS, else from the
#                           hosts that answer, else -np)
#   --slots-command CMD     with --elastic: a shell command that prints this number before each restart
#
# Options of this script also work right after -np N.
#
# Examples:
#   scripts/run.sh -np 4 ./prog --flag
#   scripts/run.sh -np 4 -x NAME --tag-output ./prog
#   scripts/run.sh --restarts 5 -np 4 ./train_gpt2 --train text.txt --out run --checkpoint-every 100
#
# Exit codes: that of mpirun; 2 for wrong arguments or a missing mpirun. With --restarts that of the last
# start; 0 and 2 are never followed by a restart, nor is a stop by a signal. Another MPI library's mpirun
# gets the arguments as they are, without the settings and without the treatment of signals below.
#
# Signals: SIGINT and SIGTERM to run.sh go to every rank of this machine, SIGHUP as SIGTERM. run.sh
# then waits for the ranks as long as they need, and exits 0 if all of them do. SIGTERM to mpirun
# counts as SIGTERM to run.sh, once.
#
# If a rank ends with an error or is killed, the others have 5 s to report which rank is lost and to
# write their files; then they get SIGTERM, and 5 s later SIGKILL, stopped ones too. run.sh exits with
# the code of the first one. OMPI_MCA_odls_base_sigkill_timeout sets these seconds.
#
# From the environment: DEPS, the folder that scripts/setup.sh --prefix filled (default: ./deps of
# the repository, if it exists). It is used if PATH has no mpirun. TMPDIR: a run keeps Open MPI's
# temporary files there, in a folder of its own (default: /tmp). OMPI_MCA_* of Open MPI. LLMC_SLOTS: see
# --slots.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage_error() {
  echo "run.sh: $1" >&2
  sed -n '/^#   \(-\|.* PROGRAM\)/s/^#   /  /p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# Prints a command as words for a shell and exits, with code 1 if that fails.
print_command() { printf '%q ' "$@" && echo || exit 1; exit 0; }

dry=0 np='' restarts=() elastic=0 slots=0
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=1 ;;
    --elastic) elastic=1 restarts+=("$1") ;;
    --restarts | --slots | --slots-command)
      [ $# -ge 2 ] || usage_error "$1 needs a value"
      [ "$1" = --slots-command ] || [[ $2 =~ ^[0-9]+$ ]] || usage_error "$1 '$2': this is not a whole number"
      [ "$1" = --restarts ] || slots=1
      restarts+=("$1" "$2")
      shift ;;
    -np)
      [ -z "$np" ] || break
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage_error "-np '${2-}': the number of ranks must be a whole number of at least 1"
      np=$2
      shift ;;
    -h | --help)
      [ -z "$np" ] || break
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit ;;
    *) break ;;
  esac
  shift
done
[ -n "$np" ] || usage_error "give the number of ranks first: -np N"
[ $# -ge 1 ] || usage_error "give the program to run after -np $np"
[[ $elastic -eq 0 || " ${restarts[*]} " == *" --restarts "* ]] || usage_error "--elastic needs --restarts N"
[ $slots -eq 0 ] || [ $elastic -eq 1 ] || usage_error "--slots and --slots-command need --elastic"
if [ $dry -eq 0 ] && [ ${#restarts[@]} -gt 0 ]; then
  command -v python3 >/dev/null || usage_error "--restarts needs python3"
  exec python3 "$root/scripts/restarts.py" "${restarts[@]}" -np "$np" -- "$@"
fi
set -- -np "$np" "$@"

# ---- the launcher ---------------------------------------------------------------------------
deps=${DEPS:-}
[ -n "$deps" ] || { [ ! -d "$root/deps/usr" ] || deps=$root/deps; }
[ -z "$deps" ] || deps=$(cd "$deps" 2>/dev/null && pwd) || usage_error "DEPS=$DEPS is not a folder"
mpirun=$(PATH=$PATH${deps:+:$deps/usr/bin} command -v mpirun) || {
  echo "run.sh: mpirun is missing in PATH${deps:+ and in $deps/usr/bin}" >&2
  echo "  Run scripts/setup.sh to install Open MPI (Debian, Ubuntu; as root or through sudo)," >&2
  echo "  or scripts/setup.sh --prefix deps, without root, to unpack it into ./deps." >&2
  exit 2
}

settings=()
# Open MPI that was only unpacked has other locations than those compiled into it.
if [ -n "$deps" ] && [ "$mpirun" -ef "$deps/usr/bin/mpirun" ]; then
  settings+=("OPAL_PREFIX=$deps/usr")
  libraries=
  for folder in "$deps"/usr/lib/*-linux-gnu; do
    libraries+=$folder:
    [ ! -d "$folder/pmix2" ] || settings+=("PMIX_LIBDIR=$folder/pmix2/lib" "PMIX_DATADIR=$folder/pmix2/share")
  done
  libraries+=${LD_LIBRARY_PATH:-}
  settings+=("LD_LIBRARY_PATH=${libraries%:}")
fi

version=$(env "${settings[@]}" "$mpirun" --version 2>&1 | head -1)
case $version in
  *'Open MPI'* | *OpenRTE* | *PRRTE*) ;;
  *)
    echo "run.sh: $mpirun is not Open MPI ('$version'): run.sh only starts it, without settings of its own" >&2
    [ $dry -eq 0 ] || print_command "$mpirun" "$@"
    exec "$mpirun" "$@" ;;
esac

# A user's option or variable takes precedence: the last --bind-to counts, and --mca comes before
# OMPI_MCA_*. (mpirun rejects the same --mca given twice.)
settings+=("OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}")
options=(--allow-run-as-root --oversubscribe --bind-to none)
# mpirun puts its folder first in the ranks' PATH. For a system's folder, which every machine has in PATH,
# that only hides programs that the user's PATH has earlier, such as another python3.
case $mpirun in /usr/bin/* | /bin/*) options+=(--noprefix) ;; esac
# Without ssh, Open MPI 4 does not start even if all ranks are on this machine.
command -v ssh >/dev/null || command -v rsh >/dev/null || settings+=("OMPI_MCA_plm=${OMPI_MCA_plm:-^rsh}")

# mpirun that receives SIGTERM ends all ranks with exit code 1, a second later with SIGKILL. With the
# signal blocked it keeps running, and the ranks, for which it unblocks all signals, get the signal
# from here. The shell starts background jobs with SIGQUIT ignored, so that is undone as well.
guard=('--default-signal=QUIT' '--block-signal=INT,TERM,HUP')
# If a rank fails, Open MPI waits this many seconds before SIGTERM, and again before SIGKILL.
sigkill_timeout=5
if ! env "${guard[@]}" true 2>/dev/null; then
  # GNU coreutils before 8.31: mpirun ends the ranks after a signal too, and they need time to save.
  guard=()
  sigkill_timeout=12
fi
settings+=("OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-$sigkill_timeout}")

# Runs of one user share a folder for temporary files. Open MPI 4 fails if another run, which ends,
# removes the folder at the wrong moment (its issue 8510), so each run gets one of its own.
temporary=
chosen=$(printf '%s\n' "$@" "$(env)" | grep -E '^(OMPI_MCA_)?orte_((local|remote)_)?tmpdir_base')
if [ $dry -eq 0 ] && [ ${#guard[@]} -gt 0 ] && [ -z "$chosen" ] && temporary=$(mktemp -d); then
  settings+=("OMPI_MCA_orte_tmpdir_base=$temporary")
fi
remove_temporary() { [ -z "$temporary" ] || rm -rf -- "$temporary"; }

command=(env "${guard[@]}" "${settings[@]}" "$mpirun" "${options[@]}" "$@")
[ $dry -eq 0 ] || print_command "${command[@]}"
[ ${#guard[@]} -gt 0 ] || exec "${command[@]}"

# ---- run --------------------------------------------------------------------------------------
# The ranks that mpirun started on this machine, each the leader of a process group of its own. Other
# children of mpirun, such as ssh to another machine, are not ranks.
local_ranks() {
  local child
  # shellcheck disable=SC2013  # one line of several numbers
  for child in $(cat /proc/"$pid"/task/*/children 2>/dev/null); do
    ! grep -qz '^OMPI_COMM_WORLD_RANK=' "/proc/$child/environ" 2>/dev/null || echo "$child"
  done
}

# Sends a signal to the ranks. Fails if there are none, because mpirun starts or ends.
signal_ranks() {
  local rank ranks
  ranks=$(local_ranks)
  for rank in $ranks; do kill -s "$1" -- "-$rank" 2>/dev/null || kill -s "$1" "$rank" 2>/dev/null; done
  [ -n "$ranks" ]
}

# The bits of the signals that stop the run in /proc/PID/status. A signal that was ignored when this
# script started (nohup, a script's background job) stays without effect.
stop_bits=0
for signal in HUP:1 INT:2 TERM:15; do
  [[ $(trap -p "${signal%:*}") == *"''"* ]] || stop_bits=$((stop_bits | 1 << (${signal#*:} - 1)))
done

# Whether one of these signals was sent to mpirun itself, which blocks it.
mpirun_has_signal() {
  local name value
  while read -r name value; do
    [ "$name" != ShdPnd: ] || return $(((16#$value & stop_bits) == 0))
  done 2>/dev/null <"/proc/$pid/status"
  return 1
}

# Passes a signal on. mpirun may have no ranks yet. SIGUSR1 comes from watch(), and counts if run.sh
# itself got no signal.
num_signals=0
# shellcheck disable=SC2317  # called by traps
forward() {
  local try
  num_signals=$((num_signals + 1))
  if [ "$1" = USR1 ]; then
    [ "$num_signals" -eq 1 ] || return
    set -- TERM
  fi
  for ((try = 0; try < 20; ++try)); do
    signal_ranks "$1" && return
    kill -0 "$pid" 2>/dev/null || return
    sleep 0.5
  done
  echo "run.sh: SIG$1 arrived, but no rank runs on this machine: killing mpirun" >&2
  kill -s KILL "$pid" 2>/dev/null
}

# Whether mpirun has children that have not ended.
has_children() {
  local file child children word
  for file in /proc/"$pid"/task/*/children; do
    children=()
    read -r -a children <"$file"
    for child in "${children[@]}"; do
      word=
      read -r -d '' word <"/proc/$child/cmdline"
      [ -z "$word" ] || return 0
    done
  done 2>/dev/null
  return 1
}

# After a failure, mpirun waits its full time even if no rank is left. It sleeps second by second, and
# SIGCHLD, which has no other effect, ends such a second.
wake_mpirun() {
  local i
  for ((i = 0; i < 100; ++i)); do
    kill -s CHLD "$pid" 2>/dev/null || return
    sleep 0.02
  done
}

# Looks after mpirun twice per second, and reports a signal to it as SIGUSR1. If run.sh is killed, the
# ranks get SIGTERM.
watch() {
  local parent reported=0 idle=0
  trap '' INT TERM HUP
  while kill -0 "$pid" 2>/dev/null; do
    read -r _ _ _ parent _ <"/proc/$BASHPID/stat"
    [ "$parent" = $$ ] || { signal_ranks TERM; break; }
    [ $reported -eq 1 ] || ! mpirun_has_signal || { reported=1; kill -s USR1 $$; }
    ! has_children || idle=-1
    idle=$((idle + 1))
    [ $idle -ne 2 ] || wake_mpirun
    sleep 0.5
  done
  while kill -0 "$pid" 2>/dev/null; do sleep 0.5; done
  remove_temporary
}

trap 'forward INT' INT
trap 'forward TERM' TERM HUP
trap 'forward USR1' USR1
"${command[@]}" <&0 &
pid=$!
watch </dev/null >/dev/null 2>&1 &
# A signal ends `wait` early, with a code that is not that of mpirun.
num_handled=-1
while [ "$num_handled" -ne $num_signals ]; do
  num_handled=$num_signals
  wait "$pid"
  code=$?
done
remove_temporary
exit "$code"
