PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: help install develop docs serve demo test property-test remote-test lint crash-test flip-test exit-test bench bench-languages bench-engine bench-files bench-conversations bench-service service-kill servers-kill upgrade-test client-matrix fuzz-rest reference bench-peers bench-postgres mastra-routes handshake install-size install-ways image-steps promises newcomer bench-report vendor page-test page-screenshots bench-page clean adapters-test adapters-pins hook-time claude-code mongodb-test citus-test

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 22

# Two stamps for one environment: what the program needs to run, and what the tests and benchmarks need.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[server]'
	touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[dev]'
	touch $@

$(VENV)/.documented: $(VENV)/.installed
	$(PIP_INSTALL) --editable '.[docs]'
	touch $@

install: $(VENV)/.installed ## create .venv with what the program needs to run, and the embedding model
	$(BIN)/commonplace model pull

develop: $(VENV)/.developed install ## install also what the tests and benchmarks need

docs: $(VENV)/.documented ## build the documentation as a site with search, in out/site
	$(BIN)/python scripts/build_docs.py

serve: install   ## serve the memory over HTTP on this computer: REST, MCP and Mastra's routes
	$(BIN)/commonplace serve $(SERVE_ARGS)

demo: install    ## write memories through the library and the CLI, and search them by meaning
	$(BIN)/python examples/demo.py

test: develop lint ## run all quick tests
	$(BIN)/commonplace model pull snowflake-arctic-embed-s
	$(BIN)/commonplace model pull all-MiniLM-L6-v2
	$(BIN)/commonplace model pull bge-small-en-v1.5
	$(BIN)/commonplace model pull multilingual
	$(BIN)/python -m pytest -n 2 --dist worksteal

property-test: develop ## the tests with random examples, with all of their examples; make test tries a quarter
	COMMONPLACE_TESTS=long $(BIN)/python -m pytest -n 2 $$(grep -rl 'doubles import.*\(rounds\|IS_LONG\)' tests)

remote-test: develop ## the library's own tests of a space, through a service; make test runs a sample of them
	$(BIN)/python -m pytest -n 2 --over=http tests/space

mongodb-test: develop ## tests of the store and the library on a real MongoDB, with servers killed and cut off; it downloads 130 MB once
	COMMONPLACE_TESTS=$(or $(MONGODB_TESTS),long) $(BIN)/python -m pytest -n 2 tests/mongodb
	$(BIN)/python -m pytest -n 2 --on=mongodb --every=$(if $(filter short,$(MONGODB_TESTS)),30,1) tests/space tests/tools tests/graph tests/agents tests/adapters tests/page tests/test_items.py

citus-test: develop ## tests of the store and of several servers on a real Citus cluster: CITUS=postgresql://admin@coordinator/database
	CITUS='$(CITUS)' $(BIN)/python -m pytest -n 2 tests/citus/test_citus.py
	CITUS='$(CITUS)' $(BIN)/python -m pytest -n 0 tests/citus/test_trouble.py

page-test: develop ## open every screen of the page in a real Chromium, as people do
	$(BIN)/python scripts/install_browser.py
	$(BIN)/python -m pytest -n 2 tests/browser

page-screenshots: develop ## pictures of every screen of the page, light and dark, wide and narrow, into out/page
	$(BIN)/python scripts/install_browser.py
	$(BIN)/python scripts/page_screenshots.py $(SCREENSHOT_ARGS)

lint: $(VENV)/.developed ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

crash-test: develop ## kill a writer at many points; nothing acknowledged may be lost
	$(BIN)/python scripts/crash_test.py $(CRASH_TEST_ARGS)

flip-test: develop ## flip 500 bytes of a book, one at a time; each is harmless or reported, through every interface
	$(BIN)/python scripts/flip_test.py $(FLIP_TEST_ARGS)

bench: develop    ## retrieval quality compared with baselines; BENCH_DATA=FOLDER is the folder of the data sets
	$(BIN)/python benchmarks/quality.py $(BENCH_DATA)

bench-languages: develop ## search in ten languages and across them; BENCH_FOLDER keeps the packages and vectors
	$(BIN)/python benchmarks/languages.py $(or $(BENCH_FOLDER),.languages)

bench-engine: develop ## speed and size of the engine, compared with bare SQLite
	$(BIN)/python benchmarks/engine.py

bench-files: develop ## the tree of files at 1,000 and 100,000 files
	$(BIN)/python benchmarks/files.py

bench-conversations: develop ## a thread of 100 to 100,000 messages, compared with the Agents SDK's SQLiteSession
	$(BIN)/python benchmarks/conversations.py

bench-service: develop ## requests per second of the service, compared with other servers
	$(BIN)/python benchmarks/service.py

bench-page: develop ## server time and bytes of every screen of the page at 1,000 and 100,000 entries
	$(BIN)/python benchmarks/page.py $(BENCH_PAGE_ARGS)

exit-test: develop ## end programs at random moments while the model loads and embeds; each must exit cleanly
	$(BIN)/python scripts/random_exits.py $(EXIT_TEST_ARGS)

service-kill: develop ## kill and stop a service under load; nothing acknowledged lost, no request dropped
	$(BIN)/python scripts/service_kill.py $(SERVICE_KILL_ARGS)

servers-kill: develop ## kill servers and database connections under load; nothing lost or duplicated through any interface
	$(BIN)/python scripts/servers_kill.py $(SERVERS_KILL_ARGS)

upgrade-test: develop ## upgrade books of every former schema while programs of that schema use them, and kill it
	$(BIN)/python -W ignore scripts/upgrade_test.py $(UPGRADE_TEST_ARGS)

client-matrix: develop ## real MCP clients, from the registries, against our server
	$(BIN)/python scripts/client_matrix.py

adapters-test: develop ## suites of other projects against our adapters, each in its own environment
	$(BIN)/python scripts/adapter_suites.py $(ADAPTERS_TEST_ARGS)

adapters-pins: develop ## raise the versions that adapters-test installs to the newest
	$(BIN)/python scripts/adapter_suites.py --raise-pins

reference: develop ## write the pages of docs/reference/ that are made from the code
	$(BIN)/python scripts/reference.py

fuzz-rest: develop ## fuzz every route of a real server, 400 examples per operation
	$(BIN)/python scripts/fuzz_rest.py $(FUZZ_ARGS)

bench-peers: develop ## size, start-up, adds and searches, compared with other memory systems
	$(BIN)/python benchmarks/peers.py

bench-report: develop ## one page with plots of quality and peers; BENCH_DATA=FOLDER as for bench, BENCH_REPORT_ARGS=--quick
	$(BIN)/python benchmarks/report.py $(if $(BENCH_DATA),--data $(BENCH_DATA)) $(BENCH_REPORT_ARGS)

bench-postgres: develop ## a real PostgreSQL, compared with LangGraph's PostgresStore
	$(BIN)/python benchmarks/postgres.py

mastra-routes: develop ## Mastra's own client, from npm, over every memory route of our server
	$(BIN)/python scripts/mastra_routes.py

handshake: develop ## how long an MCP client waits for initialize, compared with a bare server
	$(BIN)/python scripts/handshake_time.py

hook-time: develop ## how long a session waits for our hook at each prompt; 95 of 100 within 300 ms
	$(BIN)/python scripts/hook_time.py $(HOOK_TIME_ARGS)

claude-code: develop ## the real Claude Code, offline, remembers by our hooks; counts the tokens that it shows its model
	$(BIN)/python scripts/claude_code_memory.py

install-size:    ## the size of a base install, in a fresh virtual environment
	$(PYTHON) scripts/install_size.py

install-ways: $(VENV)/.installed ## install by pip, uv and pipx, with each supported Python that is here
	$(BIN)/python scripts/install_ways.py $(INSTALL_WAYS_ARGS)

newcomer:        ## follow the README with an empty home folder and empty caches; time each step
	$(PYTHON) scripts/newcomer.py $(NEWCOMER_ARGS)

image-steps: $(VENV)/.developed ## execute the Dockerfile without a container daemon, and check compose.yaml
	$(BIN)/python scripts/image_steps.py $(IMAGE_STEPS_ARGS)

vendor: $(VENV)/.developed ## compare the scripts and styles of other projects that the page serves with npm
	$(BIN)/python scripts/vendor.py $(VENDOR_ARGS)

promises: develop ## what the project promises, by seed, and the tests that show it
	$(BIN)/python scripts/promises.py

clean:
	rm -rf $(VENV) .clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
