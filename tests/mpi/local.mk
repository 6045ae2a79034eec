# SPDX-License-Identifier: BSD-3-Clause
# MPI programs that print TAP on rank 0, and scripts (*.test) that run them with the simulated
# driver; lib.sh is what the scripts share. tests/gpu/run runs the same programs on real GPUs.

check_LTLIBRARIES += tests/mpi/libmpitest.la
tests_mpi_libmpitest_la_SOURCES = tests/common/mpitest.c tests/common/mpitest.h \
	tests/mpi/image_lib.c tests/mpi/image_lib.h
tests_mpi_libmpitest_la_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)

mpi_programs = tests/mpi/big \
	tests/mpi/buffered_sends \
	tests/mpi/cancel \
	tests/mpi/communicators \
	tests/mpi/copies \
	tests/mpi/datatypes \
	tests/mpi/datatypes_random \
	tests/mpi/dynamic \
	tests/mpi/empty \
	tests/mpi/errors \
	tests/mpi/exhausted \
	tests/mpi/faults \
	tests/mpi/freed_early \
	tests/mpi/intercomm \
	tests/mpi/kinds \
	tests/mpi/no_gpu_memory \
	tests/mpi/ordering \
	tests/mpi/outstanding \
	tests/mpi/p2p_modes \
	tests/mpi/pack_unpack \
	tests/mpi/peer_killed \
	tests/mpi/persistent \
	tests/mpi/pieces \
	tests/mpi/probe \
	tests/mpi/query_support \
	tests/mpi/reallocate \
	tests/mpi/refused \
	tests/mpi/refused_together \
	tests/mpi/self \
	tests/mpi/survivors \
	tests/mpi/threads \
	tests/mpi/truncation \
	tests/mpi/unconnected
check_PROGRAMS += $(mpi_programs)

# for tests/gpu/run: the programs without running anything
.PHONY: mpi-programs
mpi-programs: $(mpi_programs)

GRAIL_MPITEST_LIBS = tests/mpi/libmpitest.la tests/common/libtestgpu.la $(GRAIL_MPI_LIBS) -ldl

tests_mpi_big_SOURCES = tests/mpi/big.c
tests_mpi_big_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_big_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_big_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_buffered_sends_SOURCES = tests/mpi/buffered_sends.c
tests_mpi_buffered_sends_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_buffered_sends_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_buffered_sends_LDADD = $(GRAIL_MPITEST_LIBS) -lpthread

tests_mpi_cancel_SOURCES = tests/mpi/cancel.c
tests_mpi_cancel_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_cancel_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_cancel_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_communicators_SOURCES = tests/mpi/communicators.c
tests_mpi_communicators_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_communicators_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_communicators_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_copies_SOURCES = tests/mpi/copies.c
tests_mpi_copies_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_copies_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_copies_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_datatypes_SOURCES = tests/mpi/datatypes.c
tests_mpi_datatypes_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_datatypes_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_datatypes_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_datatypes_random_SOURCES = tests/mpi/datatypes_random.c
tests_mpi_datatypes_random_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_datatypes_random_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_datatypes_random_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_dynamic_SOURCES = tests/mpi/dynamic.c
tests_mpi_dynamic_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_dynamic_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_dynamic_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_empty_SOURCES = tests/mpi/empty.c
tests_mpi_empty_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_empty_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_empty_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_errors_SOURCES = tests/mpi/errors.c
tests_mpi_errors_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_errors_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_errors_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_exhausted_SOURCES = tests/mpi/exhausted.c
tests_mpi_exhausted_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_exhausted_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_exhausted_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_faults_SOURCES = tests/mpi/faults.c
tests_mpi_faults_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_faults_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_faults_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_freed_early_SOURCES = tests/mpi/freed_early.c
tests_mpi_freed_early_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_freed_early_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_freed_early_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_intercomm_SOURCES = tests/mpi/intercomm.c
tests_mpi_intercomm_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_intercomm_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_intercomm_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_kinds_SOURCES = tests/mpi/kinds.c
tests_mpi_kinds_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_kinds_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_kinds_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_no_gpu_memory_SOURCES = tests/mpi/no_gpu_memory.c
tests_mpi_no_gpu_memory_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_no_gpu_memory_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_no_gpu_memory_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_ordering_SOURCES = tests/mpi/ordering.c
tests_mpi_ordering_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_ordering_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_ordering_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_outstanding_SOURCES = tests/mpi/outstanding.c
tests_mpi_outstanding_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_outstanding_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_outstanding_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_p2p_modes_SOURCES = tests/mpi/p2p_modes.c
tests_mpi_p2p_modes_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_p2p_modes_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_p2p_modes_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_pack_unpack_SOURCES = tests/mpi/pack_unpack.c
tests_mpi_pack_unpack_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_pack_unpack_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_pack_unpack_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_peer_killed_SOURCES = tests/mpi/peer_killed.c
tests_mpi_peer_killed_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_peer_killed_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_peer_killed_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_pieces_SOURCES = tests/mpi/pieces.c
tests_mpi_pieces_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_pieces_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_pieces_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_persistent_SOURCES = tests/mpi/persistent.c
tests_mpi_persistent_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_persistent_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_persistent_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_probe_SOURCES = tests/mpi/probe.c
tests_mpi_probe_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_probe_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_probe_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_query_support_SOURCES = tests/mpi/query_support.c
tests_mpi_query_support_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_query_support_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_query_support_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_reallocate_SOURCES = tests/mpi/reallocate.c
tests_mpi_reallocate_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_reallocate_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_reallocate_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_refused_SOURCES = tests/mpi/refused.c
tests_mpi_refused_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_refused_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_refused_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_refused_together_SOURCES = tests/mpi/refused_together.c
tests_mpi_refused_together_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_refused_together_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_refused_together_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_self_SOURCES = tests/mpi/self.c
tests_mpi_self_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_self_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_self_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_survivors_SOURCES = tests/mpi/survivors.c
tests_mpi_survivors_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_survivors_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_survivors_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_threads_SOURCES = tests/mpi/threads.c
tests_mpi_threads_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_threads_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_threads_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_truncation_SOURCES = tests/mpi/truncation.c
tests_mpi_truncation_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_truncation_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_truncation_LDADD = $(GRAIL_MPITEST_LIBS)

tests_mpi_unconnected_SOURCES = tests/mpi/unconnected.c
tests_mpi_unconnected_CPPFLAGS = $(GRAIL_MPI_CPPFLAGS)
tests_mpi_unconnected_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_mpi_unconnected_LDADD = $(GRAIL_MPITEST_LIBS)

mpi_tests = tests/mpi/host.test \
	tests/mpi/host_ranks.test \
	tests/mpi/kinds.test \
	tests/mpi/kinds_two_gpus.test \
	tests/mpi/device.test \
	tests/mpi/device_ranks.test \
	tests/mpi/datatypes.test \
	tests/mpi/paths.test \
	tests/mpi/fallbacks.test \
	tests/mpi/communicators.test \
	tests/mpi/memory.test \
	tests/mpi/freed_early.test \
	tests/mpi/buffered_sends.test \
	tests/mpi/faults.test \
	tests/mpi/peer_killed.test \
	tests/mpi/survivors.test \
	tests/mpi/unconnected.test \
	tests/mpi/refused.test \
	tests/mpi/refused_together.test \
	tests/mpi/monitoring.test \
	tests/mpi/copies.test \
	tests/mpi/support.test \
	tests/mpi/options.test \
	tests/mpi/bench.test

# Under sanitizers: those that between them run every protocol, every way to send, and the errors.
mpi_sanitizer_tests = tests/mpi/host.test \
	tests/mpi/host_ranks.test \
	tests/mpi/device.test \
	tests/mpi/datatypes.test \
	tests/mpi/faults.test \
	tests/mpi/buffered_sends.test \
	tests/mpi/copies.test \
	tests/mpi/support.test

if GRAIL_SANITIZERS
TESTS += $(mpi_sanitizer_tests)
else
TESTS += $(mpi_tests)
endif
EXTRA_DIST += $(mpi_tests) tests/mpi/lib.sh tests/mpi/masked tests/gpu/run
