/* SPDX-License-Identifier: BSD-3-Clause */
/* A slow look at what is under way: peers that operations wait for, and the watchdog's reports. */
#ifndef GRAIL_PML_WATCH_H
#define GRAIL_PML_WATCH_H

/* Called by progress now and then, under the lock; looks at the clock and mostly returns. */
void grail_watch(void);

#endif
