# svcd: `make run` serves from this checkout (ARGS="--set http.listen=127.0.0.1:7055": on another port), `make test` installs what the tests need and runs them.
.PHONY: run demo build node-version lint format test test-long test-node24 bench bench-compare docs packages install deb rpm clean

export PATH := $(CURDIR)/node_modules/.bin:$(PATH)
installed := node_modules/.package-lock.json
sources := $(shell find lib -name '*.ts') build/bundle.mjs package.json tsconfig.json tsconfig.build.json

run: build
	@exec bin/svcd serve --config etc/svcd.ini $(ARGS)

# The commit is baked in each time: it changes without a change of the sources.
build: dist/main.js
	@node build/commit.mjs

node-version:
	@sh build/node-version.sh

$(installed): package-lock.json | node-version
	@command -v npm >/dev/null || { echo "npm is missing: install it (Debian: apt install npm), or a Node that brings it" >&2; exit 1; }
	@echo "the packages of svcd's build and tests, from the npm registry: some minutes on a slow line ..." >&2
	npm ci --no-audit --no-fund
	@touch $@

dist/main.js: $(installed) $(sources)
	@echo 'the code, from lib to dist, with its types checked: about half a minute ...' >&2
	npm run --silent build$(unchecked)
	@touch $@

lint: $(installed)
	@echo 'the type check and the linter: about half a minute ...' >&2
	npm run --silent lint

format: $(installed)
	npm run --silent format

# Debian's programs that the tests run: installed when root, else the command to type is named.
packages:
	@sh test/packages.sh

# The types of lib are checked once, by the linter, and beside the tests, which compile for themselves.
test: packages $(installed)
	@{ $(MAKE) --no-print-directory lint && $(MAKE) --no-print-directory build unchecked=:unchecked; } & \
	  checks=$$!; sh test/run.sh; status=$$?; wait $$checks || status=1; exit $$status

# The long proofs: what `make test` has with more rounds and larger sizes, and those of test/long: load, real
# Debian images in virtual machines. One table at the end tells what was tried and what broke.
test-long: build lint
	@sh test/packages.sh packages.txt packages-long.txt
	@sh test/long.sh

# The tests on Node 24, which the npm registry brings.
test-node24: .cache/node24/node_modules/node/bin/node
	PATH="$(CURDIR)/.cache/node24/node_modules/node/bin:$$PATH" $(MAKE) test

.cache/node24/node_modules/node/bin/node:
	npm install --no-audit --no-fund --no-save --prefix .cache/node24 node@24

# A machine with an empty disk boots and installs from a daemon of its own, its console on this screen.
demo: $(installed)
	@node test/compile.mjs
	@node .cache/js/test/demo/demo.js

# The documents that are made from the code's tables.
docs: build
	node build/docs.mjs

# What svcd costs, each case beside a yardstick in the same run (docs/performance.md). CASES=menu,create chooses cases,
# NODES=100,10000 the numbers of nodes, ROUNDS=5 the rounds, LIMIT=900 the seconds of a case, OUT=file where the figures go.
# AGAINST=../old measures that checkout too.
bench: build
	@node bench/run.mjs $(if $(CASES),--cases $(CASES)) $(if $(NODES),--nodes $(NODES)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(OUT),--out $(OUT)) $(if $(AGAINST),--against $(AGAINST))

# What became slower than the spread explains: the last run, or RUN=file, against bench/baseline.json, or BASE=file.
bench-compare:
	@node bench/compare.mjs $(if $(BASE),--base $(BASE)) $(if $(RUN),--run $(RUN))

install: build
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" sh build/install.sh

# Packages with a Node runtime of their own, into out/; ARCH=arm64 for that machine.
ARCH := amd64

deb: build
	@sh build/package/deb.sh $(ARCH) out

rpm: build
	@sh build/package/rpm.sh $(ARCH) out

clean:
	rm -rf dist out .cache .tap
