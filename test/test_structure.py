#!/usr/bin/env python3
"""Tests scripts/structure.py on small trees that break a rule, and on the repository.

    python3 test/test_structure.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
ONCE = "#pragma once\n"


def judge(root):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/structure.py"), str(root)], capture_output=True,
                          text=True, timeout=60)
    expect(done.stderr == "", done.stderr)
    return done.returncode, done.stdout.splitlines()


def tree(folder, **files):
    """Writes a tree without a breach, and the given files: in their names, __ is / and ___ is a dot."""
    files = {"llmc__base__a___h": ONCE, "llmc__device__b___h": ONCE + '#include "llmc/base/a.h"\n', **files}
    for name, text in files.items():
        path = folder / name.replace("___", ".").replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def expect_reports(folder, *expected, **files):
    """The reported breaches must be the expected ones, each as (FILE:LINE, part of the message)."""
    code, lines = judge(tree(folder, **files))
    expect(code == (1 if expected else 0), f"exit code {code}: {lines}")
    expect(len(lines) == len(expected) and all(line.startswith(place + ": ") and part in line
                                               for line, (place, part) in zip(lines, expected)), f"{lines}, not {expected}")


def cpp(lines, head="int f(int x) {", end="}"):
    """A C++ function of `lines` lines."""
    return "\n".join([head, *["  x += 1;"] * (lines - 2), end, ""])


def test_the_repository_has_no_breach(folder):
    code, lines = judge(ROOT)
    expect(code == 0, lines)


def test_a_tree_without_a_breach_has_no_report(folder):
    expect_reports(folder)


def test_an_include_of_a_later_folder_is_reported(folder):
    expect_reports(folder, ("llmc/base/c.h:2", "llmc/base includes llmc/device, which comes after it"),
                   llmc__base__c___h=ONCE + '#include "llmc/device/b.h"\n')
    expect_reports(folder, ("llmc/base/c.h:2", ""), ("llmc/io/d.h:2", "llmc/io includes llmc/io/data"),
                   llmc__io__d___h=ONCE + '#include "llmc/io/data/e.h"\n')


def test_a_folder_outside_the_order_is_reported(folder):
    expect_reports(folder, ("llmc/odd/c.h:1", "llmc/odd has no place in the order"), llmc__odd__c___h=ONCE)


def test_include_cycles_are_reported(folder):
    expect_reports(folder, ("llmc/base/c.h:1", "includes itself: llmc/base/c.h > llmc/base/d.h > llmc/base/c.h"),
                   llmc__base__c___h=ONCE + '#include "llmc/base/d.h"\n',
                   llmc__base__d___h=ONCE + '#include "llmc/base/c.h"\n')


def test_dtypes_as_template_parameters_above_the_model_are_reported(folder):
    loop, main = ONCE + "template <class T, class KV = T>\nclass Loop {};\n", "template <typename KV>\nvoid run();\n"
    message = "above the model; use its interface"
    expect_reports(folder, ("llmc/train/loop.h:2", f"parameter T {message}"), ("train.cu:1", f"parameter KV {message}"),
                   llmc__train__loop___h=loop, train___cu=main)
    expect_reports(folder, ("train.cu:1", ""), llmc__train__loop___h=ONCE + "template <class Use>\nvoid f(Use);\n",
                   llmc__parallel__loop___h=loop)


def test_a_header_without_pragma_once_is_reported(folder):
    expect_reports(folder, ("llmc/base/c.h:1", "without #pragma once"), llmc__base__c___h="int f();\n")


def test_options_and_json_outside_their_files_are_reported(folder):
    json = ONCE + "#include <nlohmann/json.hpp>\n"
    expect_reports(folder, ("llmc/io/d.h:2", "include nlohmann/json.hpp"), llmc__io__d___h=json,
                   llmc__base__json___cpp=json)


def test_conditional_compilation_outside_device_is_reported(folder):
    conditional = ONCE + "#ifdef __CUDACC__\n#endif\n"
    reported = [(f"llmc/{name}:{line}", "conditional compilation") for name in ("comm/c.h", "ops/c.h") for line in (2, 3)]
    expect_reports(folder, *reported, llmc__comm__c___h=conditional, llmc__comm__open_world___h=conditional,
                   llmc__ops__c___h=conditional, llmc__device__d___h=conditional, test__test_e___cu=conditional)


def test_raw_cuda_outside_device_is_reported(folder):
    raw = ONCE + '// threadIdx\nconst char* name = "threadIdx";\nint i() { return threadIdx.x; }\n'
    expect_reports(folder, ("llmc/ops/c.h:4", "'threadIdx' outside llmc/device"), llmc__ops__c___h=raw,
                   llmc__device__d___h=raw)


def test_flags_in_texts_of_libraries_are_reported(folder):
    flag = ONCE + 'const char* hint = "a smaller --seq-len";  // "--lr"\n'
    expect_reports(folder, ("llmc/io/data/x.h:2", "a flag in a text"), llmc__io__data__x___h=flag,
                   llmc__config__y___h=flag, llmc__ops__z___h=ONCE + 'const char* text = "a--b";  // "--lr"\n')


def test_files_of_more_than_400_lines_are_reported(folder):
    lines = ONCE + "int a;\n" * 399
    expect_reports(folder, llmc__base__c___h=lines, data__d___py="a = 1\n" * 400)
    expect_reports(folder, ("llmc/base/c.h:1", "401 lines; at most 400"), ("data/d.py:1", "401 lines"),
                   llmc__base__c___h=lines + "int b;\n", data__d___py="a = 1\n" * 401)


def test_functions_of_more_than_80_lines_are_reported(folder):
    python = "def f(a):\n" + "    a += 1\n" * 79
    expect_reports(folder, llmc__base__c___h=ONCE + cpp(80), dev__d___py=python)
    expect_reports(folder, ("llmc/base/c.h:2", "a function of 81 lines; at most 80"), ("dev/d.py:1", "of 81 lines"),
                   llmc__base__c___h=ONCE + cpp(81), dev__d___py=python + "    a += 1\n")


def test_functions_of_every_form_are_measured(folder):
    forms = {
        "method": ("struct S : Base<int> {\n public:\nint f() const noexcept override {", "}\n};"),
        "nested": ("namespace {\nnamespace n {\nclass C final {\nint x{3};\nvoid f() {", "}\n};\n}\n}"),
        "template": ("template <class T, class = std::enable_if_t<(sizeof(T) > 2)>>\n  requires(sizeof(T) == 4)\n"
                     "auto f(T x = {}, int y = 2) -> std::vector<T> {", "}"),
        "constructor": ("struct S {\nexplicit S(int a)\n : Base<int>{a}, a_(a), b_{1, 2}, c_([] { return 1; }) {", "}\n};"),
        "call": ("struct S {\nint operator()(int x) const {", "}\n};"),
        "comparison": ("bool operator==(const S& a, const S& b) {", "}"),
        "lambda": ("const auto f = [=](int x) mutable {", "};"),
        "kernel": ("template <class T>\n__global__ __launch_bounds__(128, 2) void k(T* x) {", "}"),
        "test case": ('TEST_SUITE("s") {\nTEST_CASE("a { in its name") {\nSUBCASE("b") {', "}\n}\n}"),
        "raw string": ('const char* text = R"x(\n" } { )" " {\n)x";\n// {\nchar c = \'{\', d = \'\\\'\';\nint f() {', "}"),
        "of C": ('extern "C" {\nint f();\n}\nextern "C" int f(int x) {', "}"),
        "after a macro": ("#define OPEN \\\n  {\nint f() {", "}"),
        "after a table": ("const Row kRows[] = {{1, {2}}, {3, {}}};\nenum class E : int { a, b };\nint f() {", "}"),
    }
    for form, (head, end) in forms.items():
        for lines in (50, 100):
            text = "\n".join([ONCE + head, *["  x += 1;"] * lines, end, ""])
            code, messages = judge(tree(folder, llmc__base__c___h=text))
            expect(code == (lines == 100) and all("a function of 10" in line for line in messages), f"{form}: {messages}")


def test_long_tables_are_not_functions(folder):
    expect_reports(folder, llmc__base__c___h=ONCE + "const int kTable[] = {\n" + "  1,\n" * 100 + "};\n")


def test_code_that_cannot_be_measured_is_reported(folder):
    expect_reports(folder, ("llmc/base/c.h:2", "102 lines with statements outside functions"),
                   llmc__base__c___h=ONCE + "const Rows kRows = {[] {\n" + "  f();\n" * 100 + "}};\n")
    expect_reports(folder, ("llmc/base/c.h:2", "braces or parentheses that do not match"),
                   llmc__base__c___h=ONCE + "int f() {\n")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:2]))
