# SPDX-License-Identifier: BSD-3-Clause
# The test harness. Every test writes TAP (cmocka does when it is asked to), or exits 77 to skip
# with its reason on a line "# SKIP reason". Fast ones first: unit, simulator, MPI.

TEST_EXTENSIONS =
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
AM_LOG_DRIVER_FLAGS = --merge
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/run-test
AM_TESTS_ENVIRONMENT = \
	GRAIL_CC='$(CC)'; GRAIL_MPICC='$(MPICC)'; GRAIL_MPIRUN='$(MPIRUN)'; \
	GRAIL_OMPI_INFO='$(OMPI_INFO)'; GRAIL_OMPI_VERSION='$(GRAIL_OMPI_VERSION)'; \
	GRAIL_PKG_CONFIG='$(PKG_CONFIG)'; GRAIL_OMPI_COMPONENT_DIR='$(GRAIL_OMPI_COMPONENT_DIR)'; \
	export GRAIL_CC GRAIL_MPICC GRAIL_MPIRUN GRAIL_OMPI_INFO GRAIL_OMPI_VERSION \
	    GRAIL_PKG_CONFIG GRAIL_OMPI_COMPONENT_DIR;

include tests/unit/local.mk
include tests/cudasim/local.mk
include tests/mpi/local.mk
include tests/bench/local.mk
include tests/build/local.mk

EXTRA_DIST += tests/run-test tests/summary.sh tests/gpu/run
