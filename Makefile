# Each target works alone on a fresh clone, and is quick when there is nothing to do.
#   make PYTHON=/path/to/python3    another interpreter than Debian's, if PL/Python embeds another

.PHONY: setup demo spark test test-all durations coverage lint generate docs links dist bench clean

# .venv with the command kanon.
setup:
	@scripts/debian-packages
	@scripts/environment report
	@echo "The command kanon is in .venv/bin. Type next:"
	@echo "  export PATH=\"$(CURDIR)/.venv/bin:\$$PATH\""
	@echo "  kanon local start && kanon install"
	@echo "  kanon load FILE.csv TABLE && kanon inspect TABLE"

# From microdata to verified buckets and count queries, in a private cluster under .kanon.
demo:
	@scripts/debian-packages
	@scripts/environment
	@.venv/bin/kanon demo

# The same on a small cluster of Spark: a master and two workers on this machine; then its tests.
spark:
	@scripts/debian-packages spark
	@scripts/environment dev spark
	@.venv/bin/python scripts/spark_demo.py
	@KANON_SPARK=all .venv/bin/pytest tests/spark

# A worker for each core, each with a cluster of its own.
workers = -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# Every promise, every attack.
test:
	@scripts/debian-packages
	@scripts/environment dev
	@.venv/bin/pytest $(workers) -m "not long"

# All tests, with many more random examples, and all of Spark; then faults: of the server, and in
# the package, which tests must notice. It takes hours.
test-all:
	@scripts/debian-packages spark
	@scripts/environment dev spark
	@KANON_EXAMPLES=full KANON_SPARK=all .venv/bin/pytest $(workers)
	@.venv/bin/python scripts/mutations.py
	@.venv/bin/python -m benchmarks faults

# How long each test of make test takes, in tests/durations.tsv: on a quiet machine.
durations:
	@scripts/debian-packages
	@scripts/environment dev
	@.venv/bin/pytest $(workers) -m "not long" --junitxml=build/tests.xml
	@.venv/bin/python scripts/durations.py build/tests.xml

# Lines and branches that the tests reach outside the server.
coverage:
	@scripts/debian-packages
	@scripts/environment dev
	@.venv/bin/coverage erase
	@.venv/bin/coverage run -m pytest $(workers)
	@.venv/bin/coverage combine --quiet
	@.venv/bin/coverage report

lint:
	@scripts/debian-packages
	@scripts/environment dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

# The files that are written from others: SQL functions, Python methods, tables, security tests.
generate:
	@scripts/debian-packages
	@scripts/environment dev
	@.venv/bin/python scripts/generate.py

# The pages as a site, in site/docs/index.html. A link that leads nowhere is an error.
docs:
	@scripts/debian-packages
	@scripts/environment docs
	@.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going --builder html \
		--conf-dir docs --doctree-dir site/.doctrees . site
	@echo "The pages are in $(CURDIR)/site/docs/index.html: open it in a browser."

# Links of the pages to other sites, which need a network, and may be down for a while.
links:
	@scripts/debian-packages
	@scripts/environment docs
	@.venv/bin/sphinx-build --quiet --keep-going --builder linkcheck \
		--conf-dir docs --doctree-dir site/.doctrees . site/links

# What a release consists of, built and tried in a new environment.
dist:
	@scripts/debian-packages
	@scripts/environment release
	@scripts/distribution

bench:
	@scripts/debian-packages
	@scripts/environment bench
	@.venv/bin/python -m benchmarks

# The private cluster and its data go too.
clean:
	@if [ -e .kanon ]; then \
		echo "Stopping the private cluster in .kanon, and removing it with its data ..."; \
		.venv/bin/kanon version > /dev/null 2>&1 || scripts/environment; \
		.venv/bin/kanon local destroy --yes; \
	fi
	@echo "Removing .venv, and what was built ..."
	@rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

export PYTHON
