# SPDX-License-Identifier: BSD-3-Clause
# Documentation, and the page that is generated from the table of options.

dist_doc_DATA += docs/user-guide.md docs/options.md docs/internals.md docs/performance.md \
	docs/conformance.md LICENSE

# in a folder of its own: it is called README
benchdocdir = $(docdir)/bench
dist_benchdoc_DATA = tests/bench/README.md

noinst_PROGRAMS += docs/print-options
docs_print_options_SOURCES = docs/print-options.c
docs_print_options_CPPFLAGS = $(GRAIL_LIB_CPPFLAGS)
docs_print_options_LDADD = libgrail.la

TESTS += docs/options.test
EXTRA_DIST += docs/options.test

update-options: docs/print-options
	./docs/print-options > $(srcdir)/docs/options.md
.PHONY: update-options
