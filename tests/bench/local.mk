# SPDX-License-Identifier: BSD-3-Clause
# Benchmarks, installed in $(libexecdir)/grail, and what they share with the MPI tests (tests/common).

noinst_LTLIBRARIES += tests/common/libtestgpu.la tests/bench/libbench.la
tests_common_libtestgpu_la_SOURCES = tests/common/gpu.c tests/common/gpu.h \
	tests/common/gpu_buf.c tests/common/gpu_internal.h tests/common/pattern.h
tests_common_libtestgpu_la_LIBADD = -ldl

tests_bench_libbench_la_SOURCES = tests/bench/bandwidth.c tests/bench/bandwidth.h \
	tests/bench/bench.h tests/bench/layout.c tests/bench/options.c tests/bench/peercopy.c \
	tests/bench/report.c tests/bench/setup.c tests/bench/window.c
tests_bench_libbench_la_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS) -DBENCH_VERSION='"$(PACKAGE_VERSION)"'

bench_PROGRAMS += tests/bench/latency tests/bench/bw tests/bench/bibw tests/bench/mbw_mr

GRAIL_BENCH_LIBS = tests/bench/libbench.la tests/common/libtestgpu.la $(GRAIL_MPI_LIBS) -ldl

tests_bench_latency_SOURCES = tests/bench/latency.c
tests_bench_latency_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_bench_latency_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_bench_latency_LDADD = $(GRAIL_BENCH_LIBS)

tests_bench_bw_SOURCES = tests/bench/bw.c
tests_bench_bw_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_bench_bw_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_bench_bw_LDADD = $(GRAIL_BENCH_LIBS)

tests_bench_bibw_SOURCES = tests/bench/bibw.c
tests_bench_bibw_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_bench_bibw_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_bench_bibw_LDADD = $(GRAIL_BENCH_LIBS)

tests_bench_mbw_mr_SOURCES = tests/bench/mbw_mr.c
tests_bench_mbw_mr_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_bench_mbw_mr_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_bench_mbw_mr_LDADD = $(GRAIL_BENCH_LIBS)
