#!/usr/bin/env bash
# Writes the units of the library: files that include several .cpp files of one folder each, because
# most of the compilation is spent on what these share. A unit is small, so that an edit compiles in
# seconds. Files that include a large library are units of their own, and so are those that call MPI,
# which not every program links. Prints the names of the units.
#   scripts/library_units.sh FOLDER FILE.cpp...
set -euo pipefail
folder=$1
shift
mkdir -p "$folder"
grep -lE '#include <(CLI/CLI|nlohmann/json)\.hpp>' "$@" >"$folder/alone" || true
wc -l "$@" | sort -k2 | awk -v folder="$folder" -v most_lines=700 '
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
  }' "$folder/alone" - >"$folder/list"
rm "$folder/alone"
for unit in $(cut -d' ' -f1 "$folder/list" | sort -u); do
  awk -v unit="$unit" '$1 == unit { print "#include \"" $2 "\"" }' "$folder/list" >"$folder/$unit.new"
  if cmp -s "$folder/$unit.new" "$folder/$unit.cpp"; then
    rm "$folder/$unit.new"
  else
    mv "$folder/$unit.new" "$folder/$unit.cpp"
  fi
  echo "$unit"
done
