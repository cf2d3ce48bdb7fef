# The commands for developers. `make` alone lists them.

SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo dist install vm test test-quick test-long test-vm need-to-test lint deny fmt docs fuzz fuzz-long readme gallery compare-uperf bench bench-full bench-lab bench-observe bench-recording bench-report bench-scale bench-statistics clean

help: ## List the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build, then run a real profile between two hosts on this machine.
	@scripts/demo

install: ## Build, and install the program wirecost for this user.
	@scripts/need-to-build
	cargo install --locked --path crates/cli

dist: ## One file that runs on any Linux from 6.1, in target/dist: make dist [ARCH=amd64|arm64].
	@scripts/dist $(ARCH)

vm: ## Run a virtual machine with another kernel, for --vm, until Ctrl-C: make vm [KERNEL=6.1|6.12].
	@scripts/vm-up "$$(scripts/dist | tail -n 1)" $(KERNEL)

test: need-to-test ## Everything but what make test-vm and test-long run; each step and test is printed with its time. Installs what is missing.
	@scripts/test --all

test-quick: need-to-test ## For daily work: unit tests, conservation, refusals, one run of each engine.
	@scripts/test --quick

test-long: need-to-test ## All tests, also those that take minutes each, with new seeds.
	@scripts/test --all --long

test-vm: ## The tests that need virtual machines with other kernels, a quarter of an hour: make test-vm [PART=WORD].
	@scripts/test-vm $(PART)

need-to-test:
	@scripts/need-to-test

lint: need-to-test ## Formatting, licences and sources of dependencies, clippy.
	@scripts/lint

deny: ## Licences, sources and advisories of dependencies, by cargo-deny: after changes of Cargo.lock or deny.toml.
	@scripts/lint --deny

fmt: ## Format the code.
	cargo fmt --all

docs: need-to-test ## Build the documentation of all crates; a warning is an error.
	@scripts/docs

fuzz: ## Run every fuzz target under libFuzzer for 20 seconds.
	@scripts/fuzz

fuzz-long: ## Run every fuzz target under libFuzzer for ten minutes.
	@scripts/fuzz 600

readme: ## Run the examples in README.md again, and put what they print there.
	@scripts/readme

gallery: ## Run the studies of docs/gallery again, and put their pages and pictures there: three quarters of an hour.
	@scripts/gallery

compare-uperf: ## What uperf and wirecost count of the same profiles: UPERF=/path/to/uperf (1.0.8).
	@test -n "$(UPERF)" || { echo 'name a uperf binary: make compare-uperf UPERF=/path/to/uperf' >&2; exit 2; }
	cargo build --release --locked -p wirecost
	scripts/compare-uperf "$(UPERF)" $(TARGET)/release/wirecost

bench: ## wirecost beside its peers, and its ports of them: a quarter of an hour at most.
	@scripts/bench --budget 15

bench-full: ## The same at all points, which takes an hour or two.
	@scripts/bench --full --rounds 15

bench-observe: ## What observing costs: probes against none, in pairs of slices of one run.
	cargo build --release --locked -p wirecost -p wirecost-bench
	$(TARGET)/release/wirecost-bench observe

bench-recording: ## Instructions that an operation takes: counting and timing it, and all but the system call.
	cargo build --release --locked -p wirecost-bench
	$(TARGET)/release/wirecost-bench recording

bench-report: ## The table and the page of a thousand runs.
	cargo build --release --locked -p wirecost -p wirecost-bench
	$(TARGET)/release/wirecost-bench report

bench-lab: ## Emulated links filled by TCP: their rate and their errors.
	cargo build --release --locked -p wirecost -p wirecost-bench
	$(TARGET)/release/wirecost-bench lab

bench-scale: ## Thirty thousand connections beside a hundred, on loopback and in a lab.
	cargo build --release --locked -p wirecost -p wirecost-bench
	$(TARGET)/release/wirecost-bench scale
	$(TARGET)/release/wirecost-bench scale --lab

bench-statistics: ## Comparisons of simulated, resampled and fresh studies: false alarms, and changes found.
	cargo build --release --locked -p wirecost -p wirecost-bench
	$(TARGET)/release/wirecost-bench statistics
	$(TARGET)/release/wirecost-bench resampling
	$(TARGET)/release/wirecost-bench tune

clean: ## Remove what was built.
	cargo clean
	rm -rf fuzz/target
