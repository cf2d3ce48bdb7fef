# One command for each thing one does here. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint fmt docs fuzz bench bench-full bench-observe bench-recording bench-report bench-scale clean

help: ## List what there is.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build, then run a real profile between two hosts on this machine.
	@scripts/demo

# The cheapest first; the tests last, so that their results are the last lines.
test: lint docs fuzz ## Everything that CI runs.
	@scripts/test

lint: ## Formatting, licences and sources of dependencies, clippy.
	cargo fmt --all --check
	cargo deny --log-level error check licenses bans sources
	cargo clippy --workspace --all-targets --locked -- -D warnings

fmt: ## Format the code.
	cargo fmt --all

docs: ## Build the documentation of all crates; a warning is an error.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

fuzz: ## Run every fuzz target for a short time.
	@scripts/fuzz

bench: ## wirecost beside its peers, and its ports of them: a quarter of an hour at most.
	@scripts/bench --budget 15

bench-full: ## The same at all points, which takes an hour or two.
	@scripts/bench --full --rounds 15

bench-observe: ## What observing costs: probes against none, in pairs of slices of one run.
	cargo build --release --locked -p wirecost -p wirecost-bench
	target/release/wirecost-bench observe

bench-recording: ## Instructions that counting and timing an operation takes.
	cargo build --release --locked -p wirecost-bench
	target/release/wirecost-bench recording

bench-report: ## The table of a thousand runs.
	cargo build --release --locked -p wirecost -p wirecost-bench
	target/release/wirecost-bench report

bench-scale: ## Thirty thousand connections beside a hundred, on loopback and in a lab.
	cargo build --release --locked -p wirecost -p wirecost-bench
	target/release/wirecost-bench scale
	target/release/wirecost-bench scale --lab

clean: ## Remove what was built.
	cargo clean
	rm -rf fuzz/target
