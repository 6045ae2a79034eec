# SPDX-License-Identifier: BSD-3-Clause
# libgrail: runtime/ and cuda-aware/. No MPI header here.

lib_LTLIBRARIES += libgrail.la

libgrail_la_CPPFLAGS = $(GRAIL_LIB_CPPFLAGS)
libgrail_la_CFLAGS = $(AM_CFLAGS) -fvisibility=hidden $(GRAIL_MCX16)
libgrail_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -Wl,--no-undefined
libgrail_la_LIBADD = $(UCX_LIBS) $(HWLOC_LIBS) $(VERBS_LIBS) -lpthread -ldl

# .c and .h files of runtime/, one a line
libgrail_la_SOURCES = \
	runtime/api.h \
	runtime/handle.c \
	runtime/handle.h \
	runtime/init.c \
	runtime/init.h \
	runtime/log.c \
	runtime/clock.h \
	runtime/log.h \
	runtime/net/net.c \
	runtime/net/net.h \
	runtime/net/net_ucx.c \
	runtime/net/net_ucx.h \
	runtime/net/net_ucx_cma.c \
	runtime/net/net_ucx_endpoint.c \
	runtime/net/net_ucx_receive.c \
	runtime/net/net_ucx_send.c \
	runtime/net/net_ucx_transports.c \
	runtime/net/net_ucx_type.c \
	runtime/net/provider.h \
	runtime/options.c \
	runtime/options.def \
	runtime/options.h \
	runtime/shm.c \
	runtime/shm.h \
	runtime/stats.c \
	runtime/stats.h \
	runtime/status.c \
	runtime/status.h
