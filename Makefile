PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install serve demo test property-test remote-test lint crash-test flip-test exit-test bench bench-languages bench-engine bench-files bench-conversations bench-service service-kill servers-kill upgrade-test client-matrix fuzz-rest rest-table bench-peers bench-postgres mastra-routes handshake install-size image-steps promises vendor page-test page-screenshots bench-page clean adapters-test adapters-pins hook-time claude-code mongodb-test

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 22

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

install: $(VENV)/.installed ## create .venv with everything, including the embedding model
	$(BIN)/commonplace model pull

serve: install   ## serve the memory over HTTP on this computer: REST, MCP and Mastra's routes
	$(BIN)/commonplace serve $(SERVE_ARGS)

demo: install    ## write memories through the library and the CLI, and search them by meaning
	$(BIN)/python examples/demo.py

test: install lint ## run all quick tests
	$(BIN)/commonplace model pull commonplace-embed-s
	$(BIN)/commonplace model pull all-MiniLM-L6-v2
	$(BIN)/commonplace model pull bge-small-en-v1.5
	$(BIN)/commonplace model pull multilingual
	$(BIN)/python -m pytest -n 2 --dist worksteal

property-test: install ## the tests with random examples, with all of their examples; make test tries a quarter
	COMMONPLACE_TESTS=long $(BIN)/python -m pytest -n 2 $$(grep -rl 'doubles import.*\(rounds\|IS_LONG\)' tests)

remote-test: install ## the library's own tests of a space, through a service; make test runs a sample of them
	$(BIN)/python -m pytest -n 2 --over=http tests/space

mongodb-test: install ## every test of the store on a real MongoDB, with servers killed and cut off; it downloads 130 MB once
	COMMONPLACE_TESTS=$(or $(MONGODB_TESTS),long) $(BIN)/python -m pytest -n 2 tests/mongodb

page-test: install ## open every screen of the page in a real Chromium, as people do
	$(BIN)/python scripts/install_browser.py
	$(BIN)/python -m pytest -n 2 tests/browser

page-screenshots: install ## pictures of every screen of the page, light and dark, wide and narrow, into out/page
	$(BIN)/python scripts/install_browser.py
	$(BIN)/python scripts/page_screenshots.py $(SCREENSHOT_ARGS)

lint: $(VENV)/.installed ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

crash-test: install ## kill a writer at many points; nothing acknowledged may be lost
	$(BIN)/python scripts/crash_test.py $(CRASH_TEST_ARGS)

flip-test: install ## flip 500 bytes of a book, one at a time; each is harmless or reported, through every interface
	$(BIN)/python scripts/flip_test.py $(FLIP_TEST_ARGS)

bench: install    ## retrieval quality compared with baselines; BENCH_DATA=FOLDER is the folder of the data sets
	$(BIN)/python benchmarks/quality.py $(BENCH_DATA)

bench-languages: install ## search in ten languages and across them; BENCH_FOLDER keeps the packages and vectors
	$(BIN)/python benchmarks/languages.py $(or $(BENCH_FOLDER),.languages)

bench-engine: install ## speed and size of the engine, compared with bare SQLite
	$(BIN)/python benchmarks/engine.py

bench-files: install ## the tree of files at 1,000 and 100,000 files
	$(BIN)/python benchmarks/files.py

bench-conversations: install ## a thread of 100 to 100,000 messages, compared with the Agents SDK's SQLiteSession
	$(BIN)/python benchmarks/conversations.py

bench-service: install ## requests per second of the service, compared with other servers
	$(BIN)/python benchmarks/service.py

bench-page: install ## server time and bytes of every screen of the page at 1,000 and 100,000 entries
	$(BIN)/python benchmarks/page.py $(BENCH_PAGE_ARGS)

exit-test: install ## end programs at random moments while the model loads and embeds; each must exit cleanly
	$(BIN)/python scripts/random_exits.py $(EXIT_TEST_ARGS)

service-kill: install ## kill and stop a service under load; nothing acknowledged lost, no request dropped
	$(BIN)/python scripts/service_kill.py $(SERVICE_KILL_ARGS)

servers-kill: install ## kill servers and database connections under load; nothing lost or duplicated through any interface
	$(BIN)/python scripts/servers_kill.py $(SERVERS_KILL_ARGS)

upgrade-test: install ## upgrade books of every former schema while programs of that schema use them, and kill it
	$(BIN)/python -W ignore scripts/upgrade_test.py $(UPGRADE_TEST_ARGS)

client-matrix: install ## real MCP clients, from the registries, against our server
	$(BIN)/python scripts/client_matrix.py

adapters-test: install ## suites of other projects against our adapters, each in its own environment
	$(BIN)/python scripts/adapter_suites.py $(ADAPTERS_TEST_ARGS)

adapters-pins: install ## raise the versions that adapters-test installs to the newest
	$(BIN)/python scripts/adapter_suites.py --raise-pins

rest-table: install ## the tables of docs/rest.md, from the operations in the code
	@$(BIN)/python -c 'from commonplace.api.operations import markdown; print("\n".join(markdown()))'

fuzz-rest: install ## fuzz every route of a real server, 400 examples per operation
	$(BIN)/python scripts/fuzz_rest.py $(FUZZ_ARGS)

bench-peers: install ## size, start-up, adds and searches, compared with other memory systems
	$(BIN)/python benchmarks/peers.py

bench-postgres: install ## a real PostgreSQL, compared with LangGraph's PostgresStore
	$(BIN)/python benchmarks/postgres.py

mastra-routes: install ## Mastra's own client, from npm, over every memory route of our server
	$(BIN)/python scripts/mastra_routes.py

handshake: install ## how long an MCP client waits for initialize, compared with a bare server
	$(BIN)/python scripts/handshake_time.py

hook-time: install ## how long a session waits for our hook at each prompt; 95 of 100 within 300 ms
	$(BIN)/python scripts/hook_time.py $(HOOK_TIME_ARGS)

claude-code: install ## the real Claude Code, offline, remembers by our hooks; counts the tokens that it shows its model
	$(BIN)/python scripts/claude_code_memory.py

install-size:    ## the size of a base install, in a fresh virtual environment
	$(PYTHON) scripts/install_size.py

image-steps: $(VENV)/.installed ## execute the Dockerfile without a container daemon, and check compose.yaml
	$(BIN)/python scripts/image_steps.py $(IMAGE_STEPS_ARGS)

vendor: $(VENV)/.installed ## compare the scripts and styles of other projects that the page serves with npm
	$(BIN)/python scripts/vendor.py $(VENDOR_ARGS)

promises: install ## what the project promises, by seed, and the tests that show it
	$(BIN)/python scripts/promises.py

clean:
	rm -rf $(VENV) .clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
