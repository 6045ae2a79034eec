/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to cuda-aware/: what the parts of IPC share. */
#ifndef GRAIL_CUDA_AWARE_IPC_INTERNAL_H
#define GRAIL_CUDA_AWARE_IPC_INTERNAL_H

#include <stdbool.h>

#include "cuda-aware/ipc.h"

/* Is this the start of another process's memory that we have mapped? Any thread. */
bool grail_ipc_is_mapping(CUdeviceptr address);

/* Close all mappings that nobody uses; how many. */
int grail_ipc_evict(void);

/* Is there a driver-level way from `remote` memory to `gpu`? NULL: yes, or only a try can tell;
 * else the lasting reason. */
const char *grail_ipc_no_way(const grail_gpu_t *gpu, const CUuuid *remote);

/* Fini of the parts. */
void grail_ipc_export_fini(void);
void grail_p2p_fini(void);

#endif
