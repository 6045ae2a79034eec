# SPDX-License-Identifier: BSD-3-Clause
# Example programs, with nothing of Grail's: users build them as the comment in each says.
# `make check` does with the simulated driver in the place of libcuda; the sources are installed.

examplesdir = $(docdir)/examples
dist_examples_DATA = examples/halo.c

check_PROGRAMS += examples/halo
examples_halo_SOURCES = examples/halo.c tests/common/toolkit/cuda.h
examples_halo_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS) -I$(top_srcdir)/tests/common/toolkit
examples_halo_LDFLAGS = $(GRAIL_MPI_LINKFLAGS) -no-install
examples_halo_LDADD = tests/cudasim/libcuda.la $(GRAIL_MPI_LIBS)

TESTS += examples/halo.test
EXTRA_DIST += examples/halo.test
