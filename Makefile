# NVSentinel: the two commands are `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES := $(shell sed -n 's,^\t\(\..*\),\1,p' go.work)
PREPARE = CGO_ENABLED=0 go run ./tests/cmd/prepare

STORE ?= sqlite
STRATEGY ?= PROCESS
NODES ?= 20
SEEDS ?= 13
FIRST ?=
DURATION ?= 60m
KEEP ?=
BREAK ?=
EVIDENCE ?=
ONLY ?=
QUICK ?=
PROFILES ?=
PROFILE ?=
REGISTRY ?=
TAG ?= $(shell sed -n 's/^appVersion: *//p' distros/helm/nvsentinel/Chart.yaml)
PLATFORMS ?=
OUT ?= bin/images
BASE ?=
AUTHORITIES ?=
SERVE ?=
BESIDE ?=
DRY_RUN ?=
SINCE ?= origin/main
SHARD ?=
PUSH ?=

.PHONY: help
help: ## Show the make targets.
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  demo accepts STORE=sqlite|postgresql|mongodb STRATEGY=PROCESS|PERSIST_ONLY NODES=20 KEEP=1 BREAK=<service> EVIDENCE=<directory>"
	@echo "  chaos accepts SEEDS=13 FIRST=1 EVIDENCE=<directory>. soak accepts DURATION=60m FIRST=<seed> SEED=<seed> EVIDENCE=soak-evidence"

.PHONY: demo
demo: ## Demonstrate a remediation on a local cluster, from log line to released node.
	@hack/packages.sh $(if $(filter postgresql,$(STORE)),postgresql) $(if $(filter mongodb,$(STORE)),python3-venv)
	@$(if $(filter mongodb,$(STORE)),hack/mongodb.sh)
	@$(PREPARE) demo
	@# Not go run: it ends with status 1 after Ctrl-C, whatever the exit status of the program.
	@exec bin/demo --store $(STORE) --strategy $(STRATEGY) --nodes $(NODES) $(if $(KEEP),--keep) $(if $(BREAK),--break $(BREAK)) $(if $(EVIDENCE),--evidence $(EVIDENCE))

.PHONY: test
test: ## Run all tests except the long ones, with the race detector.
	@hack/packages.sh gcc postgresql python3-venv systemd-journal-remote ipmitool openipmi dbus
	@hack/test.sh

.PHONY: test-all
test-all: test ## Run all tests including the long ones, the linter, and the check of the documentation site.
	@hack/test.sh -long
	@hack/lint.sh $(MODULES)
	@hack/docs.sh || [ $$? -eq 3 ]

.PHONY: lint
lint: ## Run the linter in every module.
	@hack/lint.sh $(MODULES)

.PHONY: verify
verify: ## Regenerate everything that is generated, and fail with the names of the files that differ.
	@hack/verify.sh

.PHONY: test-changed
test-changed: ## Run the tests of the packages that a change affects: make test-changed [SINCE=origin/main] [SHARD=1/3].
	@hack/packages.sh gcc postgresql python3-venv systemd-journal-remote ipmitool openipmi dbus
	@SINCE=$(SINCE) SHARD=$(SHARD) hack/test-changed.sh

.PHONY: vulnerabilities
vulnerabilities: ## Search the vulnerability database for functions that the programs call.
	@hack/vulnerabilities.sh $(MODULES)

.PHONY: workflows
workflows: ## Check the workflows of .github with actionlint.
	@hack/workflows.sh

.PHONY: fmt
fmt: ## Format the Go code.
	@gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v -e '\.pb\.go$$' -e zz_generated)

.PHONY: generate
generate: ## Regenerate code from protobufs, API types and catalogs, the configuration pages, and manifests from the chart (needs protoc).
	@hack/generate.sh

.PHONY: demo-output
demo-output: ## Write the output of the demo into the pages, with a picture of it.
	@$(PREPARE) demo
	@hack/demo-output.sh

.PHONY: docs
docs: ## Build the documentation site into bin/site, or serve it: make docs [SERVE=1].
	@hack/docs.sh $(if $(SERVE),serve)

.PHONY: build
build: ## Build every binary into bin/.
	@$(PREPARE) services bin

.PHONY: images
images: ## Build the images without Docker: make images [REGISTRY=registry.example.com/nvidia/nvsentinel] [TAG=0.1.0] [PLATFORMS=linux/amd64,linux/arm64] [ONLY=janitor] [PUSH=1].
	@$(if $(AUTHORITIES),,[ -e /etc/ssl/certs/ca-certificates.crt ] || hack/packages.sh ca-certificates)
	@$(if $(BASE),hack/packages.sh gcc)
	@GOWORK=off CGO_ENABLED=0 go -C hack/tools build -o $(CURDIR)/bin/tools/images ./images
	@exec bin/tools/images --out $(OUT) --tag $(TAG) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PLATFORMS),--platforms $(PLATFORMS)) $(if $(ONLY),--only $(ONLY)) $(if $(BASE),--base $(BASE)) $(if $(AUTHORITIES),--authorities $(AUTHORITIES)) $(if $(BESIDE),--beside $(BESIDE)) $(if $(PUSH),--push)

.PHONY: release
release: ## Publish a release, which the release workflow does, or try it with a local registry: make release DRY_RUN=1 [ONLY=janitor] [PLATFORMS=linux/amd64] [KEEP=1].
	@$(if $(AUTHORITIES),,[ -e /etc/ssl/certs/ca-certificates.crt ] || hack/packages.sh ca-certificates)
	@DRY_RUN=$(DRY_RUN) VERSION=$(TAG) REGISTRY=$(REGISTRY) PLATFORMS=$(PLATFORMS) ONLY=$(ONLY) BASE=$(BASE) BESIDE=$(BESIDE) AUTHORITIES=$(AUTHORITIES) KEEP=$(KEEP) hack/release.sh

.PHONY: chaos
chaos: ## Run the chaos test, which kills services at random points: make chaos SEEDS=20. Repeat one seed with FIRST=7 SEEDS=1.
	@hack/packages.sh gcc postgresql python3-venv
	@SEEDS=$(SEEDS) FIRST=$(FIRST) EVIDENCE=$(EVIDENCE) hack/chaos.sh

.PHONY: soak
soak: ## Run the chaos test for DURATION=60m on all stores, with outages of minutes.
	@hack/packages.sh postgresql python3-venv
	@DURATION=$(DURATION) FIRST=$(FIRST) SEED=$(SEED) EVIDENCE=$(EVIDENCE) hack/soak.sh

.PHONY: e2e
e2e: ## Install the chart on a real node and test it end to end, as root: make e2e [PROFILE=small] [BREAK=<image>] [EVIDENCE=<directory>] [KEEP=1].
	@PROFILE=$(PROFILE) BREAK=$(BREAK) EVIDENCE=$(EVIDENCE) KEEP=$(KEEP) hack/e2e.sh

.PHONY: bench
bench: ## Benchmark the suite and compare each figure with its measured lower bound: make bench [QUICK=1] [ONLY=ingest,drain] [AGAINST=<directory of other binaries>] [JANITOR=1] [DEEP=10000000] [NOISE=1m].
	@hack/bench.sh $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(AGAINST),--against $(AGAINST)) $(if $(JANITOR),--janitor) $(if $(DEEP),--deep $(DEEP)) $(if $(NOISE),--noise $(NOISE))

# NODES and DURATION have defaults for the demo and the soak; here only what you set counts.
given = $(if $(filter command environment,$(firstword $(origin $(1)))),--$(2) $($(1)))

.PHONY: scale
scale: ## Benchmark the suite at the size of real fleets: make scale [NODES=1000,3000,10000] [ONLY=gateways,control] [DURATION=10m] [PROFILES=<directory>].
	@hack/scale.sh $(call given,NODES,nodes) $(call given,DURATION,duration) $(if $(ONLY),--only $(ONLY)) $(if $(PROFILES),--profiles $(PROFILES))

.PHONY: mutate-strategy
mutate-strategy: ## Remove each filter on the processing strategy in turn and list the tests that fail.
	@go run ./tests/cmd/mutate-strategy

.PHONY: mutate
mutate: ## Run mutation tests on the pure packages and list undetected mutations: make mutate [PKG=fault-quarantine/decision] [SAMPLE=45].
	@go run ./tests/cmd/mutate $(if $(PKG),--packages $(PKG)) $(if $(SAMPLE),--sample $(SAMPLE))

.PHONY: clean
clean: ## Remove build outputs.
	@rm -rf bin
