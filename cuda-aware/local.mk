# SPDX-License-Identifier: BSD-3-Clause
# The CUDA part of libgrail, and its device kernels.

# .c and .h files of cuda-aware/, one a line
libgrail_la_SOURCES += \
	cuda-aware/copy.c \
	cuda-aware/copy.h \
	cuda-aware/cuda_abi.h \
	cuda-aware/devices.c \
	cuda-aware/driver.c \
	cuda-aware/driver.h \
	cuda-aware/driver_table.def \
	cuda-aware/gdr.c \
	cuda-aware/gdr.h \
	cuda-aware/gdr_abi.h \
	cuda-aware/gpu.c \
	cuda-aware/gpu.h \
	cuda-aware/gpu_internal.h \
	cuda-aware/ipc.h \
	cuda-aware/ipc_export.c \
	cuda-aware/ipc_internal.h \
	cuda-aware/ipc_map.c \
	cuda-aware/memory.c \
	cuda-aware/memory.h \
	cuda-aware/nvml_abi.h \
	cuda-aware/p2p.c \
	cuda-aware/resident.c \
	cuda-aware/resident.h \
	cuda-aware/slots.c \
	cuda-aware/slots_view.c \
	cuda-aware/staging.c \
	cuda-aware/staging.h \
	cuda-aware/staging_internal.h \
	cuda-aware/stream.h

# layouts and their kernels
libgrail_la_SOURCES += \
	cuda-aware/layout.h \
	cuda-aware/layout_build.c \
	cuda-aware/layout_code.c \
	cuda-aware/layout_internal.h \
	cuda-aware/layout_walk.c \
	cuda-aware/pack.c \
	cuda-aware/pack_sync.c

# Device code. Every .cu file is compiled into one module, in this order; list headers apart so that
# a change of one rebuilds it.
cuda_kernels = cuda-aware/kernels/move.cu cuda-aware/kernels/resident.cu
cuda_kernel_includes = cuda-aware/kernels/bytes.h cuda-aware/kernels/device.h \
	cuda-aware/kernels/layout_code.h cuda-aware/kernels/move.h cuda-aware/kernels/resident.h \
	cuda-aware/kernels/walk.h

EXTRA_DIST += $(cuda_kernels) $(cuda_kernel_includes)
CLEANFILES += cuda-aware/kernels.fatbin cuda-aware/kernels_all.cu

# A library of its own inside both builds of libgrail: nvcc runs once.
noinst_LTLIBRARIES += libgrail-kernels.la
libgrail_kernels_la_SOURCES = cuda-aware/kernels_fatbin.c cuda-aware/kernels_fatbin.h
libgrail_kernels_la_CPPFLAGS = $(AM_CPPFLAGS)
libgrail_kernels_la_CFLAGS = $(AM_CFLAGS) -fvisibility=hidden
libgrail_la_LIBADD += libgrail-kernels.la

if GRAIL_CUDA_KERNELS
libgrail_kernels_la_CPPFLAGS += -DGRAIL_KERNELS_FATBIN='"cuda-aware/kernels.fatbin"'

# automake would take an explicit target of this name for a rule of ours, and drop its own
kernels_object = cuda-aware/libgrail_kernels_la-kernels_fatbin.lo
$(kernels_object): cuda-aware/kernels.fatbin

cuda-aware/kernels.fatbin: $(cuda_kernels) $(cuda_kernel_includes)
	$(AM_V_at)$(MKDIR_P) cuda-aware
	$(AM_V_at)for f in $(cuda_kernels); do echo "#include \"$$f\""; done > cuda-aware/kernels_all.cu
	$(AM_V_GEN)$(NVCC) -fatbin -std=c++14 -O3 -I$(top_srcdir) -I$(top_builddir) \
	    $(GRAIL_NVCC_GENCODE) $(NVCCFLAGS) -o $@ cuda-aware/kernels_all.cu
endif
