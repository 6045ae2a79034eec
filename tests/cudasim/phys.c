/* SPDX-License-Identifier: BSD-3-Clause */
/* Physical memory of simulated devices: memfds that other processes can open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cudasim/sim.h"

#define TAIL_MAGIC 0x4d696d53u

CUresult sim_phys_create(sim_phys_t **out, int phys, uint64_t bytes,
                         const CUmemAllocationProp *prop)
{
    bytes = (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    if (phys >= 0 && !sim_job_reserve(phys, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_phys_t *mem = calloc(1, sizeof(*mem));
    struct stat st;
    if (mem == NULL) {
        goto release_bytes;
    }
    mem->fd = memfd_create("cudasim", MFD_CLOEXEC);
    if (mem->fd < 0) {
        goto free_mem;
    }
    if (ftruncate(mem->fd, (off_t)(bytes + SIM_TAIL)) != 0 || fstat(mem->fd, &st) != 0) {
        goto close_fd;
    }
    mem->tail = mmap(NULL, SIM_TAIL, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, (off_t)bytes);
    if (mem->tail == MAP_FAILED) {
        goto close_fd;
    }
    mem->phys = phys;
    mem->bytes = bytes;
    mem->inode = st.st_ino;
    mem->refs = 1;
    mem->tail->magic = TAIL_MAGIC;
    mem->tail->phys = phys;
    mem->tail->bytes = bytes;
    mem->tail->owner_id = sim_next_id();
    if (prop != NULL) {
        mem->prop = *prop;
        mem->tail->prop = *prop;
    }
    if (phys >= 0) {
        atomic_fetch_add(&sim_device_bytes[phys], (long long)bytes);
    }
    *out = mem;
    return CUDA_SUCCESS;

close_fd:
    close(mem->fd);
free_mem:
    free(mem);
release_bytes:
    if (phys >= 0) {
        sim_job_release(phys, bytes);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_phys_import(sim_phys_t **out, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)(SIM_PAGE + SIM_TAIL) ||
        ((uint64_t)st.st_size - SIM_TAIL) % SIM_PAGE != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t bytes = (uint64_t)st.st_size - SIM_TAIL;
    sim_tail_t *tail = mmap(NULL, SIM_TAIL, PROT_READ, MAP_SHARED, fd, (off_t)bytes);
    if (tail == MAP_FAILED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_phys_t *mem = NULL;
    if (tail->magic == TAIL_MAGIC && tail->bytes == bytes) {
        mem = calloc(1, sizeof(*mem));
    }
    if (mem == NULL) {
        munmap(tail, SIM_TAIL);
        return CUDA_ERROR_INVALID_VALUE;
    }
    mem->fd = fd;
    mem->phys = tail->phys;
    mem->imported = true;
    mem->bytes = bytes;
    mem->inode = st.st_ino;
    mem->tail = tail;
    mem->refs = 1;
    mem->prop = tail->prop;
    *out = mem;
    return CUDA_SUCCESS;
}

void sim_phys_unref(sim_phys_t *mem)
{
    if (--mem->refs > 0) {
        return;
    }
    if (!mem->imported && mem->phys >= 0) {
        atomic_fetch_sub(&sim_device_bytes[mem->phys], (long long)mem->bytes);
        sim_job_release(mem->phys, mem->bytes);
    }
    munmap(mem->tail, SIM_TAIL);
    close(mem->fd);
    free(mem);
}
