# SPDX-License-Identifier: BSD-3-Clause
# Unit tests (cmocka, one group per program). For each program NAME:
#   unit_tests += tests/unit/NAME
#   tests_unit_NAME_SOURCES = tests/unit/NAME.c
#   tests_unit_NAME_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
#   tests_unit_NAME_LDADD = $(GRAIL_UNIT_LIBS)
# libgrail-test.la is libgrail with every function visible; programs that need only public
# functions may link libgrail.la instead.

GRAIL_UNIT_CPPFLAGS = $(GRAIL_LIB_CPPFLAGS) $(CMOCKA_CFLAGS)
GRAIL_UNIT_LIBS = libgrail-test.la $(CMOCKA_LIBS) -lpthread -ldl

unit_tests =

unit_tests += tests/unit/test_layout
tests_unit_test_layout_SOURCES = tests/unit/test_layout.c tests/unit/random_layout.h
tests_unit_test_layout_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_layout_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_pack
tests_unit_test_pack_SOURCES = tests/unit/test_pack.c tests/unit/random_layout.h
tests_unit_test_pack_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_pack_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_flatten
tests_unit_test_flatten_SOURCES = tests/unit/test_flatten.c tests/unit/random_layout.h pml/flatten.c
tests_unit_test_flatten_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS) $(OMPI_CPPFLAGS)
tests_unit_test_flatten_CFLAGS = $(AM_CFLAGS) $(GRAIL_MCX16)
tests_unit_test_flatten_LDFLAGS = $(GRAIL_MPI_LINKFLAGS)
tests_unit_test_flatten_LDADD = $(GRAIL_UNIT_LIBS) $(GRAIL_MPI_LIBS) -lopen-pal


# cuda-aware/, on the simulated driver
unit_gpu_sources = tests/unit/cuda_child.h tests/common/gpu.c tests/common/gpu.h \
	tests/common/gpu_buf.c tests/common/gpu_internal.h

unit_tests += tests/unit/test_driver
tests_unit_test_driver_SOURCES = tests/unit/test_driver.c tests/unit/cuda_child.h
tests_unit_test_driver_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_driver_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_memory
tests_unit_test_memory_SOURCES = tests/unit/test_memory.c $(unit_gpu_sources)
tests_unit_test_memory_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_memory_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_gpu
tests_unit_test_gpu_SOURCES = tests/unit/test_gpu.c $(unit_gpu_sources)
tests_unit_test_gpu_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_gpu_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_copy
tests_unit_test_copy_SOURCES = tests/unit/test_copy.c $(unit_gpu_sources)
tests_unit_test_copy_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_copy_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_ipc
tests_unit_test_ipc_SOURCES = tests/unit/test_ipc.c $(unit_gpu_sources)
tests_unit_test_ipc_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_ipc_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_staging
tests_unit_test_staging_SOURCES = tests/unit/test_staging.c $(unit_gpu_sources)
tests_unit_test_staging_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_staging_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_gdr
tests_unit_test_gdr_SOURCES = tests/unit/test_gdr.c $(unit_gpu_sources)
tests_unit_test_gdr_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_gdr_LDADD = $(GRAIL_UNIT_LIBS)

# runtime/
unit_tests += tests/unit/test_status
tests_unit_test_status_SOURCES = tests/unit/test_status.c
tests_unit_test_status_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_status_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_log
tests_unit_test_log_SOURCES = tests/unit/test_log.c tests/unit/capture.h
tests_unit_test_log_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_log_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_options
tests_unit_test_options_SOURCES = tests/unit/test_options.c tests/unit/capture.h
tests_unit_test_options_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_options_LDADD = $(GRAIL_UNIT_LIBS) -lm

unit_tests += tests/unit/test_stats
tests_unit_test_stats_SOURCES = tests/unit/test_stats.c tests/unit/capture.h
tests_unit_test_stats_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_stats_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_handle
tests_unit_test_handle_SOURCES = tests/unit/test_handle.c tests/unit/capture.h
tests_unit_test_handle_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_handle_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_shm
tests_unit_test_shm_SOURCES = tests/unit/test_shm.c tests/unit/capture.h
tests_unit_test_shm_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_shm_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_net
tests_unit_test_net_SOURCES = tests/unit/test_net.c tests/unit/net_pair.h
tests_unit_test_net_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_net_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_net_short
tests_unit_test_net_short_SOURCES = tests/unit/test_net_short.c tests/unit/net_pair.h
tests_unit_test_net_short_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_net_short_LDADD = $(GRAIL_UNIT_LIBS)

unit_tests += tests/unit/test_net_faults
tests_unit_test_net_faults_SOURCES = tests/unit/test_net_faults.c tests/unit/capture.h \
	tests/unit/net_pair.h
tests_unit_test_net_faults_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_net_faults_LDADD = $(GRAIL_UNIT_LIBS)

# A measurement, run by hand: host messages over grail_net beside UCX tag matching.
noinst_PROGRAMS += tests/unit/net_pingpong
tests_unit_net_pingpong_SOURCES = tests/unit/net_pingpong.c
tests_unit_net_pingpong_CPPFLAGS = $(GRAIL_LIB_CPPFLAGS)
tests_unit_net_pingpong_LDADD = libgrail.la $(UCX_LIBS)

unit_tests += tests/unit/test_resident
tests_unit_test_resident_SOURCES = tests/unit/test_resident.c
tests_unit_test_resident_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_resident_LDADD = $(GRAIL_UNIT_LIBS)

# pml/'s deciders, which need no MPI
unit_tests += tests/unit/test_choice
tests_unit_test_choice_SOURCES = tests/unit/test_choice.c pml/choice.c pml/choice.h
tests_unit_test_choice_CPPFLAGS = $(GRAIL_UNIT_CPPFLAGS)
tests_unit_test_choice_LDADD = $(GRAIL_UNIT_LIBS) -lm

if HAVE_CMOCKA
check_LTLIBRARIES += libgrail-test.la
libgrail_test_la_SOURCES = $(libgrail_la_SOURCES)
libgrail_test_la_CPPFLAGS = $(libgrail_la_CPPFLAGS)
libgrail_test_la_CFLAGS = $(AM_CFLAGS) $(GRAIL_MCX16)
libgrail_test_la_LIBADD = $(libgrail_la_LIBADD)

check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
endif

# by hand, on a machine with a GPU
noinst_PROGRAMS += tests/unit/device_cost
tests_unit_device_cost_SOURCES = tests/unit/device_cost.c
tests_unit_device_cost_CPPFLAGS = $(GRAIL_LIB_CPPFLAGS)
tests_unit_device_cost_LDADD = libgrail.la
