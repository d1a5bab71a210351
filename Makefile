# `make help` lists the targets. Needed: Go, make, gcc. Other missing programs are installed if
# possible (root on Debian or Ubuntu), or listed in one message.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The same flags everywhere: what the demo, the tests, the linters and the programs of a local cluster have in common is then
# compiled once. Without debug information, this takes an eighth less time. Stack traces and profiles do not need it. Tests do not
# vet, because the linters do, once and with more analyzers.
export CGO_ENABLED ?= 0
export GOFLAGS     := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false -vet=off)

# Built programs and tools are kept outside the work tree, keyed by their versions.
CACHE := $(or $(EVERYNODE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/everynode)
TOOLS := $(CACHE)/tools/$(shell cat tools/go.mod tools/go.sum 2>/dev/null | sha256sum | cut -c1-16)

# golangci-lint with the linter of Kubernetes' API conventions.
GOLANGCI_LINT  := $(TOOLS)/golangci-lint-kube-api-linter
CONTROLLER_GEN := $(TOOLS)/controller-gen
CRD_REF_DOCS   := $(TOOLS)/crd-ref-docs
LOCAL          := go -C local run ./cmd/everynode-local
MODULES        := . api charts local monitoring test release site tools tools/actionlint tools/krew
LINTED         := $(filter-out tools tools/actionlint tools/krew,$(MODULES))

# The number of random histories of each planner that the unit tests simulate.
HISTORIES ?= 3000

# Where to download released Kubernetes programs, such as https://dl.k8s.io/release, instead of building them.
DOWNLOAD ?= $(EVERYNODE_KUBERNETES_DOWNLOAD)
export EVERYNODE_KUBERNETES_DOWNLOAD := $(DOWNLOAD)

# The number of API servers among which the tests that need one are divided.
SHARDS ?= 4

# Of the local cluster: the minor version of Kubernetes, such as 1.34; the default is 1.37.
K8S ?=

##@ Use

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Show the main job on a local cluster of real nodes, and leave it running (K8S: another version; DOWNLOAD).
	@echo "building the demo (the first time, this takes a minute) …"
	@program="$$(mktemp -d)"; trap 'rm -rf "$$program"' EXIT; GOGC=$${GOGC:-off} GOMEMLIMIT=$${GOMEMLIMIT:-1GiB} go -C test build -o "$$program/" ./cmd/everynode-demo; \
	cd test && "$$program/everynode-demo" up $(if $(K8S),-kubernetes=$(K8S))

.PHONY: join
join: ## Let another node join the cluster of the demo (NODE: its name; node-5).
	@go -C local run ./cmd/everynode-local join $(or $(NODE),node-5) --name everynode-demo

.PHONY: demo-down
demo-down: ## Take the demo's cluster away again.
	@go -C test run ./cmd/everynode-demo down

# REGISTRY has a default for releases, so only that of the user counts. GOTOOLCHAIN: any Go that builds the product is enough here.
.PHONY: install
install: ## Build Everynode, and install or upgrade it in the cluster of the current kubeconfig (REGISTRY; YES=1: do not ask).
	@GOTOOLCHAIN=local go -C release run ./cmd/everynode-release install -root '$(CURDIR)' -dir '$(CURDIR)/bin/install' \
	-plugin '$(CURDIR)/bin/kubectl-everynode' -registry '$(if $(filter file,$(origin REGISTRY)),,$(REGISTRY))' $(if $(YES),-yes)

.PHONY: uninstall
uninstall: ## Remove Everynode from the cluster of the current kubeconfig (YES=1: do not ask; docs/uninstall.md).
	@test -t 0 -o -n "$(YES)" || { echo "make uninstall asks first, and standard input is not a terminal: to confirm, set YES=1" >&2; exit 1; }
	@go run ./cmd/kubectl-everynode uninstall $(if $(YES),--yes)

.PHONY: recording
recording: ## Record the terminal picture of the README on the demo's cluster.
	@go -C test run ./cmd/everynode-demo record "$(CURDIR)/docs/demo.svg"

.PHONY: build
build: ## Build the programs into bin/ (VERSION: other than that of the commit).
	CGO_ENABLED=0 go build -ldflags="-s -w $(if $(VERSION),-X github.com/everynode/everynode/internal/version.version=$(VERSION))" -o bin/ ./cmd/...
	go -C local build -o ../bin/ ./cmd/everynode-local

# Of the benchmark: nodes, repetitions, a folder for the report, and a regular expression that picks runs.
N     ?= 1000
PAIRS ?= 3
OUT   ?=
ONLY  ?=
BENCHFLAGS ?=

# Builds the benchmark and runs it with the flags that follow.
RUN_BENCH = @program="$$(mktemp -d)"; trap 'rm -rf "$$program"' EXIT; go -C test build -o "$$program/" ./cmd/everynode-bench; "$$program/everynode-bench"

.PHONY: bench
bench: ## Measure what Everynode costs, beside the least that is possible (N, PAIRS, OUT, ONLY; docs/benchmark.md).
	$(RUN_BENCH) -nodes=$(N) -pairs=$(PAIRS) -out='$(OUT)' -only='$(ONLY)' -command="make bench N=$(N) PAIRS=$(PAIRS)$(if $(ONLY), ONLY='$(ONLY)')" $(BENCHFLAGS)

.PHONY: bench-cli
bench-cli: ## Measure a whole run of the command line, with the manager and simulated nodes (N, PAIRS, OUT).
	$(RUN_BENCH) -nodes=$(N) -pairs=$(PAIRS) -out='$(OUT)' -only='^command-line$$' -command='make bench-cli N=$(N) PAIRS=$(PAIRS)' -count=false $(BENCHFLAGS)

# Of the benchmark with many NodeJobs: how many, and how many of them find their records on the nodes.
JOBS   ?= 100
SEEDED ?= 89

.PHONY: bench-many
bench-many: ## Measure the manager with many NodeJobs on simulated nodes (N, JOBS, SEEDED, OUT).
	$(RUN_BENCH) -nodes=$(N) -pairs=1 -nodejobs=$(JOBS) -seeded=$(SEEDED) -out='$(OUT)' -only='^many$$' \
	-command='make bench-many N=$(N) JOBS=$(JOBS) SEEDED=$(SEEDED)' -count=false -idle=2m $(BENCHFLAGS)

.PHONY: bench-budget
bench-budget: ## Measure a NodeDisruptionBudget on simulated nodes, beside none (N, OUT).
	$(RUN_BENCH) -nodes=$(N) -pairs=1 -base=0 -out='$(OUT)' -only='^budget$$' -command='make bench-budget N=$(N)' -count=false -idle=2m $(BENCHFLAGS)

.PHONY: bench-checks
bench-checks: ## Measure checks before the task on simulated nodes, beside none (N, OUT).
	$(RUN_BENCH) -nodes=$(N) -pairs=1 -base=0 -out='$(OUT)' -only='^checks$$' -command='make bench-checks N=$(N)' -count=false -idle=0 $(BENCHFLAGS)

.PHONY: bench-real
bench-real: ## Measure Everynode and the DaemonSet pattern on 4 real nodes; needs Linux and root (PAIRS, OUT).
	$(RUN_BENCH) -real -nodes=4 -pairs=$(PAIRS) -out='$(OUT)' -command='make bench-real PAIRS=$(PAIRS)' $(BENCHFLAGS)

# UPDATE=1 writes the baseline of the check.
UPDATE ?=

.PHONY: bench-check
bench-check: ## Compare a short benchmark with docs/benchmark/check.json, before a release (UPDATE=1 writes that file).
	$(RUN_BENCH) -check -nodes=300 -pairs=2 $(if $(UPDATE),-update) $(BENCHFLAGS)

.PHONY: bench-go
bench-go: ## Measure the planners, a pass of the controller, and the command line on 1,000 nodes.
	go test -run='^$$' -bench=. -benchmem ./internal/nodejob/plan ./internal/nodebudget/budget ./internal/manager/controller ./cmd/kubectl-everynode

##@ Develop

.PHONY: generate
generate: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Regenerate deepcopy code, apply configurations, the CRDs, JSON schemas and references, the manager's role, the PrometheusRule, and the chart's copies of manifests.
	$(CONTROLLER_GEN) object crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir=config/crd
	rm -rf api/applyconfiguration/api # also what belongs to types that are gone
	$(CONTROLLER_GEN) applyconfiguration paths=./api/v1alpha1/...
	for kind in nodejobs nodeguards nodedisruptionbudgets; do \
		go -C tools run ./crdfinish -misplaced ../internal/cli/misplaced.yaml -schemas ../config/schemas ../config/crd/everynode.dev_$$kind.yaml template || exit 1; done
	$(CRD_REF_DOCS) --log-level=ERROR --source-path=api/v1alpha1 --config=docs/reference/config.yaml --templates-dir=docs/reference/templates --renderer=markdown --output-path=docs/reference/api.md
	sed -E -i -e 's#_?\[(int32|UID|IntOrString)\]\([^)]*\)_?#_\1_#g' -e 's/3\.1536e\+07/31536000/g' docs/reference/api.md
	go -C test run ./cmd/everynode-reference markdown ../docs/reference/kubectl-everynode.md
	go -C test run ./cmd/everynode-reference man ../docs/reference/man
	go -C test run ./cmd/everynode-reference records ../docs/reference/records.md
	go -C test run ./cmd/everynode-reference reasons ../docs/reference/reasons.md
	go -C test run ./cmd/everynode-reference outputs ../docs/reference/outputs.md
	go test ./internal/docs -run=TestThePageOfMetrics -update
	{ printf '# Flags of the manager\n\n`make generate` writes this page from `everynode --help`.\n\n```text\n'; \
	  go run ./cmd/everynode --help | sed 's/^  -/  --/'; printf '```\n'; } > docs/reference/manager.md
	$(CONTROLLER_GEN) rbac:roleName=everynode-manager paths=./internal/manager/controller paths=./internal/manager/guardcontroller paths=./internal/manager/budgetcontroller paths=./internal/manager/metricsauth paths=./internal/manager/policies paths=./internal/manager/requirements paths=./internal/uninstall output:rbac:dir=config/rbac
	{ printf '# make generate writes this file from rules.yaml.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: everynode\n  namespace: everynode-system\nspec:\n'; \
	  sed -e '/^#/d' -e 's/^/  /' config/monitoring/rules.yaml; } > config/monitoring/prometheusrule.yaml
	cd charts/everynode/files && for file in $$(find . -type f); do cp ../../../config/$$file $$file; done

.PHONY: format
format: $(GOLANGCI_LINT) ## Format the code; the tests with lines of at most 140 columns.
	@for module in $(LINTED); do (cd $$module; \
		$(GOLANGCI_LINT) fmt --config '$(CURDIR)/.golangci.yml' ./... && $(GOLANGCI_LINT) fmt --config '$(CURDIR)/.golangci-tests.yml' ./...); done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters over all modules and workflows.
	go -C tools/actionlint tool actionlint -shellcheck= -pyflakes= '$(CURDIR)'/.github/workflows/*
	@! grep -nE 'uses: .*@v' .github/workflows/* || { echo "name each action by the digest of its commit, with the version in a comment"; exit 1; }
	@echo "kube-api-linter (api)"; cd api && $(GOLANGCI_LINT) run --config '$(CURDIR)/.golangci-api.yml' ./...
	@for module in $(LINTED); do echo "golangci-lint run ($$module)"; (cd $$module; \
		$(GOLANGCI_LINT) run --config '$(CURDIR)/.golangci.yml' ./... || exit 1; \
		$(GOLANGCI_LINT) fmt --diff --config '$(CURDIR)/.golangci-tests.yml' ./... || { echo "run: make format"; exit 1; }) || exit 1; done

.PHONY: verify
verify: ## Check that generated files, module files and formatting are as committed, and lint.
	@before="$$(git diff | sha256sum)"; \
	$(MAKE) --no-print-directory generate; \
	if [ "$$before" != "$$(git diff | sha256sum)" ]; then \
		git --no-pager diff --stat; echo "generated files differ: commit what 'make generate' changed"; exit 1; fi
	@for module in $(MODULES); do \
		echo "go mod tidy -diff ($$module)"; go -C $$module mod tidy -diff || { echo "run: go -C $$module mod tidy"; exit 1; }; done
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	@$(MAKE) --no-print-directory lint

.PHONY: test
test: test-unit test-mutants test-release test-api test-browser test-local test-e2e ## Run all tests but those of make test-night: unit, release, API server, real nodes.

.PHONY: test-night
test-night: test-race fuzz explore sweep mutants test-gitops test-matrix ## Run what takes too long for make test, before a release.
	$(MAKE) --no-print-directory test-unit HISTORIES=50000
	$(MAKE) --no-print-directory test-api test-e2e NIGHT=1

.PHONY: test-unit
test-unit: ## Run the unit tests.
	go -C api test ./...
	go -C charts test -count=1 ./...
	go -C monitoring test -count=1 ./...
	go -C site test ./...
	go test $$(go list ./... | grep -v -e /internal/nodejob/plan$$ -e /internal/nodeguard/guard$$ -e /internal/nodebudget/budget$$ -e /cmd/everynode$$ -e /internal/mutants)
	EVERYNODE_HISTORIES=$(HISTORIES) go test -timeout=30m -p=1 ./internal/nodejob/plan ./internal/nodeguard/guard ./internal/nodebudget/budget ./cmd/everynode
	go test -run='^$$' -bench='/100$$' -benchtime=1x ./internal/manager/controller ./internal/nodejob/plan # benchmarks that nobody runs break
	go -C test test ./bench/... ./cmd/... ./install ./s3 ./schemas ./shards

# Of the explorations: the tests, the faults, the nodes (0 for those of each world), and for how long a world is explored.
WORLDS ?= ^TestExplore
FAULTS ?= 1
NODES  ?= 0
FOR    ?= 15m

.PHONY: explore
explore: ## Explore all histories of small worlds of the planners, each to its end or for 15 minutes (WORLDS, FAULTS, NODES, FOR).
	for pkg in nodejob/plan nodebudget/budget nodeguard/guard; do \
		go test -count=1 -timeout=12h -v ./internal/$$pkg -run '$(WORLDS)' -states 0 -faults $(FAULTS) -nodes $(NODES) -for $(FOR) || exit 1; done

# Of the sweep: the scenarios and the transitions, and every how many-th fault is played.
SWEEPS ?= ^(TestSweep|TestTogether|TestTransitions)$$
STRIDE ?= 1

.PHONY: sweep
sweep: ## Play scenarios of the whole manager with each fault at each of its writes, and all transitions of a NodeJob; takes half an hour (SWEEPS, STRIDE).
	go test -count=1 -timeout=3h -v ./cmd/everynode -run '$(SWEEPS)' -stride $(STRIDE)

.PHONY: test-race
test-race: ## Run the tests of what runs at the same time with Go's race detector, before a release; takes about 5 minutes.
	CGO_ENABLED=1 go test -race -count=1 ./internal/manager/... ./internal/cli/... ./internal/ui/...

# How long each fuzz test runs.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## Run each fuzz test for a minute, before a release (FUZZTIME). What has failed is kept as a test.
	@grep -rn --include='*_test.go' '^func Fuzz' . | sed -E 's#/[^/]*:[0-9]+:func (Fuzz[A-Za-z]*).*# \1#' | while read -r package name; do \
		echo "$$package $$name"; go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) "$$package" </dev/null || exit 1; done

# Of the search for a flaky test: the tests, their package and its module, and how often they run.
RUN    ?=
PKG    ?= ./...
MODULE ?= .
COUNT  ?= 100

.PHONY: deflake
deflake: ## Run tests again and again in random order on a busy machine, until one fails (RUN, PKG, MODULE, COUNT).
	@busy=(); trap 'kill "$${busy[@]}"' EXIT; for i in $$(seq "$$(getconf _NPROCESSORS_ONLN)"); do sh -c 'while :; do :; done' & busy+=($$!); done; \
	go -C $(MODULE) test -shuffle=on -failfast -count=$(COUNT) -run='$(RUN)' $(PKG)

.PHONY: test-mutants
test-mutants: ## Put mistakes into the planner, and see that its tests find each.
	go test -v -timeout=40m ./internal/mutants

# Of the generated mutants: the packages, each with others whose tests also count after a comma, and flags such as -run='gate.go: gate' or -histories=5000.
PACKAGES    ?= internal/nodejob/plan internal/nodeguard/guard internal/nodebudget/budget internal/nodejob/record,internal/nodejob/plan internal/outcome,internal/nodejob/plan internal/observe,internal/manager/controller
MUTANTFLAGS ?=

.PHONY: mutants
mutants: ## Change each decision of the planners, one at a time, and list the changes that no test finds; takes an hour (PACKAGES, MUTANTFLAGS).
	@program="$$(mktemp -d)"; trap 'rm -rf "$$program"' EXIT; go -C test build -o "$$program/" ./cmd/everynode-mutants; \
	"$$program/everynode-mutants" $(MUTANTFLAGS) $(PACKAGES)

.PHONY: test-release
test-release: ## Make a release for this machine's platform twice, and test its files.
	go -C release test -count=1 -timeout=30m ./...

# Flags of go test, such as -v; and whether to run also the tests that the tables named night leave to make test-night (1).
TESTFLAGS ?=
NIGHT     ?=

.PHONY: test-api
test-api: ## Run the tests against a real API server (K8S, TESTFLAGS, NIGHT).
	assets="$$($(LOCAL) binaries $(if $(K8S),--kubernetes=$(K8S)) etcd kube-apiserver kubectl kube-controller-manager)"; KUBEBUILDER_ASSETS="$$assets" exec go -C test test $(TESTFLAGS) -count=1 -timeout=40m ./api -shards=$(SHARDS) $(if $(NIGHT),-night)

# A folder for pictures of the dashboard; whether to measure how long it takes (1), or its memory during a time (1h), instead of testing
# it; and a regular expression of tests to leave out.
PICTURES ?=
MEASURE  ?=
SKIP     ?=

.PHONY: test-browser
test-browser: docs ## Show the dashboard and the site in a headless Chromium (PICTURES: a folder for pictures of it; MEASURE=1: how long it takes, MEASURE=1h: memory over an hour; SKIP; K8S).
	@command -v chromium >/dev/null || [ "$$(id -u)" = 0 ] || echo "Chromium is not installed, so the tests of the dashboard are skipped: apt-get install chromium"
	assets="$$($(LOCAL) binaries $(if $(K8S),--kubernetes=$(K8S)) etcd kube-apiserver kubectl)"; KUBEBUILDER_ASSETS="$$assets" exec go -C test test -count=1 ./browser $(if $(SKIP),-skip='$(SKIP)') $(if $(PICTURES),-timeout=20m -pictures='$(abspath $(PICTURES))') $(if $(MEASURE),-v $(if $(filter 1,$(MEASURE)),-run=TestFirstPaint -measure,-timeout=0 -run=TestMemory -changes=$(MEASURE)))

.PHONY: test-local
test-local: ## Run the local cluster's own tests, on real nodes (K8S).
	go -C local test -v $$(go -C local list ./... | grep -v /cluster$$)
	go -C local test -v ./cluster $(if $(K8S),-kubernetes=$(K8S))

.PHONY: test-released
test-released: ## Install, upgrade and remove two releases on real nodes, which pull from a local registry, before a release (K8S).
	go -C test test -v -count=1 -timeout=30m ./released $(if $(K8S),-kubernetes=$(K8S))

.PHONY: test-gitops
test-gitops: ## Have the kustomize-controller of Flux install, upgrade and remove two releases on real nodes, and wait for NodeJobs, before a release (K8S).
	go -C test test -v -count=1 -timeout=40m ./gitops $(if $(K8S),-kubernetes=$(K8S))

.PHONY: test-e2e
test-e2e: ## Run Everynode on real nodes (K8S, NIGHT; RUN: a regular expression that picks tests).
	go -C test test -v -count=1 -timeout=85m -parallel=2 $(if $(RUN),-run='$(RUN)') ./e2e -shards=3 $(if $(NIGHT),-night) $(if $(K8S),-kubernetes=$(K8S))

# Every version that docs/kubernetes-versions.md names, and those on which the tests of these requirements run on real nodes.
MATRIX      := 1.34 1.35 1.36 1.37
MATRIX_REAL := 1.34 1.37
MATRIX_ROWS := ^TestR(01|04|13|18|19|23|25)_

.PHONY: test-matrix
test-matrix: ## Run the tests on all versions of Kubernetes: API server, and the main ones on real nodes.
	@for version in $(MATRIX); do $(MAKE) --no-print-directory test-api K8S=$$version; done
	@for version in $(MATRIX_REAL); do $(MAKE) --no-print-directory test-released test-e2e K8S=$$version RUN='$(MATRIX_ROWS)'; done

# What to run on the new machine: all, demo, test or none.
STEP ?= all

.PHONY: test-fresh
test-fresh: ## Run 'make demo' and 'make test' on the commit on a new minimal Debian 12 with empty caches; needs Linux and root (STEP: other arguments of make, such as 'test-e2e RUN=TestR13').
	@STEP='$(STEP)' exec test/fresh.sh

# The address at which the site will be.
SITE ?= http://localhost:1313/

.PHONY: docs
docs: ## Build the site of the documentation into site/public, and check its links (SITE: its address).
	@echo "building the site (the first time, this compiles Hugo, which takes a minute or two) …"
	HUGO_PARAMS_VERSIONS="$$(git tag --list 'v*' --sort=-version:refname | xargs)" \
	go -C site tool hugo --noBuildLock --panicOnWarning --cleanDestinationDir --baseURL='$(SITE)'
	go -C site run ./links -base='$(SITE)' -repository="$$(sed -n 's/^  repository: //p' site/hugo.yaml)" .. public

.PHONY: docs-serve
docs-serve: ## Show the site at http://localhost:1313, and follow changes of the pages.
	go -C site tool hugo server --noBuildLock

##@ Release

# The prefix of the images; platforms, such as linux/amd64, if not all; and the version of Go, which determines the bytes.
REGISTRY  ?= ghcr.io/everynode
PLATFORMS ?=
RELEASE    = GOTOOLCHAIN=$$(sed -n 's/^toolchain //p' release/go.mod) go -C release run ./cmd/everynode-release

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in the code that is used (asks vuln.go.dev).
	GOTOOLCHAIN=$$(sed -n 's/^toolchain //p' release/go.mod) go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

.PHONY: release
release: ## Write a release of the commit to dist/ (VERSION, REGISTRY, PLATFORMS; docs/releasing.md).
	@$(RELEASE) build -root '$(CURDIR)' -dir '$(CURDIR)/dist' -version '$(VERSION)' -registry '$(REGISTRY)' -platforms '$(PLATFORMS)'

.PHONY: publish
publish: ## Push the images and the chart of dist/ to a registry, to which its manifests refer afterwards (REGISTRY).
	@$(RELEASE) publish -dir '$(CURDIR)/dist' -registry '$(REGISTRY)'

$(TOOLS)/%:
	@echo "building $* (once)"
	@mkdir -p $(TOOLS)
	@package="$$(go -C tools list -f '{{.ImportPath}}' tool | grep "/$*$$")"; go -C tools build -o $@ "$$package"
