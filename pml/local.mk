# SPDX-License-Identifier: BSD-3-Clause
# The component pml/grail.

component_LTLIBRARIES += mca_pml_grail.la

mca_pml_grail_la_CPPFLAGS = $(GRAIL_MODULE_CPPFLAGS)
mca_pml_grail_la_CFLAGS = $(GRAIL_MODULE_CFLAGS)
mca_pml_grail_la_LDFLAGS = $(GRAIL_MODULE_LINKFLAGS)
mca_pml_grail_la_LIBADD = $(GRAIL_MODULE_LIBS)

# .c and .h files of pml/, one a line
mca_pml_grail_la_SOURCES = \
	pml/choice.c \
	pml/choice.h \
	pml/comm.c \
	pml/comm.h \
	pml/component.c \
	pml/datatype.c \
	pml/datatype.h \
	pml/device.c \
	pml/device.h \
	pml/device_pack.c \
	pml/device_wire.h \
	pml/flatten.c \
	pml/hooks.c \
	pml/hooks.h \
	pml/hooks_convertor.c \
	pml/hooks_file.c \
	pml/hooks_install.c \
	pml/hooks_patch.c \
	pml/hooks_query.c \
	pml/hooks_window.c \
	pml/layout.c \
	pml/layout.h \
	pml/match.c \
	pml/message.h \
	pml/module.c \
	pml/ompi_compat.h \
	pml/path_eager.c \
	pml/path_late.c \
	pml/path_pull.c \
	pml/path_recv.c \
	pml/path_send.c \
	pml/peer.c \
	pml/peer.h \
	pml/pml_grail.h \
	pml/probe.c \
	pml/probe.h \
	pml/recv.c \
	pml/request.c \
	pml/request.h \
	pml/send.c \
	pml/start.c \
	pml/transfer.c \
	pml/transfer.h \
	pml/walk.c \
	pml/walk.h \
	pml/watch.c \
	pml/watch.h \
	pml/wire.h
