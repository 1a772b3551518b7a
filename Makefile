# Every target is one script or one line; nothing has to be installed but the toolchains.

.DEFAULT_GOAL := help
.PHONY: help serve check test autobahn scenarios bench-core bench-delivery bench-json bench-api bench-webhook bench-streams bench-http2 bench-tls bench-tokens bench-files bench-growth compare fmt pictures web viewer extension bench-screenpush

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

serve: ## Build the program quickly and run it on http://127.0.0.1:8080
	@scripts/serve.sh $(ARGS)

check: ## Check an edit: format, lints, unit tests, 2,000 simulated seeds; under three minutes
	@scripts/test.sh --check

test: ## Run everything that must hold before a change goes in; under thirty minutes
	@scripts/test.sh $(STEPS)

autobahn: ## Run all 517 cases of the WebSocket conformance suite, over ws and over wss
	@bash scripts/autobahn.sh all

scenarios: ## Run every scenario of encke bench small, against Encke, CometD and Faye
	@bash scripts/scenarios.sh

bench-core: ## Measure speed and memory against the floor
	@bash scripts/bench-core.sh

bench-delivery: ## Measure what acknowledgement, history and replay cost
	@bash scripts/bench-delivery.sh

bench-json: ## Measure JSON engines at what a server does with messages
	@bash scripts/bench-json.sh

bench-api: ## Measure publishing over the HTTP API beside a WebSocket
	@bash scripts/bench-api.sh

bench-streams: ## Measure a broadcast over WebSockets and over streams of events
	@bash scripts/bench-transports.sh streams

bench-http2: ## Measure a broadcast over plain WebSockets and over HTTP/2
	@bash scripts/bench-transports.sh http2

bench-tls: ## Measure the same load with TLS and without
	@bash scripts/bench-tls.sh

bench-files: ## Measure files beside nginx
	@bash scripts/bench-files.sh

bench-growth: ## Measure cost against work, from small to large
	@bash scripts/bench-growth.sh

bench-tokens: ## Measure handshakes with tokens
	@bash scripts/bench-tokens.sh

bench-webhook: ## Measure the time that a webhook adds to a message
	@bash scripts/bench-webhook.sh

bench-screenpush: ## Measure the way of a picture from screen to viewers
	@bash scripts/bench-screenpush.sh

compare: ## Measure Encke beside CometD, Faye and Bun
	@bash scripts/compare.sh

fmt: ## Format the code
	cargo fmt --all

pictures: ## Make the pictures of the README again
	@bash scripts/browser.sh --pictures

web: ## Build the pages again (their built files are in the repository)
	npm --prefix web ci --no-audit --no-fund
	npm --prefix web run build

viewer: ## Build the viewer of Screenpush as one file
	@npm --prefix web run --silent viewer -- $(CURDIR)/target/screenpush/viewer.html

extension: ## Pack the extension of Screenpush for Chromium and Firefox
	@bash scripts/extension.sh
