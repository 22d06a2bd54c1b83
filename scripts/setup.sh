#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build, the tests and the demo need, after printing
# their names. CUDA is not among them: if nvcc is present, it is used.
#
#   scripts/setup.sh                 install what is missing (as root, or through sudo)
#   scripts/setup.sh --prefix DIR    needs no root: download and unpack into DIR, for `make DEPS=DIR`;
#                                    DIR can be copied to a machine without a network; scripts/run.sh
#                                    starts ranks with the Open MPI in it
#   scripts/setup.sh --check [WHAT]  only name what is missing for build, test, demo or all of
#                                    them (the default); exit code 2 if anything is
#   --gpu                            only what a CUDA build and its tests need (and Open MPI): no
#                                    oneDNN, gnuplot or Python; for a folder to copy, see
#                                    scripts/GPU_CHECK.md
#   --lint, --tidy                   clang-format, clang-tidy as well
#   --fuzz                           clang with libFuzzer as well, for `make fuzz`
#   --dry-run                        print what would be installed, and stop
set -euo pipefail
cd "$(dirname "$0")/.."

# scope | what must exist | package
#   h:FILE  a header the compiler finds;  l:NAME  a library the linker finds;  p:NAME  a program;
#   f:NAME  a program, a clang, that can link with libFuzzer
NEEDS='
build h:CLI/CLI.hpp            libcli11-dev
build h:nlohmann/json.hpp      nlohmann-json3-dev
build h:pcre2.h                libpcre2-dev
build l:pcre2-8                libpcre2-dev
build h:xxhash.h               libxxhash-dev
build l:xxhash                 libxxhash-dev
build h:zlib.h                 zlib1g-dev
build l:z                      zlib1g-dev
build h:zstd.h                 libzstd-dev
build l:zstd                   libzstd-dev
test  h:doctest/doctest.h      doctest-dev
tools p:python3                python3
ranks h:mpi.h                  libopenmpi-dev
ranks p:mpirun                 openmpi-bin
demo  p:gnuplot                gnuplot-nox
lint  p:clang-format           clang-format
tidy  p:clang-tidy             clang-tidy
fuzz  p:clang++                clang
'

# Matrix products on the host, as llmc/device/host/matrix_library.h chooses the library for the
# compiler's target.
target=$("${CXX:-g++}" -dumpmachine 2>/dev/null || uname -m)
if [ "${target%%-*}" = x86_64 ]; then
  NEEDS+='host  h:oneapi/dnnl/dnnl.h     libdnnl-dev
host  l:dnnl                   libdnnl-dev
'
else
  NEEDS+='host  h:cblas.h                libopenblas-dev
host  l:openblas               libopenblas-dev
'
fi

usage_error() {
  echo "setup.sh: $1" >&2
  sed -n '/^#   /s/^#   /  /p' "$0" >&2
  exit 2
}

# Without Open MPI, builds and tests work, except the tests of ranks as processes.
prefix='' mode=install scope='host build test tools demo ranks' gpu=0 dry=0
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || usage_error "--prefix needs a folder"; prefix=$2; shift ;;
    --prefix=*) prefix=${1#*=} ;;
    --check)
      mode=check
      case ${2-} in
        build) scope='host build'; shift ;;
        test) scope='host build test tools'; shift ;;
        demo) scope='host build test tools demo'; shift ;;
        all) shift ;;
      esac ;;
    --gpu) gpu=1 ;;
    --lint) scope="$scope lint" ;;
    --tidy) scope="$scope tidy" ;;
    --fuzz) scope="$scope fuzz" ;;
    --dry-run) dry=1 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) usage_error "unknown option '$1'" ;;
  esac
  shift
done
[ $gpu -eq 0 ] || scope=$(printf '%s\n' $scope | grep -vxE 'host|tools|demo' | tr '\n' ' ')
# A folder without Open MPI is complete as well: another release of Debian may have an Open MPI that
# does not run where it was only unpacked (unpack_open_mpi).
[ -z "$prefix" ] || scope=$(printf '%s\n' $scope | grep -vx ranks | tr '\n' ' ')
case $prefix in '' | /*) ;; *) prefix=$PWD/$prefix ;; esac
CXX=${CXX:-g++}

# The run-time library of clang's sanitizers has clang's version in its name, or is part of the
# package clang.
if [[ " $scope " == *' fuzz '* ]]; then
  [ -z "$prefix" ] || usage_error "--fuzz cannot be combined with --prefix: clang must be installed on the machine"
  runtime=libclang-rt-$(apt-cache show clang 2>/dev/null | sed -n 's/^Version: [0-9]*:\([0-9]*\).*/\1/p' | head -1)-dev
  apt-cache show "$runtime" >/dev/null 2>&1 || runtime=clang
  NEEDS+="fuzz  f:clang++                $runtime"$'\n'
fi

# ---- what is missing ------------------------------------------------------------------------
multiarch=$($CXX -print-multiarch 2>/dev/null || true)
flags=(-isystem "/usr/lib/$multiarch/openmpi/include") path=$PATH
if [ -n "$prefix" ]; then
  flags+=(-isystem "$prefix/usr/include" -isystem "$prefix/usr/include/$multiarch"
         -isystem "$prefix/usr/include/$multiarch/openblas-pthread"
         -L"$prefix/usr/lib/$multiarch/openblas-pthread" -L"$prefix/usr/lib/$multiarch"
         "-Wl,-rpath-link,$prefix/usr/lib/$multiarch")
  path=$PATH:$prefix/usr/bin
fi

# Whether the program is installed, or unpacked in the prefix (gnuplot has another name there).
has_program() {
  PATH=$path command -v "$1" >/dev/null 2>&1 || { [ "$1" = gnuplot ] && PATH=$path command -v gnuplot-nox >/dev/null 2>&1; }
}

# One preprocessor run checks all headers. The libraries are linked together, and one by one only if
# that fails.
missing_needs() {
  local headers libraries name
  headers=$(awk -v s=" $scope " 'NF && index(s, " " $1 " ") && $2 ~ /^h:/ {print substr($2, 3)}' <<<"$NEEDS")
  libraries=$(awk -v s=" $scope " 'NF && index(s, " " $1 " ") && $2 ~ /^l:/ {print substr($2, 3)}' <<<"$NEEDS")
  for name in $headers; do
    printf '#if !__has_include(<%s>)\nMISSING h:%s\n#endif\n' "$name" "$name"
  done | $CXX "${flags[@]}" -x c++ -E -P - 2>/dev/null | sed -n 's/^MISSING //p'
  if [ -n "$libraries" ] && ! links $libraries; then
    for name in $libraries; do links "$name" || echo "l:$name"; done
  fi
  for name in $(awk -v s=" $scope " 'NF && index(s, " " $1 " ") && $2 ~ /^p:/ {print substr($2, 3)}' <<<"$NEEDS"); do
    has_program "$name" || echo "p:$name"
  done
  for name in $(awk -v s=" $scope " 'NF && index(s, " " $1 " ") && $2 ~ /^f:/ {print substr($2, 3)}' <<<"$NEEDS"); do
    scripts/fuzz.sh --check "$name" 2>/dev/null || echo "f:$name"
  done
}
links() { echo 'int main() {}' | $CXX -x c++ - -o /dev/null "${flags[@]}" -Wl,--no-as-needed "${@/#/-l}" 2>/dev/null; }

packages_for() { # the packages that supply the needs given, each once
  local need
  for need in "$@"; do awk -v n="$need" '$2 == n {print $3}' <<<"$NEEDS"; done | awk '!seen[$0]++'
}

if ! command -v "${CXX%% *}" >/dev/null 2>&1; then
  if [ "$mode" = check ] || [ -n "$prefix" ]; then
    echo "A C++ compiler is missing ('$CXX'): install the package g++ (11 or newer)." >&2
    exit 2
  fi
  packages=(g++ make $(awk -v s=" $scope " 'NF && index(s, " " $1 " ") {print $3}' <<<"$NEEDS" | sort -u))
else
  if ! echo '#include <source_location>
             static_assert(std::source_location::current().line() == 2);' |
       $CXX -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
    echo "'$CXX' ($($CXX -dumpfullversion)) cannot compile C++20. Install GCC 11 or newer, as in Debian 12 or" \
         "Ubuntu 22.04, or set CXX= to another compiler." >&2
    exit 2
  fi
  packages=($(packages_for $(missing_needs)))
fi

# A folder for another machine is filled even if this machine has all of its packages.
if [ ${#packages[@]} -eq 0 ] && { [ "$mode" = check ] || [ -z "$prefix" ]; }; then
  [ "$mode" = check ] || echo "setup.sh: no package is missing"
  exit 0
fi
if [ "$mode" = check ]; then
  {
    echo "Packages are missing: ${packages[*]}"
    echo "  Run scripts/setup.sh to install them (Debian, Ubuntu; as root or through sudo),"
    echo "  or scripts/setup.sh --prefix deps, without root, to unpack them into ./deps, where make finds them."
  } >&2
  exit 2
fi
command -v apt-get >/dev/null 2>&1 || {
  echo "setup.sh: apt-get is missing; install these packages (Debian names): ${packages[*]}" >&2
  exit 1
}

# ---- install --------------------------------------------------------------------------------
if [ -z "$prefix" ]; then
  echo "setup.sh: will install: ${packages[*]}"
  [ $dry -eq 0 ] || exit 0
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
      echo "setup.sh: installing needs root or sudo. Without them, run scripts/setup.sh --prefix deps," \
           "then make DEPS=deps" >&2
      exit 1
    }
    sudo=(sudo)
  fi
  apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120)
  # A new machine has no package lists yet, an old one stale ones: fetch them only if needed.
  apt-cache show "${packages[@]}" >/dev/null 2>&1 || "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends "${packages[@]}" || {
    "${apt[@]}" update
    "${apt[@]}" install -y --no-install-recommends "${packages[@]}"
  }
  exit 0
fi

# Into a folder: the packages and their dependencies, except those that make, g++ and every Debian
# system need anyway. So the folder also works on a machine with fewer packages than this one. apt
# computes the dependencies as if nothing were installed.
all=($(awk -v s=" $scope " 'NF && index(s, " " $1 " ") {print $3}' <<<"$NEEDS" | sort -u))
open_mpi=($(awk '$1 == "ranks" {print $3}' <<<"$NEEDS" | sort -u))
echo "setup.sh: will download and unpack into $prefix: ${all[*]}, and their dependencies; ${open_mpi[*]}, and the" \
     "libraries that they load"
[ $dry -eq 0 ] || exit 0
work=$prefix/.setup
mkdir -p "$work/archives/partial"
: >"$work/status"
empty_system=(-o Dir::State::status="$work/status" -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Acquire::Retries=3)
if ! apt-cache show "${all[@]}" "${open_mpi[@]}" >/dev/null 2>&1; then
  # There are no package lists, and fetching them for the machine needs root: use private lists.
  mkdir -p "$work/lists/partial"
  empty_system+=(-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work")
  apt-get -q "${empty_system[@]}" update
fi
closure() {
  apt-get -s "${empty_system[@]}" install -y --no-install-recommends "$@" | awk '$1 == "Inst" {print $2}' | sort -u
}
base_packages() { { closure g++ make; dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p'; } | sort -u; }
to_unpack=($(comm -23 <(closure "${all[@]}") <(base_packages)))
[ ${#to_unpack[@]} -gt 0 ] || { echo "setup.sh: apt knows none of these packages: ${all[*]}" >&2; exit 1; }

# download_into FOLDER PACKAGE...: unpacks the packages into the folder.
download_into() {
  local folder=$1 deb
  shift
  (cd "$work/archives" && apt-get -q "${empty_system[@]}" download "$@")
  mkdir -p "$folder"
  for deb in "$work"/archives/*.deb; do dpkg-deb -x "$deb" "$folder"; done
  rm -f "$work"/archives/*.deb
}
needed_libraries() { readelf -d "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | sort -u; }

# Copies from $work/open_mpi the parts of Open MPI 4 that mpirun and programs use on one machine, a tenth
# of all. Not copied: the plugins of network cards (UCX, libfabric, verbs, PSM) and of OpenSHMEM, whose
# libraries are large, ssh, compiler wrappers, Fortran. mpirun finds its plugins by OPAL_PREFIX, which
# scripts/run.sh sets.
copy_open_mpi() {
  local from=$work/open_mpi lib=usr/lib/$multiarch plugin plugins pmix name queue copied=' '
  plugins=$lib/openmpi/lib/openmpi3 pmix=$lib/pmix2
  mkdir -p "$prefix/usr/bin" "$prefix/usr/share" "$prefix/$lib/openmpi/include" "$prefix/$plugins" "$prefix/$pmix/lib"
  cp "$from"/usr/bin/{orterun,orted} "$prefix/usr/bin"
  ln -sf orterun "$prefix/usr/bin/mpirun"
  cp -r "$from/usr/share/openmpi" "$prefix/usr/share"
  cp "$from/$lib/openmpi/include"/mpi*.h "$prefix/$lib/openmpi/include"
  for plugin in "$from/$plugins"/*.so; do
    needed_libraries "$plugin" | grep -qE '^lib(uc[pst]|fabric|ibverbs|rdmacm|psm|nl-|oshmem|mca_common_(ucx|ofi|verbs))' ||
      cp "$plugin" "$prefix/$plugins"
  done
  cp -r "$from/$pmix/lib/pmix" "$prefix/$pmix/lib"
  [ ! -d "$from/$pmix/share" ] || cp -r "$from/$pmix/share" "$prefix/$pmix"
  ln -sf ../../libmpi.so.40 "$prefix/$lib/openmpi/lib/libmpi.so"
  # Libraries of packages that every machine has are not in the folder $from.
  cp -L "$from/$lib/libmpi.so.40" "$prefix/$lib"
  queue=$(needed_libraries "$prefix/$lib/libmpi.so.40" "$prefix"/usr/bin/{orterun,orted} "$prefix/$plugins"/*.so "$prefix/$pmix/lib/pmix"/*.so)
  while [ -n "$queue" ]; do
    name=${queue%%$'\n'*}
    queue=$(sed 1d <<<"$queue")
    [[ $copied != *" $name "* ]] || continue
    copied+="$name "
    for folder in "$from/$lib" "$from/lib/$multiarch"; do
      [ -e "$folder/$name" ] || continue
      cp -L "$folder/$name" "$prefix/$lib"
      queue+=$'\n'$(needed_libraries "$folder/$name")
      queue=$(sed '/^$/d' <<<"$queue")
      break
    done
  done
}

# Adds Open MPI to the folder, or reports why not: builds and tests also work without it.
unpack_open_mpi() {
  local version
  version=$(apt-cache "${empty_system[@]}" show openmpi-bin 2>/dev/null | sed -n 's/^Version: \([0-9]*:\)\{0,1\}//p' | head -1)
  if [[ $version != 4.* ]]; then
    echo "setup.sh: without Open MPI: version 4 can be unpacked, and this system has '$version'" >&2
    return
  fi
  # The headers' package depends on compilers and on headers of other libraries.
  download_into "$work/open_mpi" $(comm -23 <(closure openmpi-bin) <(base_packages)) libopenmpi-dev
  copy_open_mpi
  printf '%s\n' "${open_mpi[@]}" >>"$prefix/packages"
  PATH=$prefix/usr/bin:$PATH DEPS=$prefix scripts/run.sh -np 2 true ||
    echo "setup.sh: warning: mpirun of $prefix does not run; the other packages are complete" >&2
}

download_into "$prefix" "${to_unpack[@]}"
printf '%s\n' "${to_unpack[@]}" >"$prefix/packages"
unpack_open_mpi
rm -rf "$work"
gpu_flag=()
[ $gpu -eq 0 ] || gpu_flag=(--gpu)
if ! CXX=$CXX "$0" --check --prefix "$prefix" "${gpu_flag[@]}"; then
  echo "setup.sh: $prefix was filled, but packages are still missing in it" >&2
  exit 1
fi
echo "setup.sh: ready; build with: make DEPS=$prefix${gpu_flag:+ HOST_BUILD=0}"
