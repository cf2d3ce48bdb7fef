#!/usr/bin/env python3
"""Planted tests, run by scripts/test: what it must call passed, failed, flaky and skipped.

Each planted target is a program that answers as a test program of Rust does. It writes when each of its tests ran.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("runner", str(ROOT / "scripts/test"))
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
loader.exec_module(runner)

# A test fails in the runs that its name says: `fails_1_3` in the first and the third.
PLANTED = r'''#!{python} -SE
import os, re, sys, time
tests = {tests!r}
if "--list" in sys.argv:
    print("\n".join(f"{{test}}: test" for test in tests))
    sys.exit(0)
if "--exact" in sys.argv:
    tests = [test for test in tests if test in sys.argv]
skipped = [word for flag, word in zip(sys.argv, sys.argv[1:]) if flag == "--skip"]
tests = [test for test in tests if not any(word in test for word in skipped)]
failed = ignored = 0
for test in tests:
    name = test.split("::")[-1]
    with open(f"{directory}/log", "a") as log:
        begin = time.monotonic()
        if "sleeps" in name:
            time.sleep(0.3)
        log.write(f"{{test}} {{begin}} {{time.monotonic()}}\n")
    runs = sum(line.split()[0] == test for line in open(f"{directory}/log"))
    if name == "dies":
        os.abort()
    if name == "skips":
        print("SKIP: skips: needs what is not here")
    if name == "retries":
        print("RETRIED retries the hypervisor took 3.0% of the CPU time")
    if name == "ignored":
        ignored = 1
        print(f"test {{test}} ... ignored, by hand")
        continue
    fails = name == "fails" or str(runs) in name.split("_")[1:]
    failed += fails
    print(f"test {{test}} ... {{'FAILED' if fails else 'ok'}}")
passed = len(tests) - failed - ignored
print(f"test result: x. {{passed}} passed; {{failed}} failed; {{ignored}} ignored; 0 measured; 0 filtered out")
sys.exit(101 if failed else 0)
'''


class Planted:
    """What a suite of planted tests came to: exit code, what was written, and the runs of each test."""

    def __init__(self, tests, is_integration=True, in_ci=True, listed=""):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            program = directory / "program"
            (directory / "log").touch()
            program.write_text(PLANTED.format(python=sys.executable, tests=tests, directory=directory))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            written = io.StringIO()
            with contextlib.redirect_stdout(written):
                screen = runner.Screen()
                jobs = runner.jobs_of([("target", is_integration, directory, str(program))], ())
                suite = runner.Suite(screen, dict(os.environ), {})
                suite.run([job for job in jobs if job.test_class != "long"])
                self.code = runner.verdict(suite, listed, in_ci, screen)
            self.text = written.getvalue()
            lines = [line.split() for line in (directory / "log").read_text().splitlines()]
        self.log = [(test, float(begin), float(end)) for test, begin, end in lines]

    def runs(self, test):
        return sum(of == test for of, _, _ in self.log)

    def most_at_once(self):
        times = sorted([(begin, 1) for _, begin, _ in self.log] + [(end, -1) for _, _, end in self.log])
        running = most = 0
        for _, step in times:
            running += step
            most = max(most, running)
        return most


class Runner(unittest.TestCase):
    def test_all_pass(self):
        planted = Planted(["one", "waiting::two", "measured::three", "alone::four", "long::five"])
        self.assertEqual(planted.code, 0, planted.text)
        self.assertIn("tests: 4 passed, 0 failed, 0 skipped", planted.text)
        self.assertEqual(planted.runs("long::five"), 0)

    def test_a_failure_stands_at_once(self):
        for test in ["fails_1", "waiting::fails_1", "alone::fails_1"]:
            planted = Planted([test, "other"])
            self.assertEqual((planted.code, planted.runs(test)), (1, 1), planted.text)
            self.assertIn(f"FAILED target {test}", planted.text)

    def test_a_measuring_test_that_passes_seven_more_times_is_flaky(self):
        planted = Planted(["measured::fails_1"])
        self.assertEqual((planted.code, planted.runs("measured::fails_1")), (0, 8), planted.text)
        self.assertIn("FLAKY target measured::fails_1", planted.text)

    def test_a_measuring_test_that_fails_once_more_fails(self):
        for test in ["measured::fails", "measured::fails_1_2", "measured::fails_1_8"]:
            planted = Planted([test])
            self.assertEqual((planted.code, planted.runs(test)), (1, 8), planted.text)

    def test_three_flaky_tests_pass_and_four_fail(self):
        for number, code in [(3, 0), (4, 1)]:
            planted = Planted([f"measured::m{of}::fails_1" for of in range(number)])
            self.assertEqual(planted.code, code, planted.text)
            self.assertEqual(planted.text.count("\nFLAKY target"), 2 * number, planted.text)

    def test_repeats_run_after_all_others(self):
        planted = Planted(["measured::a::fails_1", "measured::b", "alone::c", "d"])
        self.assertEqual([test for test, _, _ in planted.log][-8:], ["measured::b"] + 7 * ["measured::a::fails_1"])

    def test_only_a_listed_skip_passes_in_ci(self):
        for test in ["skips", "ignored"]:
            self.assertEqual(Planted([test]).code, 1)
            self.assertEqual(Planted([test, "other"], in_ci=False).code, 0)
            self.assertEqual(Planted([test, "other"], listed=f"{test}: not here\n").code, 0)
        self.assertEqual(Planted(["skips"], listed="skips:\n").code, 1, "without a reason")

    def test_a_process_that_ends_early_fails(self):
        self.assertEqual(Planted(["dies"]).code, 1)
        self.assertEqual(Planted(["dies", "tests::other"], is_integration=False).code, 1)

    def test_no_test_at_all_fails(self):
        self.assertEqual(Planted([]).code, 1)

    def test_unit_tests_run_in_one_process_but_for_those_of_a_class(self):
        # A module of the crate's own may have any name.
        tests = ["measured::tests::one", "tests::two", "x::tests::measured::fails_1", "tests::alone::three"]
        planted = Planted(tests, is_integration=False)
        self.assertEqual(planted.code, 0, planted.text)
        self.assertIn("target (2 tests)", planted.text)
        self.assertEqual([planted.runs(test) for test in tests], [1, 1, 8, 1])

    def test_retries_are_told(self):
        planted = Planted(["retries"])
        self.assertIn("RETRIED retries the hypervisor took 3.0%", planted.text)
        self.assertIn("1 retried", planted.text)

    def test_those_that_wait_run_at_once_and_those_that_measure_do_not(self):
        waiting = Planted([f"waiting::sleeps{of}" for of in range(6)])
        self.assertGreater(waiting.most_at_once(), 3)
        for test_class in ["measured", "alone"]:
            alone = Planted([f"{test_class}::sleeps{of}" for of in range(3)])
            self.assertEqual(alone.most_at_once(), 1)


if __name__ == "__main__":
    unittest.main()
