#!/usr/bin/env bash
# Writes the units of the library: files that include several .cpp files of one folder each, because
# most of the compilation is spent on what these share. A unit is small, so that an edit compiles in
# seconds. Files that include a large library are units of their own, and so are those that call MPI,
# which not every program links. Prints the names of the units. Several processes may run it at the
# same time, as several makes do.
#   scripts/library_units.sh FOLDER FILE.cpp...
set -euo pipefail
folder=$1
shift
mkdir -p "$folder"
new=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
grep -lE '#include <(CLI/CLI|nlohmann/json)\.hpp>' "$@" >"$new/alone" || true
wc -l "$@" | sort -k2 | awk -v most_lines=1400 '
  FILENAME != "-" { alone[$1]; next }
  $2 == "total" || $2 !~ /\.cpp$/ { next }
  {
    name = $2; sub("/[^/]*$", "", name); sub("^llmc/", "", name); gsub("/", "_", name)
    if ($2 in alone || $2 ~ /\/mpi_/) {
      unit = $2; sub("^llmc/", "", unit); sub("\\.cpp$", "", unit); gsub("/", "_", unit)
      print unit, $2
      next
    }
    if (name != last || lines + $1 > most_lines) { lines = 0; ++count[name]; last = name }
    lines += $1
    print name "_" count[name], $2
  }' "$new/alone" - >"$new/list"
for unit in $(cut -d' ' -f1 "$new/list" | sort -u); do
  awk -v unit="$unit" '$1 == unit { print "#include \"" $2 "\"" }' "$new/list" >"$new/$unit.cpp"
  # A unit that did not change keeps its time, and is not compiled again.
  cmp -s "$new/$unit.cpp" "$folder/$unit.cpp" || mv "$new/$unit.cpp" "$folder/$unit.cpp"
  echo "$unit"
done
