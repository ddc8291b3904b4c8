# Everything a person does with this repository. 'make' alone prints the list.

.DEFAULT_GOAL := help
SHELL := bash

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the main job on real servers; DEMO=serve keeps it running to play with, and serves the console
	@DEMO='$(DEMO)' scripts/demo

.PHONY: demo-typescript
demo-typescript: ## Read old prices with plain GET and SET in TypeScript, and none with the client; ROUNDS=100 makes it longer
	@ROUNDS='$(ROUNDS)' scripts/demo-client typescript

.PHONY: demo-php
demo-php: ## Read old prices with plain GET and SET in PHP, and none with the client; ROUNDS=100 makes it longer
	@ROUNDS='$(ROUNDS)' scripts/demo-client php

.PHONY: test
test: ## Run the tests on real servers: MySQL, or UNSTALE_TEST_DB=mariadb
	@scripts/test

.PHONY: test-lab
test-lab: ## Run the tests of lab: short forms of the fault suite and both checkers, benchmarks, the demo
	@MODULES='lab internal/testenv/docker' scripts/test

.PHONY: test-chart
test-chart: ## Check the Helm chart; CHART=-update writes its copy of the alerts, and deploy/kubernetes.yaml
	@scripts/test-chart $(CHART)

.PHONY: test-browser
test-browser: ## Test the console in Chromium, and the protocol in Node.js; UPDATE_SCREENSHOTS=1 writes the images of the documentation
	@UPDATE_SCREENSHOTS='$(UPDATE_SCREENSHOTS)' scripts/test-browser

.PHONY: test-clients
test-clients: ## Test the clients for TypeScript and PHP, their packages, and with NestJS, Laravel and Symfony; CLIENT=php only one
	@scripts/test-clients $(CLIENT)

.PHONY: test-soak
test-soak: ## Run the soaks: every alert, every fault that stops invalidation or that the console has to name, restored databases, a Cluster with a master away, an application on the release's tags
	@SOAK=yes scripts/test

.PHONY: test-mariadb
test-mariadb: ## Run the tests on MariaDB
	@UNSTALE_TEST_DB=mariadb scripts/test

.PHONY: test-matrix
test-matrix: ## Run the tests that talk to servers on each version that the README names; MATRIX=mariadb-11.8 runs one, DRY=yes lists them
	@scripts/matrix $(if $(DRY),--dry-run) $(MATRIX)

.PHONY: test-vitess
test-vitess: ## Build vtcombo, and run a shop on two shards of Vitess while it, MySQL and workers are killed; ROUNDS=30 makes it longer
	@UNSTALE_VITESS_ROUNDS='$(ROUNDS)' scripts/test-vitess

.PHONY: test-docker
test-docker: ## Run the compose file, and tests with servers in containers; needs a Docker engine with Compose
	@scripts/test-docker

.PHONY: test-upgrade
test-upgrade: ## Run workers of the previous release and of this tree beside each other, and roll back
	@scripts/upgrade $(UPGRADE)

.PHONY: test-schema-changes
test-schema-changes: ## Change captured tables with ALTER, gh-ost, pt-osc, swaps and restores under load; ALTER='--only gh-ost' runs one
	@scripts/schema-changes $(ALTER)

.PHONY: test-drafts
test-drafts: ## Draft maps of six public schemas, write at random, and compare each cached key with the tables; DAY='-day 100 -triggers 3' shortens it
	@scripts/servers "$${UNSTALE_TEST_DB:-mysql}"
	@GOWORK=off CGO_ENABLED=0 go test -trimpath ./cmd/unstale -run TestMapDraftSchemas -v -timeout 3h $(or $(DAY),-day 1500 -triggers 100)

.PHONY: chaos
chaos: ## Break everything until a million transactions are proven; SEED=n repeats a schedule, CHAOS='--proven 1000 --kills 5 --decks 1' shortens it
	@scripts/chaos $(if $(SEED),--seed $(SEED)) $(CHAOS)

.PHONY: verify
verify: ## Check every read of the cache for an hour while things break; SEED=n, VERIFY='--for 5m --phase calm' shortens it
	@scripts/verify $(if $(SEED),--seed $(SEED)) $(VERIFY)

.PHONY: conform
conform: ## Judge package cache against the protocol in 4,400 schedules, as any reader; CONFORM='--seed 7 --only pair' chooses some
	@scripts/conform $(CONFORM)

.PHONY: verify-locks
verify-locks: ## Count the updates lost under locks until a million sections are guarded, while things break; SEED=n, LOCKS='--sections 10000' shortens it
	@scripts/verify-locks $(if $(SEED),--seed $(SEED)) $(LOCKS)

.PHONY: bench-%
bench-%: ## Measure one mode beside a floor, such as bench-drain; BENCH='--runs 9' goes to it
	@scripts/bench $* $(BENCH)

.PHONY: bench-chart
bench-chart: ## Measure the rows of the chart in docs/benchmarks.md and draw it; BENCH='--runs 1' shortens it
	@scripts/bench-chart $(BENCH)

.PHONY: bench-peers
bench-peers: ## Measure beside other outboxes; BENCH='--runs 1' shortens it
	@scripts/bench-peers outboxes $(BENCH)

.PHONY: bench-cache-peers
bench-cache-peers: ## Put package cache and other libraries through the same races, and print who serves what
	@scripts/bench-peers caches $(BENCH)

.PHONY: bench-typescript
bench-typescript: ## Put the client for TypeScript and other libraries through the same races, and measure hits; BENCH='--blocks 5' shortens it
	@scripts/bench-client typescript $(BENCH)

.PHONY: bench-php
bench-php: ## The same for the client for PHP; BENCH='5' shortens it to five blocks
	@scripts/bench-client php $(BENCH)

.PHONY: bench-locks
bench-locks: ## Measure package lock beside other libraries that lock; BENCH='--pairs 500' shortens it
	@scripts/bench-peers locks $(BENCH)

.PHONY: models
models: ## Check the models of the read protocol with Spin: right with all rules, wrong without any one
	@scripts/models

.PHONY: lint
lint: ## Check formatting, workflows, go vet, staticcheck and that go.mod is tidy
	@scripts/lint

.PHONY: build
build: ## Build bin/unstale
	@go build -trimpath -o bin/unstale ./cmd/unstale
	@echo "built bin/unstale"

.PHONY: release
release: ## Make dist/ of VERSION: archives, packages, images, sums; MINISIGN_KEY=file signs them
	@VERSION='$(VERSION)' scripts/release

.PHONY: test-release
test-release: ## Make a release twice, compare, and try it: packages in a bare Debian 12, arm64, images
	@scripts/test-release

.PHONY: servers
servers: ## Unpack server programs below .servers/ (demo and test do it by themselves)
	@scripts/servers

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 5m) each
	@scripts/fuzz $(or $(FUZZTIME),5m)

.PHONY: clean
clean: ## Remove what was built and unpacked
	rm -rf bin dist .servers clients/typescript/dist
	find clients examples -name node_modules -prune -exec rm -rf {} +
