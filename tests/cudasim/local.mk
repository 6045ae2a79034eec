# SPDX-License-Identifier: BSD-3-Clause
# The simulated driver: libcuda.so.1 (and libnvidia-ml.so.1, libgdrapi.so.2) in the build tree only.
# It is found through LD_LIBRARY_PATH, which tests/run-with-sim sets to $(builddir)/tests/cudasim/.libs.

# -rpath makes it a shared library although it is never installed
GRAIL_SIM_LINKFLAGS = $(AM_LDFLAGS) -shared -rpath /nonexistent
GRAIL_SIM_CFLAGS = $(AM_CFLAGS) -fvisibility=hidden

noinst_LTLIBRARIES += tests/cudasim/libcuda.la tests/cudasim/libnvidia-ml.la \
	tests/cudasim/libgdrapi.la

tests_cudasim_libcuda_la_SOURCES = tests/cudasim/arena.c tests/cudasim/config.c \
	tests/cudasim/context.c tests/cudasim/copy.c tests/cudasim/counters.c \
	tests/cudasim/cudasim.h tests/cudasim/device.c tests/cudasim/event.c \
	tests/cudasim/fault.c tests/cudasim/ipc.c tests/cudasim/job.c tests/cudasim/kernel.c \
	tests/cudasim/memop.c tests/cudasim/memory.c tests/cudasim/module.c \
	tests/cudasim/phys.c tests/cudasim/pointer.c tests/cudasim/pool.c tests/cudasim/proc.c \
	tests/cudasim/share.h tests/cudasim/sim.h tests/cudasim/stream.c tests/cudasim/vmm.c
nodist_tests_cudasim_libcuda_la_SOURCES = tests/cudasim/kernels_host.c
tests_cudasim_libcuda_la_CFLAGS = $(GRAIL_SIM_CFLAGS)
tests_cudasim_libcuda_la_LDFLAGS = $(GRAIL_SIM_LINKFLAGS) -version-info 1:0:0
tests_cudasim_libcuda_la_LIBADD = -lpthread

# All device code as host code, in one file as nvcc gets it.
sim_kernels = tests/cudasim/test_kernels.cu
EXTRA_DIST += $(sim_kernels) tests/cudasim/README.md
CLEANFILES += tests/cudasim/kernels_host.c
tests/cudasim/kernels_host.c: $(cuda_kernels) $(cuda_kernel_includes) $(sim_kernels) \
		cuda-aware/kernels/device.h
	$(AM_V_at)$(MKDIR_P) tests/cudasim
	$(AM_V_GEN)for f in $(cuda_kernels) $(sim_kernels); do echo "#include \"$$f\""; done > $@

tests_cudasim_libnvidia_ml_la_SOURCES = tests/cudasim/nvml.c tests/cudasim/config.c \
	tests/cudasim/sim.h cuda-aware/nvml_abi.h
tests_cudasim_libnvidia_ml_la_CFLAGS = $(GRAIL_SIM_CFLAGS)
tests_cudasim_libnvidia_ml_la_LDFLAGS = $(GRAIL_SIM_LINKFLAGS) -version-info 1:0:0
tests_cudasim_libnvidia_ml_la_LIBADD = -lpthread

tests_cudasim_libgdrapi_la_SOURCES = tests/cudasim/gdr.c tests/cudasim/cudasim.h \
	cuda-aware/gdr_abi.h
tests_cudasim_libgdrapi_la_CFLAGS = $(GRAIL_SIM_CFLAGS)
tests_cudasim_libgdrapi_la_LDFLAGS = $(GRAIL_SIM_LINKFLAGS) -version-info 2:0:0
tests_cudasim_libgdrapi_la_LIBADD = -lpthread -ldl

sim_tests =
if HAVE_CMOCKA
# They start children of their own and set the environment for each.
GRAIL_SIM_TEST_LIBS = tests/cudasim/libcuda.la $(CMOCKA_LIBS) -lpthread -ldl
sim_test_headers = tests/cudasim/child.h tests/cudasim/cudasim.h tests/cudasim/test_kernels.h

sim_tests += tests/cudasim/test_memory
tests_cudasim_test_memory_SOURCES = tests/cudasim/test_memory.c $(sim_test_headers)
tests_cudasim_test_memory_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_cudasim_test_memory_LDADD = $(GRAIL_SIM_TEST_LIBS)

sim_tests += tests/cudasim/test_stream
tests_cudasim_test_stream_SOURCES = tests/cudasim/test_stream.c $(sim_test_headers)
tests_cudasim_test_stream_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_cudasim_test_stream_LDADD = $(GRAIL_SIM_TEST_LIBS)

sim_tests += tests/cudasim/test_ipc
tests_cudasim_test_ipc_SOURCES = tests/cudasim/test_ipc.c $(sim_test_headers)
tests_cudasim_test_ipc_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_cudasim_test_ipc_LDADD = $(GRAIL_SIM_TEST_LIBS)

sim_tests += tests/cudasim/test_vmm
tests_cudasim_test_vmm_SOURCES = tests/cudasim/test_vmm.c $(sim_test_headers)
tests_cudasim_test_vmm_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_cudasim_test_vmm_LDADD = $(GRAIL_SIM_TEST_LIBS)

sim_tests += tests/cudasim/test_fault
tests_cudasim_test_fault_SOURCES = tests/cudasim/test_fault.c $(sim_test_headers)
tests_cudasim_test_fault_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_cudasim_test_fault_LDADD = $(GRAIL_SIM_TEST_LIBS)
endif

# What facts.txt says a real driver did.
check_PROGRAMS += tests/cudasim/facts
tests_cudasim_facts_SOURCES = tests/cudasim/facts.c tests/cudasim/facts.h \
	tests/cudasim/facts_waits.c cuda-aware/cuda_abi.h
tests_cudasim_facts_LDADD = tests/cudasim/libcuda.la -lpthread
TESTS += tests/cudasim/facts.test
EXTRA_DIST += tests/cudasim/facts.test tests/cudasim/facts.txt tests/cudasim/facts.differ

# Our declarations of CUDA and NVML against a toolkit's headers, if there are any.
sim_tests += tests/unit/abi_check
tests_unit_abi_check_SOURCES = tests/unit/abi_check.c tests/unit/abi_toolkit.c \
	tests/unit/abi_table.h cuda-aware/cuda_abi.h cuda-aware/nvml_abi.h
tests_unit_abi_check_CPPFLAGS = $(AM_CPPFLAGS) -idirafter $(dir $(NVCC))../include \
	-idirafter /usr/local/cuda/include

check_PROGRAMS += $(sim_tests)
TESTS += $(sim_tests)
