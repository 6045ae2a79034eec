/* SPDX-License-Identifier: BSD-3-Clause */
/* The form in which a flattened datatype is walked, on the host and in kernels. */
#ifndef GRAIL_CUDA_AWARE_KERNELS_LAYOUT_CODE_H
#define GRAIL_CUDA_AWARE_KERNELS_LAYOUT_CODE_H

/*
 * A layout is a small tree in an array of 64-bit words, position independent: it is sent to peers,
 * passed in kernel arguments and uploaded as it is. A node is named by the index of its first word;
 * children come before their parents; index 0 is never a node and as a child means "leaf": the
 * bytes lie in one block. Walking takes an offset q in the packed order of the node down to an
 * address; displacements are in bytes and add up on the way.
 *
 *   LOOP     q / unit is the index i of a repetition, which starts at i * stride
 *   LIST     q / unit is the index i into a table of displacements (equal blocks, no order)
 *   BLOCKS   a table of {start, displacement}, searched for the last start <= q; leaves only
 *   SEQUENCE a table of {start, displacement, child}
 *
 * BLOCKS and SEQUENCE tables end in one more `start`, the packed size of the node (padded to a
 * whole entry). Long tables have an index, so that a search looks at a few entries only: word g is
 * the last entry that starts at or before g << shift, and one more word is the last entry of all.
 */
enum {
    GRAIL_NODE_LOOP = 0,
    GRAIL_NODE_LIST = 1,
    GRAIL_NODE_BLOCKS = 2,
    GRAIL_NODE_SEQUENCE = 3
};

#define GRAIL_NODE_WIDE 0x80    /* in the head */

/* Words of a node */
enum {
    GRAIL_NODE_HEAD = 0,    /* kind: bits 0-6; wide: bit 7; shift: bits 8-15; child: bits 32-63 */
    GRAIL_NODE_UNIT = 1,    /* LOOP, LIST: packed bytes of one child; else of the whole node */
    GRAIL_NODE_MAGIC = 2,   /* LOOP, LIST: to divide by unit, see below */
    GRAIL_NODE_INDEX = 2,   /* BLOCKS, SEQUENCE: first word of the index; 0: none */
    GRAIL_NODE_STRIDE = 3,  /* LOOP: stride; else: index of the table's first word */
    GRAIL_NODE_COUNT = 4,
    GRAIL_NODE_WORDS = 5,
    GRAIL_BLOCKS_ENTRY = 2,     /* words of an entry */
    GRAIL_SEQUENCE_ENTRY = 3
};

#define GRAIL_NODE_KIND(head) ((uint32_t)(head) & 0x7f)
#define GRAIL_NODE_SHIFT(head) (((uint32_t)(head) >> 8) & 0xff)
#define GRAIL_NODE_CHILD(head) ((uint32_t)((head) >> 32))

/*
 * Division by multiplication (Granlund and Montgomery, "Division by invariant integers using
 * multiplication", 1994). magic 0: the divisor is 1 << shift. Else, with l = ceil(log2 divisor) and
 * shift = l - 1,
 *   narrow: n < 2^31, magic = ceil(2^(31 + l) / divisor),
 *           n / divisor = upper 32 bits of the 64-bit product n * magic, >> shift
 *   wide:   n < 2^63, magic = ceil(2^(63 + l) / divisor),
 *           n / divisor = upper 64 bits of the 128-bit product n * magic, >> shift
 * A node is narrow when it has at most GRAIL_LAYOUT_NARROW packed bytes (kernels add up to a tile
 * to offsets before they divide); then so are all nodes below it.
 */
#define GRAIL_LAYOUT_NARROW ((uint64_t)1 << 30)

#endif
